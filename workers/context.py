"""What the tasks of a worker node work with, built once the node is registered."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sandloom.broker.envelope import SigningKey, Verifier
from sandloom.contracts.ports import Bus
from sandloom.execs.service import Execs
from sandloom.fleet.service import Fleet
from sandloom.sandboxes.service import Sandboxes
from sandloom.settings import Settings
from sandloom.tenants.keys import Keys as TenantKeys
from sandloom.tenants.service import Tenants
from workers.commands import Commands
from workers.forker import Forker
from workers.gates import Gates
from workers.homes import Homes
from workers.identity import Identity
from workers.lifecycle import Lifecycle
from workers.suspender import Suspender
from workers.templates import Templates


@dataclass(frozen=True, slots=True)
class Keys:
    """Whose messages are believed."""

    fleet: SigningKey
    verifier: Verifier
    direct_tasks: bool
    of_tenants: TenantKeys


@dataclass(frozen=True, slots=True)
class NodeContext:
    settings: Settings
    identity: Identity
    keys: Keys
    bus: Bus
    sandboxes: Sandboxes
    execs: Execs
    fleet: Fleet
    tenants: Tenants
    homes: Homes
    gates: Gates
    commands: Commands
    lifecycle: Lifecycle
    suspender: Suspender
    forker: Forker
    templates: Templates
    load: Callable[[], Mapping[str, Any]]
