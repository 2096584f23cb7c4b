"""The object store: where snapshots and templates are kept beyond the life of a worker's disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandloom.objects.contract import ObjectInfo, ObjectMissing, ObjectStore
from sandloom.objects.digests import Sha256, checked
from sandloom.settings.plugins import plugin

if TYPE_CHECKING:
    from sandloom.settings import Settings

__all__ = ["ObjectInfo", "ObjectMissing", "ObjectStore", "Sha256", "checked", "open_object_store"]

ENTRY_POINTS = "agent_sandbox.object_stores"


def open_object_store(settings: Settings) -> ObjectStore | None:
    """The store that the settings name, None for ``disabled``. Nothing is contacted yet.

    Raises SettingsInvalid for ``s3`` without a bucket, and for an entry point that is missing, doubled or no callable.
    """
    backend = settings.object_store_backend
    if backend == "disabled" or (backend == "auto" and not settings.blobstore_bucket):
        return None
    if backend in ("auto", "s3"):
        from sandloom.objects.s3 import S3Store

        return S3Store.of(settings)
    store: ObjectStore = plugin(ENTRY_POINTS, backend, "SANDBOX_OBJECT_STORE_BACKEND")(settings)
    return store
