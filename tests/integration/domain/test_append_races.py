"""An owner that appends as fast as it can while its commands are taken from it: nothing comes after the end.

``--races 10000`` for the long form.
"""

from __future__ import annotations

import json
import random
from functools import partial

import pytest

from sandloom.execs.records import Exec
from sandloom.execs.states import TERMINAL, ExecStatus
from sandloom.sandboxes.records import Route
from tests.integration.domain.races import together
from tests.integration.domain.world import World

WIDTH = 5
TEXT = ("stdout", b"x")
#: By then the end has come, or the database is busy with nothing but this.
MOST = 60


@pytest.mark.timeout(3600)
def test_nothing_is_appended_after_the_end(world: World, pytestconfig: pytest.Config):
    races: int = pytestconfig.getoption("--races")
    chance = random.Random(races)
    world.register()
    for number in range(0, races, WIDTH):
        route = world.ready()
        records = [world.running(route, f"run-{number + lane}", f"scope-{lane}") for lane in range(WIDTH)]
        take = chance.choice([reaped, reaped_twice, adopted])
        results = together(
            [*(partial(append_until_fenced, world, record) for record in records), partial(take, world, route)]
        )
        assert not [result for result in results if isinstance(result, Exception)], results
        for record, appended in zip(records, results, strict=False):
            check(world, record, appended)
        world.restart()
    world.check()


def append_until_fenced(world: World, record: Exec) -> int:
    """How many events were taken."""
    appended = 0
    while appended < MOST and world.execs.append(
        record.key, record.worker_id, record.worker_epoch, record.last_seq + appended, [TEXT] * (1 + appended % 2)
    ):
        appended += 1 + appended % 2
    return appended


def reaped(world: World, route: Route) -> None:
    """As maintenance does when it saw the lease lapse."""
    world.lose()
    end_all(world, route)


def adopted(world: World, route: Route) -> None:
    """The worker's next life ends what its earlier one ran."""
    world.restart()
    assert not world.execs.open_for(route.worker_id, route.worker_epoch)


def reaped_twice(world: World, route: Route) -> None:
    """By two reapers at once."""
    world.lose()
    together([partial(end_all, world, route)] * 2)


def end_all(world: World, route: Route) -> None:
    while world.execs.open_for(route.worker_id, route.worker_epoch):
        world.reclaim.end_lost_execs()


def all_events(world: World, record: Exec) -> list[tuple[int, str, bytes]]:
    found: list[tuple[int, str, bytes]] = []
    while page := world.execs.events(record.key, len(found)).events:
        found += [(event.seq, event.kind, event.data) for event in page]
    return found


def check(world: World, record: Exec, appended: int) -> None:
    found = world.execs.get(record.key)
    assert found.status is ExecStatus.WORKER_LOST
    events = all_events(world, record)
    assert [seq for seq, _, _ in events] == list(range(1, found.last_seq + 1))
    assert [(kind, data) for _, kind, data in events[record.last_seq : -1]] == [TEXT] * appended
    statuses = [ExecStatus(json.loads(data)["status"]) for _, kind, data in events if kind == "status"]
    assert statuses == [ExecStatus.QUEUED, ExecStatus.RUNNING, ExecStatus.WORKER_LOST]
    assert statuses[-1] in TERMINAL
    late = [TEXT]
    assert not world.execs.append(record.key, record.worker_id, record.worker_epoch, found.last_seq, late)
    assert world.execs.get(record.key).last_seq == found.last_seq
