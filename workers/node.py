"""A worker node from its start to its end."""

from __future__ import annotations

import base64
import os
import platform
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from sandloom.broker.check import warnings_of
from sandloom.broker.queues import DISPATCH_QUEUE, worker_queue, worker_queues
from sandloom.broker.rabbitmq import make_queues
from sandloom.clock import boottime_seconds, monotonic_seconds
from sandloom.errors import SandloomError, WorkerIdInUse
from sandloom.execution.dial import DialReport
from sandloom.execution.files import FileLimits
from sandloom.execution.runner import Runner
from sandloom.fleet.records import NodeInfo
from sandloom.fleet.service import Fleet
from sandloom.ids import ExecKey, SandboxKey
from sandloom.reclaim.adoption import register
from sandloom.reclaim.policy import LEASE_MARGIN_SECONDS
from sandloom.settings import Settings
from sandloom.telemetry import get_logger
from workers.app import create_celery
from workers.canvas import Canvas
from workers.channel import Channel
from workers.commands import Commands, Engine
from workers.context import NodeContext
from workers.counters import counters
from workers.direct import DirectExecs
from workers.drainer import Drainer
from workers.exposure import examine
from workers.forker import Forker
from workers.forward import QueueForwarder
from workers.front import CeleryFront
from workers.gates import Gates
from workers.ground import Ground, capabilities, effective_hash, prepare
from workers.homes import Homes
from workers.identity import Identity
from workers.janitor import Announcer, Janitor
from workers.lanes import CommandLane
from workers.lease import LeaseKeeper
from workers.lifecycle import Lifecycle
from workers.reception import ControlLanes, Lane, NodeReception
from workers.results import Results
from workers.self_ping import SelfPing
from workers.services import Services
from workers.snapshots import Snapshots
from workers.stored import StoredBytes
from workers.suspender import Suspender
from workers.sweep import Sweeper
from workers.tasks import node_lanes, register_maintenance, register_node, register_ping
from workers.templates import open_templates
from workers.translate import Ending, budgets_of, group_of
from workers.watermarks import Watermarks

log = get_logger("sandloom.workers.node")

#: A stopping node lets its commands go on for this long.
FINISH_SECONDS = 25.0
#: And then waits this long beyond the grace between TERM and KILL.
END_SECONDS = 10.0
MAX_ANNOUNCED = 10_000
#: Commands that wait in memory; beyond that the rows wait in the database alone.
WAITING_IN_MEMORY = 2000


@dataclass(frozen=True, slots=True)
class Birth:
    """A registered life of the node.

    ``sealing_key``: secrets for this epoch are sealed to it; it is never written. ``open_before``: what the earlier
    life had not ended; ``ended_before``: what it ended and may not have told.
    """

    identity: Identity
    sealing_key: X25519PrivateKey
    sent_seconds: float
    open_before: list[ExecKey]
    ended_before: list[tuple[ExecKey, str]]


