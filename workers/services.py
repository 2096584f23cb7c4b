"""The services that a worker node and beat share."""

from __future__ import annotations

from dataclasses import dataclass

from sandloom.broker.api_keys import KeyMint
from sandloom.broker.cleaning import open_cleaner
from sandloom.broker.envelope import FLEET_KEY_ID, OPERATOR_KEY_ID, Verifier, fleet_key, operator_key
from sandloom.broker.publisher import KombuPublisher
from sandloom.contracts.ports import Bus, Registry
from sandloom.db import Database, open_checked_database, open_database
from sandloom.execs.admission import ExecPolicy
from sandloom.execs.service import Execs
from sandloom.fleet.service import Fleet
from sandloom.objects import ObjectStore, open_object_store
from sandloom.reclaim.policy import ReclaimPolicy
from sandloom.reclaim.prune import Prune
from sandloom.reclaim.queues import UnusedQueues
from sandloom.reclaim.service import Reclaim
from sandloom.reclaim.suspended import Suspended
from sandloom.reclaim.watcher import LeaseWatcher
from sandloom.registry import open_registry
from sandloom.sandboxes.forks import Forks
from sandloom.sandboxes.loose import LooseSnapshots
from sandloom.sandboxes.service import Sandboxes, SandboxPolicy
from sandloom.sandboxes.suspension import Suspensions
from sandloom.settings import Settings
from sandloom.streams import open_bus
from sandloom.tenants.keys import Keys as TenantKeys
from sandloom.tenants.service import Tenants
from sandloom.tenants.usage import Usage
from workers.app import WorkerApp
from workers.broker_cleaning import BrokerCleaning
from workers.canvas import Canvas
from workers.context import Keys
from workers.maintenance import Maintenance
from workers.post import FleetPost
from workers.results import Results

OBSERVE_SECONDS = 3.0
#: Leases must be renewed while every other connection is stuck.
LEASE_POOL_SIZE = 2


@dataclass(frozen=True, slots=True)
class Services:
    """``lease_db`` has connections of its own, except on SQLite, where there is one writer in any case."""

    settings: Settings
    db: Database
    lease_db: Database
    bus: Bus
    publisher: KombuPublisher
    post: FleetPost
    keys: Keys
    sandboxes: Sandboxes
    suspensions: Suspensions
    forks: Forks
    loose: LooseSnapshots
    execs: Execs
    fleet: Fleet
    tenants: Tenants
    usage: Usage
    registry: Registry
    objects: ObjectStore | None
    reclaim: Reclaim
    suspended: Suspended
    pruning: Prune
    watcher: LeaseWatcher
    _owns_db: bool
    _owns_bus: bool

    def maintenance(self, app: WorkerApp) -> Maintenance:
        return Maintenance(
            self.reclaim,
            self.suspended,
            self.loose,
            self.pruning,
            self.objects,
            self.watcher,
            self.execs,
            self.publisher,
            self.post,
            self.bus,
            Results(Canvas(app), self.execs),
            BrokerCleaning(
                UnusedQueues(self.db, reclaim_policy(self.settings)),
                open_cleaner(self.settings.broker_url, self.settings.broker_namespace),
            ),
        )

    def close(self) -> None:
        self.publisher.close()
        self.registry.close()
        if self._owns_bus:
            self.bus.close()
        if self.lease_db is not self.db:
            self.lease_db.dispose()
        if self._owns_db:
            self.db.dispose()


def open_services(settings: Settings, *, db: Database | None = None, bus: Bus | None = None) -> Services:
    """Services over ``db`` and ``bus``, or over those that the settings name. Raises SchemaBehind."""
    database = db or open_checked_database(settings)
    lease_db = database
    if database.dialect != "sqlite":
        lease_db = open_database(settings.database_url, pool_size=LEASE_POOL_SIZE)
    own_bus = bus or open_bus(settings.bus_url, settings.broker_namespace)
    keys = keys_of(settings, database)
    tenants = Tenants(database)
    publisher = KombuPublisher(settings.broker_url, namespace=settings.broker_namespace)
    policy, sandbox_policy = reclaim_policy(settings), SandboxPolicy.of(settings)
    fleet = Fleet(lease_db)
    registry = open_registry(settings)
    return Services(
        settings=settings,
        db=database,
        lease_db=lease_db,
        bus=own_bus,
        publisher=publisher,
        post=FleetPost(publisher, keys.fleet),
        keys=keys,
        sandboxes=Sandboxes(database, sandbox_policy, registry.loads, tenants),
        suspensions=Suspensions(database, sandbox_policy, registry.loads),
        forks=Forks(database, sandbox_policy, tenants),
        loose=LooseSnapshots(database),
        execs=Execs(database, ExecPolicy.of(settings), settings.idle_ttl_seconds, tenants),
        fleet=fleet,
        tenants=tenants,
        usage=Usage(database),
        registry=registry,
        objects=open_object_store(settings),
        reclaim=Reclaim(database, policy),
        suspended=Suspended(database, policy),
        pruning=Prune(database, policy),
        watcher=LeaseWatcher(
            fleet.leases,
            lost_after_seconds=settings.reap_after_seconds,
            max_gap_seconds=max(10 * OBSERVE_SECONDS, settings.heartbeat_ttl_seconds),
        ),
        _owns_db=db is None,
        _owns_bus=bus is None,
    )


def keys_of(settings: Settings, db: Database) -> Keys:
    """Whose signatures count: the fleet's own, the operator's, and those of tenants."""
    secret = settings.secret_key.get_secret_value()
    fleet, mint = fleet_key(secret), KeyMint(secret)
    known = {FLEET_KEY_ID: fleet}
    token = settings.internal_token.get_secret_value()
    if token:
        known[OPERATOR_KEY_ID] = operator_key(token)
    verifier = Verifier(lambda key_id: known.get(key_id) or mint.signing_key(key_id))
    return Keys(fleet, verifier, settings.direct_tasks == "signed", TenantKeys(db, mint))


def reclaim_policy(settings: Settings) -> ReclaimPolicy:
    return ReclaimPolicy(
        heartbeat_interval_seconds=settings.heartbeat_interval_seconds,
        heartbeat_ttl_seconds=settings.heartbeat_ttl_seconds,
        orphan_running_grace_seconds=settings.orphan_running_grace_seconds,
        orphan_release_grace_seconds=settings.orphan_release_grace_seconds,
        terminate_grace_seconds=settings.terminate_grace_seconds,
        idle_ttl_seconds=settings.idle_ttl_seconds,
        idle_action=settings.idle_action,
        suspended_retention_seconds=settings.suspended_retention_seconds,
        max_queued_seconds=settings.max_queued_seconds,
        maintenance_interval_seconds=settings.maintenance_interval_seconds,
        history_retention_days=settings.history_retention_days,
        usage_retention_days=settings.usage_retention_days,
        batch_size=settings.orphan_reaper_batch_size,
    )
