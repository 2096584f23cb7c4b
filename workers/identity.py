"""Who this node is in its current life."""

from __future__ import annotations

from dataclasses import dataclass

from sandloom.ids import SandboxKey
from sandloom.sandboxes.records import Fence, Route


@dataclass(frozen=True, slots=True)
class Identity:
    """Every write of the node names both: an earlier or later life of the same worker wins nothing with it."""

    worker_id: str
    epoch: int

    def fence(self, key: SandboxKey, generation: int) -> Fence:
        return Fence(key, generation, self.worker_id, self.epoch)

    def owns(self, route: Route) -> bool:
        return route.worker_id == self.worker_id and route.worker_epoch == self.epoch
