"""What a node stands on before anyone hears of it: its root, its uids, its spawner, and isolation that was proved."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sandloom.errors import IsolationBlocked, SettingsInvalid, WorkerIdInUse
from sandloom.execution.cgroups import Groups
from sandloom.execution.dial import DialReport
from sandloom.execution.disk import Disk, DiskBudgets
from sandloom.execution.disk_quota import open_proved
from sandloom.execution.locks import LockHeld, LockUnusable, NoUidBlock, UidBlock
from sandloom.execution.probe import ProbeReport, ProbeRequest, probe
from sandloom.execution.process import Spawner
from sandloom.execution.reap import kill_bwraps_of, kill_uid_range
from sandloom.execution.root_directory import make_own
from sandloom.execution.spec import BudgetsUnavailable, Level, Network, Plan
from sandloom.execution.toolchain_checks import Toolchains
from sandloom.execution.toolchains import ToolchainRequest
from sandloom.execution.uid_claims import note
from sandloom.execution.workspace import RootUnusable, WorkspaceRoot
from sandloom.settings import Settings
from sandloom.telemetry import get_logger

log = get_logger("sandloom.workers.ground")

#: Uids of all workers of a host are given out here, whatever their settings say.
HOST_LOCK_DIRECTORY = Path("/run/sandloom")
#: An earlier life's spawner needs this long to end its commands, beyond the grace they have.
LOCK_MARGIN_SECONDS = 20.0
MIN_BLOCK = 64
TRASH_SECONDS = 10.0


@dataclass(slots=True)
class Ground:
    """Held until ``close``, which ends every command first."""

    root: WorkspaceRoot
    worker_id: str
    uid_range: tuple[int, int]
    spawner: Spawner
    plan: Plan
    report: ProbeReport
    groups: Groups | None
    disk: DiskBudgets
    toolchains: Toolchains
    _held: ExitStack = field(repr=False)

    @property
    def sandbox_uids(self) -> range:
        """The uids that are sandboxes' alone; none where sandboxes share the worker's."""
        first, last = self.uid_range
        return range(first, last + 1) if self.plan.uid_separation else range(0)

    def close(self) -> None:
        self.spawner.close()
        self._held.close()


def prepare(settings: Settings) -> Ground:
    """Everything that must hold before the node registers; processes of an earlier life are gone afterwards.

    Raises SettingsInvalid (root or uids unusable), WorkerIdInUse (the root's worker lives), IsolationBlocked.
    """
    with ExitStack() as stack:
        try:
            root, uid_range, fds = _claim(settings, stack)
        except (RootUnusable, LockUnusable, NoUidBlock) as error:
            raise SettingsInvalid(str(error)) from error
        except LockHeld as error:
            raise WorkerIdInUse(str(error)) from error
        worker_id = root.worker_id(settings.worker_id)
        ended = _kill_commands(root, uid_range)
        if ended:
            log.warning("processes of an earlier life ended", number=ended)
        groups, no_groups = _groups(settings, f"{root.root_id}/{worker_id}")
        if groups is not None:
            stack.callback(groups.close)

        def clean_up() -> None:
            _kill_commands(root, uid_range)
            if groups is not None:
                groups.kill_all()

        spawner = Spawner(keep_fds=fds, clean_up=clean_up, on_death=_spawner_died)
        stack.callback(spawner.close)
        state = engine_directory(settings, root, worker_id)
        if state.exists():
            shutil.rmtree(state)
        make_own(state, 0o711)
        request = probe_request(settings, state, uid_range[1])
        report = _prove(probe(request, spawner, groups, no_groups))
        assert report.plan is not None
        # Their checks go on while other things are made ready.
        toolchains = Toolchains(ToolchainRequest.of(settings), request, report.plan, spawner)
        plan = toolchains.plan
        if not root.empty_trash(TRASH_SECONDS):
            log.info("trash of an earlier life is not empty yet")
        disk = _disk(settings, request, plan, spawner)
        stack.callback(disk.close)
        return Ground(root, worker_id, uid_range, spawner, plan, report, groups, disk, toolchains, stack.pop_all())


def engine_directory(settings: Settings, root: WorkspaceRoot, worker_id: str) -> Path:
    """Where the engine keeps files that commands are shown, made anew in each life; workers that share a root need one
    each."""
    return root.path / (f".engine-{worker_id}" if settings.shared_root else ".engine")


def _claim(settings: Settings, stack: ExitStack) -> tuple[WorkspaceRoot, tuple[int, int], list[int]]:
    """The root with its lock, the uids, and the descriptors that keep both held while the spawner lives."""
    rootless = os.geteuid() != 0
    state = settings.data_dir / "worker" if settings.shared_root else None
    if state is not None:
        state.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    root = WorkspaceRoot.open(settings.workspace_root, rootless=rootless, state=state)
    lock = stack.enter_context(root.lock(wait_seconds=settings.terminate_grace_seconds + LOCK_MARGIN_SECONDS))
    if rootless:
        return root, (settings.uid_start, settings.uid_end), [lock.fileno()]
    size = min(settings.uid_end - settings.uid_start + 1, max(MIN_BLOCK, 4 * settings.worker_capacity))
    block = stack.enter_context(_uid_block(settings, root, size))
    root.record_uid_block(block.start)
    note(HOST_LOCK_DIRECTORY, root.uid_claim(block.start, block.end))
    return root, (block.start, block.end), [lock.fileno(), block.fileno()]


def _uid_block(settings: Settings, root: WorkspaceRoot, size: int) -> UidBlock:
    """Sandboxes that are on the disk tie the root to the uids that it had, also while its worker is down.

    Another root gets a block by its id, not the first free one: after a restart of the machine, that may be the block
    of a worker that has yet to start.
    """
    kept = root.other_uid_claims(HOST_LOCK_DIRECTORY)
    own = root.uid_block_start if next(root.keys(), None) is not None else None
    if own is not None:
        kept = [claim for claim in kept if not claim.overlaps(own, own + size - 1)]

    def acquire(preferred: int | None) -> UidBlock:
        return UidBlock.acquire(settings.uid_start, settings.uid_end, size, preferred, HOST_LOCK_DIRECTORY, claims=kept)

    if own is not None:
        return acquire(own)
    blocks = (settings.uid_end - settings.uid_start + 1) // size
    try:
        return acquire(settings.uid_start + size * (int(root.root_id, 16) % blocks))
    except (LockHeld, NoUidBlock):
        return acquire(None)


def _kill_commands(root: WorkspaceRoot, uid_range: tuple[int, int]) -> int:
    if os.geteuid() == 0:
        return kill_uid_range(*uid_range)
    return kill_bwraps_of(str(root.path))


def _groups(settings: Settings, worker: str) -> tuple[Groups | None, str]:
    """The worker's cgroups, without what an earlier life left in them; or why it has none, empty when it wants none."""
    name = hashlib.sha256(worker.encode()).hexdigest()[:16]
    if settings.resource_control == "off":
        Groups.remove_left(name)
        return None, ""
    try:
        return Groups.open(name), ""
    except BudgetsUnavailable as error:
        return None, str(error)


def _disk(settings: Settings, request: ProbeRequest, plan: Plan, spawner: Spawner) -> DiskBudgets:
    """By project quota where a real run proves one, else measured. Raises IsolationBlocked where that is too little."""
    if not settings.disk_budget:
        return Disk()
    try:
        return open_proved(request, plan, spawner)
    except BudgetsUnavailable as error:
        if settings.resource_control == "required":
            raise IsolationBlocked(
                f"SANDBOX_RESOURCE_CONTROL=required: a disk budget can only be measured here, since {error}."
            ) from error
        log.warning("disk budgets are measured, not enforced", reason=str(error))
        return Disk()


def _spawner_died(returncode: int) -> None:
    log.error("spawner died; its commands were ended", returncode=returncode)


def _prove(report: ProbeReport) -> ProbeReport:
    for failure in report.probe_failures:
        log.info("isolation shape not available", **failure.to_dict())
    for warning in report.warnings:
        log.warning("isolation", problem=warning)
    if report.plan is None:
        fixes = "".join(f" To fix it: {fix}." for fix in report.fixes)
        raise IsolationBlocked(f"{report.blocked}.{fixes}")
    return report


def probe_request(settings: Settings, state_dir: Path, uid: int) -> ProbeRequest:
    level = None if settings.isolation_level == "auto" else Level(settings.isolation_level)
    return ProbeRequest(
        state_dir=state_dir,
        uid=uid,
        gid=uid,
        level=level,
        required=settings.required_features,
        optional=frozenset(settings.isolation_optional_features),
        network=Network(settings.network_mode),
        readonly_mounts=settings.readonly_mounts,
        bwrap=str(settings.bubblewrap_path) if settings.bubblewrap_path else None,
        controllers=settings.required_controllers,
    )


def effective_hash(declared: str, plan: Plan) -> str:
    """Sandboxes move only between workers that agree on this: what was declared and what the probe selected."""
    namespaces = [plan.pid_namespace, plan.cgroup_namespace, plan.network]
    selected = [declared, plan.level, *namespaces, plan.uid_separation, plan.seccomp_file is not None]
    return hashlib.sha256(json.dumps(selected).encode()).hexdigest()[:16]


def capabilities(settings: Settings, ground: Ground, exposure: DialReport) -> dict[str, Any]:
    """What ``/healthz`` says of the node's isolation, as measured."""
    report, plan = ground.report, ground.report.plan
    return {
        "selected_level": plan.level.value if plan else None,
        "supported_levels": [level.value for level in report.supported_levels],
        "probe_failures": [failure.to_dict() for failure in report.probe_failures],
        "profile_mode": settings.isolation_level,
        "feature_policy": {
            "required": list(settings.isolation_required_features),
            "optional": list(settings.isolation_optional_features),
            "skipped": list(report.skipped_features),
        },
        "features": {
            "pid_namespace": bool(plan and plan.pid_namespace),
            "cgroup_namespace": bool(plan and plan.cgroup_namespace),
            "uid_separation": bool(plan and plan.uid_separation),
            "seccomp": bool(plan and plan.seccomp_file),
            "cgroup_limits": bool(report.controllers),
        },
        "resource_control": {
            "mode": settings.resource_control,
            "budgets": bool(report.controllers),
            "controllers": sorted(report.controllers),
        },
        "disk_budget": {
            "mode": ground.disk.mode if settings.disk_budget else "off",
            "bytes": settings.budget_disk_bytes,
            "inodes": settings.budget_inodes,
        },
        "network_mode": settings.network_mode,
        "control_plane": exposure.to_dict(),
        "bwrap_version": report.bwrap_version,
        "toolchains": ground.toolchains.report().to_dict(),
    }
