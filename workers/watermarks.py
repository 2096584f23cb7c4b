"""Whether the disk has room for more sandboxes. Full at the high mark, and until the low one."""

from __future__ import annotations

from sandloom.execution.workspace import Space
from sandloom.settings import Settings

#: The low marks: so much of the highest fill, and so many times the least that must be free.
LOW_FILL = 0.95
LOW_FREE = 1.25


class Watermarks:
    """``measure`` now and then, from one thread at a time."""

    def __init__(self, settings: Settings) -> None:
        self._high_percent = settings.disk_high_watermark_percent
        self._free_bytes = settings.min_free_bytes
        self._free_inodes = settings.min_free_inodes
        self.short_of: str | None = None

    def measure(self, space: Space) -> str | None:
        """``disk``, ``inodes``, or None when sandboxes may come."""
        fill, free = (LOW_FILL, LOW_FREE) if self.short_of else (1.0, 1.0)
        self.short_of = self._short(space, self._high_percent * fill, free)
        return self.short_of

    def _short(self, space: Space, most_percent: float, free: float) -> str | None:
        used_percent = 100 * (1 - space.free_bytes / max(1, space.total_bytes))
        if used_percent >= most_percent or space.free_bytes < self._free_bytes * free:
            return "disk"
        # Some file systems make inodes as they need them, and count none.
        if space.total_inodes and space.free_inodes < self._free_inodes * free:
            return "inodes"
        return None