class Node:
    """Raises from ``start`` what stops a start; ``superseded`` is set when the node must end at once."""

    def __init__(self, settings: Settings, services: Services) -> None:
        self._settings = settings
        self._services = services
        self.superseded = threading.Event()
        self.ended = threading.Event()
        self._hurry = threading.Event()
        self._watermarks = Watermarks(settings)

    # --- start ---

    def start(self) -> None:
        """In this order: ground, byte channel bound, servers dialled from a sandbox, queue, registration, lease, then
        what takes work."""
        self._ground = prepare(self._settings)
        self._channel = Channel(self._settings.data_host, self._settings.data_port, self._ground.sandbox_uids)
        try:
            endpoint = self._channel.bind()
            self._channel.serve()
            exposure = examine(self._settings, self._ground, endpoint)
            make_queues(self._settings.broker_url, worker_queues(self._ground.worker_id, self._settings.broker_url))
            self._birth = _register(self._settings, self._services, self._ground, endpoint, exposure)
            self._build()
        except BaseException:
            self._channel.close()
            self._ground.close()
            raise
        self._lease.start()
        self._channel.open_to(self._context)
        self._sweeper.start()
        self._front.start()
        self._ping.start()
        self._stored.start()
        announce = partial(self._announcer.announce, self._birth.open_before, self._birth.ended_before)
        self._lanes.submit(Lane.LIFECYCLE, announce)
        self._lanes.submit(Lane.LIFECYCLE, self._janitor.tidy)
        identity = self._birth.identity
        log.info(
            "worker started",
            worker_id=identity.worker_id,
            epoch=identity.epoch,
            isolation_level=self._ground.plan.level.value,
            endpoint=endpoint,
        )

    def _build(self) -> None:
        settings, services, ground = self._settings, self._services, self._ground
        identity = self._birth.identity
        self._lease = LeaseKeeper(
            identity, services.fleet, ground.spawner, settings, self.load,
            self._short_of, self._supersede, self._look_for_left, self._birth.sent_seconds,
        )  # fmt: skip
        gates = Gates()
        budgets = budgets_of(settings)
        snapshots = Snapshots(services.objects, ground.root) if services.objects is not None else None
        templates = open_templates(settings, ground.worker_id, services.objects)
        homes = Homes(
            identity, ground.root, services.sandboxes, services.suspensions, gates, _file_limits(settings),
            lambda key, directories, uid: ground.disk.room(group_of(key), directories, budgets, uid),
            templates, snapshots,
        )  # fmt: skip
        runner = Runner(ground.spawner, ground.groups, ground.disk)
        engine = Engine(runner, ground.plan, settings, ground.toolchains.env)
        self.commands = Commands(identity, services.execs, homes, engine, services.bus, lambda: self._lease.passed)
        lifecycle = Lifecycle(
            identity, ground.root, services.sandboxes, services.execs, self.commands, homes, gates,
            settings.terminate_grace_seconds,
        )  # fmt: skip
        suspender = Suspender(
            identity,
            services.sandboxes,
            services.suspensions,
            services.loose,
            self.commands,
            homes,
            gates,
            ground.root,
            snapshots,
            settings,
        )
        forker = Forker(
            ground.root, services.sandboxes, services.suspensions, services.forks, services.loose, homes, gates,
            lifecycle, snapshots, settings.min_free_bytes,
        )  # fmt: skip
        self._context = NodeContext(
            settings, identity, services.keys, services.bus, services.sandboxes, services.execs, services.fleet,
            services.tenants, homes, gates, self.commands, lifecycle, suspender, forker, templates, self.load,
        )  # fmt: skip
        self._drainer = Drainer(identity, Fleet(services.db), services.suspensions, suspender, homes)
        self._stored = StoredBytes(
            identity.worker_id, ground.root, services.suspensions, services.usage, settings.storage_interval_seconds
        )
        self._janitor = Janitor(identity, ground.root, services.sandboxes, gates, lifecycle)
        self._build_front(identity)

    def _build_front(self, identity: Identity) -> None:
        settings, services = self._settings, self._services
        app = create_celery(settings, worker_queues(identity.worker_id, settings.broker_url))
        canvas = Canvas(app)
        direct = DirectExecs(self._context, canvas)
        slots = settings.worker_exec_slots
        self._lane = CommandLane(slots, max(WAITING_IN_MEMORY, slots), lambda: self._sweeper.wake())
        results = Results(canvas, services.execs)
        self._announcer = Announcer(services.execs, services.bus, results)
        self._lanes = ControlLanes()
        elsewhere = partial(self._lanes.submit, Lane.LIFECYCLE)
        relieve, drain = partial(self._context.suspender.relieve_by, elsewhere), partial(self._drainer.look, elsewhere)
        self._sweeper = Sweeper(
            identity, services.execs, self.commands, self._lane, direct, services.watcher, results,
            (self._report, relieve, drain),
        )  # fmt: skip
        forwarder = QueueForwarder(app, self._context)
        app.reception = NodeReception(
            self._lanes, node_lanes(), self._lane, self.commands.run, direct, forwarder, DISPATCH_QUEUE
        )
        register_node(app, self._context, direct)
        register_maintenance(app, services.maintenance(app))
        self._front = CeleryFront(app, identity.worker_id)
        self._ping = SelfPing(
            services.publisher, worker_queue(identity.worker_id), lambda: warnings_of(settings), self._front.reconnect
        )
        register_ping(app, self._ping)

    @property
    def identity(self) -> Identity:
        return self._birth.identity

    def wait_consuming(self, timeout_seconds: float) -> bool:
        """Whether messages are taken; a node works on without a broker, from its rows alone."""
        return self._front.consuming.wait(timeout_seconds)

    def load(self) -> Mapping[str, Any]:
        """What goes into the database with each renewal."""
        space = self._ground.root.space()
        return {
            "running_execs": self._lane.running,
            "waiting_execs": self._lane.waiting,
            "disk": {
                "total_bytes": space.total_bytes,
                "free_bytes": space.free_bytes,
                "free_inodes": space.free_inodes,
            },
            "broker": self._ping.state(),
            "counters": counters.snapshot(),
            "held_by": dict(self._drainer.held_by),
        }

    def _short_of(self) -> str | None:
        """What the node lacks to take sandboxes."""
        short_of = self._watermarks.measure(self._ground.root.space())
        return short_of or ("broker" if self._ping.lost else None)

    def _report(self) -> None:
        """How busy the node is: by its commands, or by what its processors have to do, whichever is more."""
        commands = (self._lane.running + self._lane.waiting) / self._settings.worker_exec_slots
        processors = os.getloadavg()[0] / (os.cpu_count() or 1)
        self._services.registry.report(self.identity.worker_id, max(commands, processors))

    # --- end ---

    def _supersede(self) -> None:
        """Every command ends at once: this node has no right to any of them."""
        self.commands.end_all(Ending.FENCED)
        self._ground.spawner.close()
        self.superseded.set()
        self.ended.set()

    def _look_for_left(self) -> None:
        self._lanes.submit(Lane.LIFECYCLE, self._janitor.drop_left)

    def hurry(self) -> None:
        """A second wish to stop: commands are ended now."""
        self._hurry.set()

    def stop(self) -> None:
        """Warm: take nothing new, let commands finish within bounds, then end them; their records say so."""
        if not self.superseded.is_set():
            self._lease.close_to_sandboxes()
        self._drainer.stop()
        self._ping.stop()
        self._stored.stop()
        self._front.stop()
        self._lane.close()
        if not self.superseded.is_set():
            self._let_finish()
        self._lanes.close(END_SECONDS)
        self._sweeper.stop()
        self._channel.close()
        self._lease.stop()
        self._ground.spawner.close()
        self._lane.join(END_SECONDS)
        if not self.superseded.is_set():
            self._unregister()
        self.commands.close()
        self._ground.close()
        log.info("worker stopped", worker_id=self.identity.worker_id)

    def _let_finish(self) -> None:
        until = monotonic_seconds() + FINISH_SECONDS
        while not self._lane.join(0.2):
            if self._hurry.is_set() or monotonic_seconds() >= until or self.superseded.is_set():
                break
        else:
            return
        running = self.commands.all()
        log.warning("commands ended because the worker stops", number=len(running))
        self.commands.end_all(Ending.STOPPED)
        self._lane.join(self._settings.terminate_grace_seconds + END_SECONDS)

    def _unregister(self) -> None:
        try:
            self._services.fleet.unregister(self.identity.worker_id, self.identity.epoch)
        except SandloomError as error:
            log.warning("not unregistered; the lease will lapse", code=error.code)


