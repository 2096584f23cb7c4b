"""Where a sandbox's files lie on the host."""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Directories:
    """Absolute host paths of what a sandbox owns; mounted at ``/workspace``, ``/home``, ``/envs`` and ``/cache``."""

    workspace: str
    home: str
    envs: str
    cache: str

    @property
    def all(self) -> tuple[str, str, str, str]:
        return self.workspace, self.home, self.envs, self.cache

    @property
    def staging(self) -> str:
        """Beside them and never mounted: where a file that is to replace another one has its first name."""
        return os.path.join(os.path.dirname(self.workspace), "staging")
