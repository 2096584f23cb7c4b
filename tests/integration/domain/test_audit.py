"""The audit of a sandbox follows its generations."""

from __future__ import annotations

import pytest

from sandloom.contracts.rest import AuditAnswer
from sandloom.errors import SandboxNotFound
from sandloom.ids import SandboxKey
from tests.integration.domain.world import World


def test_each_generation_has_an_entry_with_who_and_why(world: World) -> None:
    world.register()
    first = world.ready("audited")
    world.sandboxes.begin_release(first.key, first.generation, "someone", "finished")
    world.sandboxes.finish_release(first.fence)
    second = world.ready("audited")
    audit = AuditAnswer.model_validate(world.sandboxes.audit(first.key))
    assert (audit.generation, audit.status, audit.lifecycle_count) == (second.generation, "READY", 2)
    assert [entry.generation for entry in audit.history] == [2, 1]
    assert audit.history[0].released_at is None
    assert (audit.history[1].release_reason, audit.history[1].released_by) == ("finished", "someone")
    assert (audit.last_released_generation, audit.last_release_reason) == (1, "finished")
    assert audit.active_duration_ms is not None


def test_an_unknown_sandbox_has_no_audit(world: World) -> None:
    with pytest.raises(SandboxNotFound):
        world.sandboxes.audit(SandboxKey("default", "nobody"))