def _register(settings: Settings, services: Services, ground: Ground, endpoint: str, exposure: DialReport) -> Birth:
    """The node's next epoch. Waits for an earlier life of its id to be over for certain. Raises WorkerIdInUse when that
    one renews its lease, so lives."""
    sealing_key = X25519PrivateKey.generate()
    info = node_info(settings, ground, endpoint, sealing_key, exposure)
    until = (
        monotonic_seconds() + info.lease_ttl_seconds + info.fence_grace_seconds + settings.heartbeat_interval_seconds
    )
    pause = threading.Event()
    before = services.fleet.get(info.worker_id)
    opened: list[ExecKey] = []
    ended: list[tuple[ExecKey, str]] = []
    if before is not None:
        opened += [row.key for row in services.execs.open_for(info.worker_id, before.epoch, MAX_ANNOUNCED)]
        ended += services.execs.ended_tasks(info.worker_id, MAX_ANNOUNCED)
    while True:
        sent_seconds = boottime_seconds()
        try:
            registration = register(services.lease_db, info)
        except WorkerIdInUse:
            now = services.fleet.get(info.worker_id)
            if monotonic_seconds() >= until or (before and now and now.renewals != before.renewals):
                raise
            log.warning("the lease of this worker id lives; waiting for it to run out", worker_id=info.worker_id)
            pause.wait(min(2.0, settings.heartbeat_interval_seconds))
            continue
        log.info("registered", epoch=registration.epoch, kept=registration.kept, lost=registration.lost)
        identity = Identity(info.worker_id, registration.epoch)
        return Birth(identity, sealing_key, sent_seconds, opened, ended)


