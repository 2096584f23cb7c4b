"""A worker node, its lease, and what maintenance does."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from sandloom.settings.fields import GIB, MIB, Group, setting


class Worker(Group):
    worker_id: str | None = setting(
        None,
        "Stable name of the worker; letters, digits, `_`, `.`, `-`.",
        shown="made once and kept in the workspace root",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,127}$",
    )
    worker_capacity: int = setting(32, "Sandboxes this worker holds at once; a hard limit.", ge=1, le=10000)
    worker_exec_slots: int = setting(
        128, "Commands this worker runs at once.", shown="4 x WORKER_CAPACITY", ge=1, le=10000
    )
    max_queued_execs: int = setting(
        10000, "Commands waiting for one worker; above it the answer is 429.", ge=1, le=1000000
    )
    max_queued_seconds: int = setting(
        3600, "Longest wait for a slot; then the command ends as `queue_timeout`.", ge=1, le=604800
    )
    max_parallel_execs_per_sandbox: int = setting(16, "Commands at once in one sandbox.", ge=1, le=64)
    local_root: Path = setting(
        Path("/var/lib/sandloom/workspaces"),
        "Directory of the workspaces; not a symlink.",
        shown="`workspaces` in DATA_DIR",
    )
    shared_root: Path | None = setting(None, "A shared read-write directory used instead of LOCAL_ROOT.")
    data_host: str = setting("127.0.0.1", "Address the worker's byte channel binds and announces.", min_length=1)
    data_port: int = setting(0, "Port of the worker's byte channel; 0 takes a free one.", ge=0, le=65535)
    max_file_api_bytes: int = setting(32 * MIB, "Largest file the JSON file routes carry.", ge=1024, le=GIB)
    max_list_entries: int = setting(1000, "Largest `limit` of a directory listing.", ge=1, le=100000)
    max_raw_file_bytes: int = setting(4 * GIB, "Largest file the raw file route carries.", ge=1024)


class Lease(Group):
    heartbeat_interval_seconds: int = setting(10, "A worker renews its lease this often.", ge=1, le=3600)
    heartbeat_ttl_seconds: int = setting(
        30, "A lease not renewed for this long has lapsed; above 2 x HEARTBEAT_INTERVAL_SECONDS.", ge=3, le=86400
    )
    maintenance_interval_seconds: int = setting(60, "Maintenance runs this often.", ge=1, le=86400)
    orphan_running_grace_seconds: int = setting(
        60,
        "After a lapsed lease commands go on for this long, then the node ends them by itself.",
        ge=1,
        le=86400,
    )
    orphan_release_grace_seconds: int = setting(
        300,
        """After a lapsed lease the sandboxes of the worker are given up. More than ORPHAN_RUNNING_GRACE_SECONDS
        plus TERMINATE_GRACE_SECONDS plus 5 s, so that no command of a lost worker can still be alive.""",
        ge=1,
        le=604800,
    )
    orphan_reaper_batch_size: int = setting(100, "Rows that one maintenance step takes.", ge=1, le=10000)


class Retention(Group):
    idle_ttl_seconds: int = setting(1800, "An idle sandbox is released after this; 0 is never.", ge=0)
    idle_action: Literal["release", "suspend"] = setting("release", "What happens to an idle sandbox.")
    residency: str = setting("off", "Resident sandboxes; only `off` so far, anything else is refused.")
    suspended_retention_seconds: int = setting(
        2592000, "A suspended sandbox is kept for this long (30 days); 0 is until released.", ge=0
    )
    suspend_snapshot: Literal["auto", "always", "never"] = setting(
        "auto",
        """Whether suspending makes a snapshot: `auto`, where there is an object store and no shared root; `always`, or
        the suspend is refused; `never`.""",
    )
    history_retention_days: int = setting(
        15, "Commands, events, audit, released sandboxes and lost workers are kept for this long.", ge=1, le=3650
    )
    storage_interval_seconds: int = setting(
        3600,
        "A worker measures the files of each of its sandboxes this often, for the usage of tenants; 0 is never.",
        ge=0,
    )
    usage_retention_days: int = setting(
        400,
        "What tenants used is kept for this long, by day; of single commands for HISTORY_RETENTION_DAYS.",
        ge=1,
        le=36500,
    )
    disk_high_watermark_percent: int = setting(
        90,
        """Above this fill of its disk a worker takes no new sandboxes, until it is 5 % below it, and drops the files of
        suspended sandboxes that have a snapshot.""",
        ge=1,
        le=99,
    )
    min_free_bytes: int = setting(
        GIB, "Below this much free space it does so, too, until there is a quarter more.", ge=0
    )
    min_free_inodes: int = setting(
        10000, "Below this many free inodes it takes no new sandboxes, until there is a quarter more.", ge=0
    )
