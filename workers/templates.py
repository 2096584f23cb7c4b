"""Templates on this node: built from a sandbox, unpacked into the cache, attached to sandboxes."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from sandloom.clock import MICROSECONDS, rfc3339, wall_seconds
from sandloom.errors import SettingsInvalid, TemplateInvalid
from sandloom.execution import template_mounts
from sandloom.execution.file_faults import FaultKind, FileFault, translated
from sandloom.execution.identity import acting_as
from sandloom.execution.openat import SCAN_FLAGS, open_directory
from sandloom.execution.paths import SandboxPath, parse_path
from sandloom.execution.root_directory import RootUnusable, make_own
from sandloom.execution.template_archive import TemplateArchive
from sandloom.execution.template_cache import TemplateCache, TemplateLimits
from sandloom.execution.tree_walk import TreeBounds
from sandloom.ids import SandboxKey
from sandloom.objects import ObjectStore
from sandloom.objects.directory import DirectoryStore
from sandloom.settings import Settings
from sandloom.telemetry import get_logger
from sandloom.templates.catalog import Catalog
from sandloom.templates.records import Template
from sandloom.templates.references import DIGEST_PREFIX, collect, parse, pinned
from workers.translate import Home

log = get_logger("sandloom.workers.templates")


@dataclass(frozen=True, slots=True)
class Built:
    """An archive in the cache's staging directory."""

    path: Path
    digest: str
    size_bytes: int

    def chunks(self) -> Iterator[bytes]:
        with open(self.path, "rb") as stream:
            yield from iter(lambda: stream.read(256 * 1024), b"")


def open_templates(settings: Settings, worker_id: str, store: ObjectStore | None) -> Templates:
    """Over the object store; without one over a directory in the shared root, or one of this worker. Raises
    SettingsInvalid."""
    limits = TemplateLimits(
        settings.template_max_archive_bytes,
        settings.template_max_extract_bytes,
        TreeBounds(
            settings.template_snapshot_max_entries,
            settings.template_snapshot_max_depth,
            settings.template_snapshot_timeout_seconds,
        ),
        settings.template_cache_max_bytes,
    )
    try:
        make_own(settings.templates_directory, 0o711)
        root = settings.templates_directory / worker_id
        cache = TemplateCache(root, limits)
    except (RootUnusable, OSError) as error:
        raise SettingsInvalid(f"SANDBOX_TEMPLATE_ROOT: {error}") from error
    if store is not None:
        return Templates(Catalog(store, shared=True), cache)
    if settings.shared_root is not None:
        return Templates(Catalog(DirectoryStore(settings.workspace_root / ".templates"), shared=True), cache)
    return Templates(Catalog(DirectoryStore(root / "store"), shared=False), cache)