def node_info(
    settings: Settings, ground: Ground, endpoint: str, sealing_key: X25519PrivateKey, exposure: DialReport
) -> NodeInfo:
    """What the database learns of this node."""
    public_key = sealing_key.public_key().public_bytes_raw()
    return NodeInfo(
        worker_id=ground.worker_id,
        queue=worker_queue(ground.worker_id),
        data_endpoint=endpoint,
        public_key=base64.b64encode(public_key).decode(),
        profile_id=settings.profile_id,
        declared_hash=settings.profile_hash,
        environment=settings.environment,
        effective_hash=effective_hash(settings.profile_hash, ground.plan),
        isolation_level=ground.plan.level.value,
        storage_mode=settings.storage_mode,
        root_id=ground.root.root_id,
        uid_start=ground.uid_range[0],
        uid_end=ground.uid_range[1],
        short_of=Watermarks(settings).measure(ground.root.space()),
        capacity=settings.worker_capacity,
        exec_slots=settings.worker_exec_slots,
        lease_ttl_seconds=settings.heartbeat_ttl_seconds,
        fence_grace_seconds=settings.orphan_running_grace_seconds
        + settings.terminate_grace_seconds
        + LEASE_MARGIN_SECONDS,
        present=frozenset(SandboxKey(*key) for key in ground.root.keys()),  # noqa: SIM118 - no mapping
        # The lock of a local root proves that nobody else uses it; a shared one may be locked on another host too.
        takeover=settings.storage_mode == "local",
        node={
            "capabilities": capabilities(settings, ground, exposure),
            "host": platform.node(),
            "pid": os.getpid(),
            "zone": settings.zone,
            "region": settings.region,
            "reclamation": {
                "maintenance_interval_seconds": settings.maintenance_interval_seconds,
                "idle_ttl_seconds": settings.idle_ttl_seconds,
                "heartbeat_ttl_seconds": settings.heartbeat_ttl_seconds,
                "suspended_retention_seconds": settings.suspended_retention_seconds,
            },
            "orphan_reaper": {
                "running_grace_seconds": settings.orphan_running_grace_seconds,
                "release_grace_seconds": settings.orphan_release_grace_seconds,
                "batch_size": settings.orphan_reaper_batch_size,
            },
        },
    )


def _file_limits(settings: Settings) -> FileLimits:
    return FileLimits(settings.max_file_api_bytes, settings.max_raw_file_bytes, settings.max_list_entries)
