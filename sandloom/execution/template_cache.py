"""Unpacked templates of a worker, by the digest of their archives: the service's own, read-only for everybody else.

A tree is unpacked beside the cache and moved in whole, after the digest of its archive was right. Its own digest, taken
over the same archive made from it again, is right too before the tree is used for the first time in a life of the
worker; later uses look at its owner and modes.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sandloom.execution.archive_in import Extraction
from sandloom.execution.file_faults import FaultKind, FileFault, translated
from sandloom.execution.openat import SCAN_FLAGS
from sandloom.execution.root_directory import make_own
from sandloom.execution.tar_format import Member, MemberType, damaged
from sandloom.execution.tar_reader import TarReader
from sandloom.execution.template_archive import TemplateArchive
from sandloom.execution.tree_walk import TreeBounds

_FILE_MODES = (0o644, 0o755)


@dataclass(frozen=True, slots=True)
class TemplateLimits:
    """``tree``: entries, depth and time of building and of unpacking one. ``cache_bytes``: of all of them."""

    max_archive_bytes: int
    max_extract_bytes: int
    tree: TreeBounds
    cache_bytes: int | None = None


class TemplateCache:
    """Thread-safe. ``root`` is this worker's alone. Digests are hexadecimal SHA-256."""

    def __init__(self, root: Path, limits: TemplateLimits) -> None:
        """Raises RootUnusable, OSError."""
        self.limits = limits
        self._trees = root / "trees"
        self.staging = root / "staging"
        make_own(root, 0o711)
        make_own(self._trees, 0o711)
        make_own(self.staging, 0o700)
        for left in self.staging.iterdir():
            _remove(left)
        self._lock = threading.Lock()
        self._making: dict[str, threading.Lock] = {}
        self._checked: set[str] = set()
        self._used: Counter[str] = Counter()

    def path(self, digest: str) -> str:
        return str(self._trees / digest)

    def has(self, digest: str) -> bool:
        """Whether the tree is there as it was unpacked; one that is not is removed."""
        tree = self._trees / digest
        if not tree.is_dir():
            return False
        if not _own(tree) or (digest not in self._checked and self._digest(tree) != digest):
            with self._lock:
                self._checked.discard(digest)
            _remove(tree)
            return False
        self._checked.add(digest)
        os.utime(tree)  # the order in which the cache forgets
        return True

    def put(self, digest: str, chunks: Iterable[bytes]) -> None:
        """Unpack an archive. Raises FileFault(ARCHIVE_INVALID) for one of another digest, or that no template has."""
        with self._one_at_a_time(digest):
            if self.has(digest):
                return
            draft = self.staging / f"{digest}.{os.urandom(6).hex()}"
            os.mkdir(draft, 0o700)
            try:
                tree = draft / "tree"
                os.mkdir(tree, 0o700)
                self._extract(digest, chunks, draft, tree)
                tree.chmod(0o755)
                if self._digest(tree) != digest:
                    raise damaged("the archive is not in the form of a template")
                os.rename(tree, self._trees / digest)
                self._checked.add(digest)
            finally:
                _remove(draft)

    @contextmanager
    def using(self, digests: Iterable[str]) -> Iterator[None]:
        """Inside, none of them is forgotten."""
        self.hold(held := tuple(digests))
        try:
            yield
        finally:
            self.let_go(held)

    def hold(self, digests: Iterable[str]) -> None:
        with self._lock:
            self._used.update(digests)

    def let_go(self, digests: Iterable[str]) -> None:
        with self._lock:
            self._used.subtract(digests)

    def shrink(self) -> list[str]:
        """Forget trees that nobody uses, the longest unused first, until the rest is within its bound."""
        if self.limits.cache_bytes is None:
            return []
        found = sorted(self._trees.iterdir(), key=lambda tree: tree.stat().st_mtime)
        sizes = {tree: _size_bytes(tree) for tree in found}
        total = sum(sizes.values())
        forgotten = []
        for tree in found:
            if total <= self.limits.cache_bytes:
                break
            away = self.staging / f"{tree.name}.{os.urandom(6).hex()}"
            with self._lock:
                if self._used[tree.name] > 0:
                    continue
                os.rename(tree, away)
                self._checked.discard(tree.name)
            total -= sizes[tree]
            forgotten.append(tree.name)
            _remove(away)
        return forgotten

    @contextmanager
    def _one_at_a_time(self, digest: str) -> Iterator[None]:
        with self._lock:
            lock = self._making.setdefault(digest, threading.Lock())
        with lock:
            yield

    def _extract(self, digest: str, chunks: Iterable[bytes], draft: Path, tree: Path) -> None:
        staging_fd = os.open(draft, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        tree_fd = os.open(tree, SCAN_FLAGS)
        extraction = Extraction(tree_fd, staging_fd, self.limits.tree, self.limits.max_extract_bytes)
        seen, size_bytes = hashlib.sha256(), 0
        try:
            with translated("the template"):
                reader = TarReader(_Plain(extraction))
                for chunk in chunks:
                    seen.update(chunk)
                    size_bytes += len(chunk)
                    if size_bytes > self.limits.max_archive_bytes:
                        raise FileFault(FaultKind.TOO_LARGE, "the archive of the template is too large")
                    reader.feed(chunk)
                if seen.hexdigest() != digest:
                    raise damaged("the archive of the template is damaged: its digest differs")
                reader.finish()
                extraction.settle()
        finally:
            extraction.close()
            os.close(tree_fd)
            os.close(staging_fd)

    def _digest(self, tree: Path) -> str:
        fd = os.open(tree, SCAN_FLAGS)
        try:
            seen = hashlib.sha256()
            for chunk in TemplateArchive(fd, self.limits.tree, self.limits.max_extract_bytes).chunks():
                seen.update(chunk)
            return seen.hexdigest()
        except (OSError, FileFault):
            return ""
        finally:
            os.close(fd)


class _Plain:
    """Takes only what a template's archive has: files, directories and links, with plain modes."""

    def __init__(self, extraction: Extraction) -> None:
        self._extraction = extraction
        self.data = extraction.data
        self.end = extraction.end

    def begin(self, member: Member) -> None:
        kind = member.type
        if kind in (MemberType.HARD_LINK, MemberType.OTHER) or (
            kind is MemberType.FILE and member.mode not in _FILE_MODES
        ):
            raise damaged("the archive is not in the form of a template")
        self._extraction.begin(member)


def _own(tree: Path) -> bool:
    found = tree.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and stat.S_IMODE(found.st_mode) == 0o755


def _size_bytes(tree: Path) -> int:
    return sum(
        Path(path, name).lstat().st_blocks * 512 for path, _, names in os.walk(tree) for name in names
    )  # fmt: skip


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
