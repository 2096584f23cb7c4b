"""Whose turn it is: tenants take turns, and within each its sandboxes; a sandbox has its commands in order."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import Generic, TypeVar

from sandloom.ids import SandboxKey

T = TypeVar("T")


class Turns(Generic[T]):
    """Not thread-safe. After one has come for a sandbox, one comes for every other tenant that waits, and one for every
    other sandbox of its own, before the next."""

    def __init__(self) -> None:
        self._tenants: OrderedDict[str, OrderedDict[SandboxKey, deque[T]]] = OrderedDict()

    def append(self, key: SandboxKey, item: T) -> None:
        boxes = self._tenants.setdefault(key.tenant_id, OrderedDict())
        boxes.setdefault(key, deque()).append(item)

    def pop(self) -> T:
        """KeyError when nothing waits."""
        tenant, boxes = self._tenants.popitem(last=False)
        key, items = boxes.popitem(last=False)
        item = items.popleft()
        if items:
            boxes[key] = items
        if boxes:
            self._tenants[tenant] = boxes
        return item

    def has_tenant(self, tenant_id: str) -> bool:
        return tenant_id in self._tenants

    def has_sandbox(self, key: SandboxKey) -> bool:
        return key in self._tenants.get(key.tenant_id, ())

    def __bool__(self) -> bool:
        return bool(self._tenants)

    def __iter__(self) -> Iterator[T]:
        for boxes in self._tenants.values():
            for items in boxes.values():
                yield from items

    def clear(self) -> None:
        self._tenants.clear()
