"""What the routes work with: one frozen record, built once per process."""

from __future__ import annotations

from dataclasses import dataclass

from api.rates import Rates, open_rates
from api.slots import Slots
from api.slow_look import SlowLook
from sandloom.broker.api_keys import KeyMint
from sandloom.broker.control import BusControl
from sandloom.broker.envelope import fleet_key
from sandloom.broker.publisher import KombuPublisher
from sandloom.contracts.ports import Bus, WorkerControl
from sandloom.db import Database, open_checked_database
from sandloom.execs.admission import ExecPolicy
from sandloom.execs.gateway import ExecGateway
from sandloom.execs.service import Execs
from sandloom.files.channel import ByteChannel
from sandloom.files.service import Files
from sandloom.fleet.service import Fleet
from sandloom.objects import open_object_store
from sandloom.registry import open_registry
from sandloom.sandboxes.gateway import SandboxGateway
from sandloom.sandboxes.service import Sandboxes, SandboxPolicy
from sandloom.sandboxes.suspension import Suspensions
from sandloom.settings import Settings
from sandloom.streams import open_bus
from sandloom.templates.catalog import Catalog
from sandloom.templates.gateway import TemplateGateway
from sandloom.tenants.keys import Keys
from sandloom.tenants.service import Tenants
from sandloom.tenants.usage import Usage


@dataclass(frozen=True)
class Services:
    """Everything is safe to use from any thread. ``waits`` and ``streams`` count the threads that are held for long."""

    settings: Settings
    db: Database
    bus: Bus
    publisher: KombuPublisher
    sandboxes: Sandboxes
    sandbox_gateway: SandboxGateway
    execs: Execs
    exec_gateway: ExecGateway
    files: Files
    templates: TemplateGateway
    fleet: Fleet
    keys: Keys
    tenants: Tenants
    usage: Usage
    rates: Rates
    control: WorkerControl
    waits: Slots
    streams: Slots
    slow_look: SlowLook

    def stop_waiting(self) -> None:
        """End every wait and stream, so that the process can stop; may be called twice and from any thread."""
        self.waits.close()
        self.streams.close()

    def close(self) -> None:
        """Let go of the bus and the database; nothing is served afterwards."""
        self.stop_waiting()
        self.slow_look.close()
        self.bus.close()
        self.db.dispose()


def build(settings: Settings) -> Services:
    """Services over the database, broker and bus that ``settings`` names. Raises SchemaBehind, SettingsInvalid."""
    db = open_checked_database(settings)
    bus = open_bus(settings.bus_url, settings.broker_namespace)
    publisher = KombuPublisher(settings.broker_url, namespace=settings.broker_namespace)
    return assemble(settings, db, bus, publisher)


def assemble(settings: Settings, db: Database, bus: Bus, publisher: KombuPublisher) -> Services:
    """Services over parts that are open already; the embedded mode shares its own."""
    secret = settings.secret_key.get_secret_value()
    key = fleet_key(secret)
    control = BusControl(publisher, bus, key)
    sandbox_policy = SandboxPolicy.of(settings)
    registry = open_registry(settings)
    tenants = Tenants(db)
    sandboxes = Sandboxes(db, sandbox_policy, registry.loads, tenants)
    execs = Execs(db, ExecPolicy.of(settings), settings.idle_ttl_seconds, tenants)
    sandbox_gateway = SandboxGateway(sandboxes, Suspensions(db, sandbox_policy, registry.loads), control)
    fleet = Fleet(db)
    store = open_object_store(settings)
    return Services(
        settings=settings,
        db=db,
        bus=bus,
        publisher=publisher,
        sandboxes=sandboxes,
        sandbox_gateway=sandbox_gateway,
        execs=execs,
        exec_gateway=ExecGateway(execs, sandboxes, sandbox_gateway, publisher, control, bus),
        files=Files(
            sandboxes,
            sandbox_gateway,
            control,
            ByteChannel(key),
            max_file_api_bytes=settings.max_file_api_bytes,
            max_raw_file_bytes=settings.max_raw_file_bytes,
        ),
        templates=TemplateGateway(
            sandboxes,
            sandbox_gateway,
            control,
            fleet,
            None if store is None else Catalog(store, shared=True),
            settings.template_snapshot_timeout_seconds,
        ),
        fleet=fleet,
        keys=Keys(db, KeyMint(secret)),
        tenants=tenants,
        usage=Usage(db),
        rates=open_rates(settings.tenant_rate_limit, settings.bus_url, settings.broker_namespace),
        control=control,
        waits=Slots(settings.max_waits),
        streams=Slots(settings.max_streams),
        slow_look=SlowLook(execs, bus),
    )
