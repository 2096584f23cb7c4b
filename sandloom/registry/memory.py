"""The registry of one process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


class MemoryRegistry:
    """Thread-safe."""

    def __init__(self) -> None:
        self._loads: dict[str, float] = {}

    def report(self, worker_id: str, load: float) -> None:
        self._loads[worker_id] = load

    def loads(self, worker_ids: Sequence[str]) -> Mapping[str, float]:
        return {name: self._loads[name] for name in worker_ids if name in self._loads}

    def close(self) -> None:
        """Nothing is held."""
