"""A published template as it is stored."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True, slots=True)
class Template:
    """``digest``: ``sha256:<hex>`` of the archive of the current revision, ``revisions``: of every one that was
    published under the name, with the sizes of their archives in bytes. ``created_at``: RFC 3339."""

    name: str
    digest: str
    size_bytes: int
    created_at: str
    description: str = ""
    source_sandbox_id: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    revisions: dict[str, int] = field(default_factory=dict)

    def encode(self) -> bytes:
        return json.dumps({"v": 1, **asdict(self)}, sort_keys=True).encode()

    @classmethod
    def decode(cls, data: bytes) -> Template:
        """Raises ValueError, TypeError for what is no template."""
        values = json.loads(data)
        if not isinstance(values, dict) or values.pop("v", None) != 1:
            raise ValueError("not a template of this release")
        return cls(**values)

    def answer(self, shared: bool) -> dict[str, object]:
        """As clients see it."""
        values = {name: value for name, value in asdict(self).items() if name != "revisions"}
        return {**values, "mount_target": f"/envs/{self.name}", "shared": shared}
