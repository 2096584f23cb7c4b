"""Snapshots whose names are in the database before the object store gets anything of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sandloom.errors import SandloomError
from sandloom.ids import SandboxKey
from sandloom.sandboxes.loose import LooseSnapshots
from sandloom.telemetry import get_logger
from workers.snapshots import Snapshots, new_token

log = get_logger("sandloom.workers.announced")


@contextmanager
def announced(loose: LooseSnapshots, snapshots: Snapshots, key: SandboxKey) -> Iterator[str]:
    """The token of a snapshot that is made inside, and that a row names at the end. When that fails, what the store has
    of it is removed: now, or by maintenance."""
    token = new_token()
    loose.announce(key, token)
    try:
        yield token
    except BaseException:
        _remove(loose, snapshots, key, token)
        raise


def _remove(loose: LooseSnapshots, snapshots: Snapshots, key: SandboxKey, token: str) -> None:
    """Asks the rows, since an error does not say whether the transaction that was to keep it happened."""
    try:
        if loose.doom(key, token):
            snapshots.discard(key, token)
            loose.forget(key, token)
    except SandloomError as error:
        log.warning("what was begun of a snapshot is left", sandbox_id=key.sandbox_id, code=error.code)