class Templates:
    """Thread-safe."""

    def __init__(self, catalog: Catalog, cache: TemplateCache) -> None:
        self.catalog = catalog
        self.cache = cache
        self._lock = threading.Lock()
        self._attached: dict[SandboxKey, tuple[str, ...]] = {}

    # --- building ---

    @contextmanager
    def draft(self) -> Iterator[Path]:
        """Where an archive lies until it is published."""
        path = self.cache.staging / f"build.{os.urandom(8).hex()}"
        try:
            yield path
        finally:
            path.unlink(missing_ok=True)

    def build(self, path: Path, home: Home, source_path: str) -> Built:
        """The archive of a directory below /envs or /workspace; the caller has the sandbox alone. Raises FileFault."""
        place = parse_path(source_path)
        if place.root not in ("envs", "workspace"):
            raise FileFault(FaultKind.PATH_INVALID, "a template is made from a directory below /envs or /workspace")
        with translated(place.text):
            fd = _open(home, place)
            try:
                return self._write(path, fd, home)
            finally:
                os.close(fd)

    def _write(self, path: Path, fd: int, home: Home) -> Built:
        limits = self.cache.limits
        digest, size_bytes = hashlib.sha256(), 0
        chunks = TemplateArchive(fd, limits.tree, limits.max_extract_bytes).chunks()
        with open(path, "xb") as stream:
            while True:
                with acting_as(home.uid, home.gid):
                    piece = _gather(chunks)
                if not piece:
                    break
                digest.update(piece)
                size_bytes += len(piece)
                if size_bytes > limits.max_archive_bytes:
                    detail = f"the template's archive has more than {limits.max_archive_bytes} bytes"
                    raise FileFault(FaultKind.TOO_LARGE, detail)
                stream.write(piece)
        return Built(path, digest.hexdigest(), size_bytes)

    def publish(self, tenant_id: str, template: Template, built: Built) -> Template:
        """Unpacked here first, so that nothing is published that could not be mounted."""
        self.cache.put(built.digest, built.chunks())
        with self.cache.using([built.digest]):
            whole = replace(
                template,
                digest=DIGEST_PREFIX + built.digest,
                size_bytes=built.size_bytes,
                created_at=str(rfc3339(int(wall_seconds() * MICROSECONDS))),
            )
            published = self.catalog.publish(tenant_id, whole, built.chunks())
        self.cache.shrink()
        return published

    # --- attaching ---

    def choose(self, tenant_id: str, references: list[str]) -> dict[str, Template]:
        """By name, with ``digest`` as it is to be attached. Raises TemplateNotFound, TemplateConflict."""
        found: dict[str, Template] = {}
        digests: list[tuple[str, str]] = []
        for reference in map(parse, references):
            template = self.catalog.find(tenant_id, reference.name)
            digest = pinned(template, reference)
            assert template is not None
            digests.append((reference.name, digest))
            found[reference.name] = replace(template, digest=digest, size_bytes=template.revisions[digest])
        return {name: found[name] for name in collect(digests)}

    def mount(self, key: SandboxKey, home: Home, attached: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
        """Make the trees, and places to mount them at, ready; hex digests by name. Earlier ones stay if it fails."""
        digests = tuple(attached.values())
        with self.cache.using(digests):
            for digest in digests:
                self._fetch(digest)
            before = template_mounts.remembered(home.directories)
            template_mounts.make_mountpoints(home.directories, attached.keys(), home.gid)
            template_mounts.remember(home.directories, attached)
            self._keep(key, digests)
        template_mounts.remove_mountpoints(home.directories, before.keys() - attached.keys())
        self.cache.shrink()
        return tuple((name, self.cache.path(digest)) for name, digest in sorted(attached.items()))

    def restore(self, key: SandboxKey, home: Home) -> Home:
        """The home with what was attached in an earlier life of the worker."""
        attached = template_mounts.remembered(home.directories)
        return replace(home, templates=self.mount(key, home, attached)) if attached else home

    def forget(self, key: SandboxKey) -> None:
        self._keep(key, ())

    def _keep(self, key: SandboxKey, digests: tuple[str, ...]) -> None:
        with self._lock:
            before = self._attached.pop(key, ())
            if digests:
                self._attached[key] = digests
            self.cache.hold(digests)
            self.cache.let_go(before)

    def _fetch(self, digest: str) -> None:
        if self.cache.has(digest):
            return
        try:
            with self.catalog.archive(DIGEST_PREFIX + digest) as chunks:
                self.cache.put(digest, chunks)
        except FileFault as fault:
            log.error("template cannot be unpacked", digest=digest, reason=fault.detail)
            if fault.kind is FaultKind.ARCHIVE_INVALID:
                raise TemplateInvalid from fault
            raise


def _open(home: Home, place: SandboxPath) -> int:
    with acting_as(home.uid, home.gid):
        base_fd = os.open(getattr(home.directories, place.root), SCAN_FLAGS)
        try:
            top_fd = open_directory(base_fd, place.parts)
        finally:
            os.close(base_fd)
        try:
            return os.open(".", SCAN_FLAGS, dir_fd=top_fd)
        finally:
            os.close(top_fd)


def _gather(chunks: Iterator[bytes]) -> bytes:
    pieces = bytearray()
    for chunk in chunks:
        pieces += chunk
        if len(pieces) >= 1 << 20:
            break
    return bytes(pieces)
