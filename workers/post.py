"""Messages of this process to a worker for which nobody waits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sandloom.broker.envelope import SigningKey, seal
from sandloom.broker.publisher import KombuPublisher
from sandloom.errors import Unavailable


class FleetPost:
    """Signed by the fleet. A message that is lost is sent again by whoever finds its reason still there."""

    def __init__(self, publisher: KombuPublisher, key: SigningKey) -> None:
        self._publisher = publisher
        self._key = key

    def send(self, queue: str, task: str, tenant_id: str, args: Mapping[str, Any], *, ttl_seconds: float) -> bool:
        """False: not sent."""
        envelope = seal(
            self._key, tenant_id=tenant_id, task=task, args=dict(args), deadline_seconds_from_now=ttl_seconds
        )
        try:
            self._publisher.send(queue, task, {"envelope": envelope})
        except Unavailable:
            return False
        return True
