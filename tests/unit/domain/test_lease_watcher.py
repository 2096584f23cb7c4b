"""Leases as one process sees them, by a clock that the test moves."""

from __future__ import annotations

import pytest

from sandloom.fleet.service import Lease
from sandloom.reclaim.watcher import LeaseWatcher

LOST_AFTER_SECONDS = 100.0
GAP_SECONDS = 30.0


class Scene:
    def __init__(self) -> None:
        self.now_seconds = 1000.0
        self.look_seconds = 0.0
        self.leases = [Lease("w1", 1, 0)]
        self.down = False
        self.watcher = LeaseWatcher(
            self.read,
            lost_after_seconds=LOST_AFTER_SECONDS,
            max_gap_seconds=GAP_SECONDS,
            clock=lambda: self.now_seconds,
        )

    def read(self) -> list[Lease]:
        if self.down:
            raise ConnectionError
        self.now_seconds += self.look_seconds
        return list(self.leases)

    def watch(self, seconds: float, every_seconds: float = 10.0) -> None:
        """Observe, then go on for so long."""
        self.watcher.observe()
        for _ in range(int(seconds / every_seconds)):
            self.now_seconds += every_seconds
            self.watcher.observe()


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_nothing_is_lapsed_before_anything_was_seen(scene: Scene):
    assert scene.watcher.lapsed() == []


def test_a_lease_lapses_after_it_was_seen_unrenewed_for_long_enough(scene: Scene):
    scene.watch(100)
    assert scene.watcher.lapsed() == []
    scene.watch(10)
    assert scene.watcher.lapsed() == [Lease("w1", 1, 0)]


def test_a_renewed_lease_never_lapses(scene: Scene):
    for renewals in range(50):
        scene.leases = [Lease("w1", 1, renewals)]
        scene.watch(60)
        assert scene.watcher.lapsed() == []


def test_a_new_epoch_is_another_lease(scene: Scene):
    scene.watch(90)
    scene.leases = [Lease("w1", 2, 0)]
    scene.watch(90)
    assert scene.watcher.lapsed() == []


def test_each_lease_has_its_own_time(scene: Scene):
    scene.watch(60)
    scene.leases.append(Lease("w2", 1, 0))
    scene.watch(60)
    assert scene.watcher.lapsed() == [Lease("w1", 1, 0)]
    scene.leases = [Lease("w2", 1, 0)]
    scene.watch(60)
    assert scene.watcher.lapsed() == [Lease("w2", 1, 0)]


def test_a_gap_in_looking_begins_anew(scene: Scene):
    scene.watch(90)
    scene.now_seconds += GAP_SECONDS + 1
    scene.watch(90)
    assert scene.watcher.lapsed() == []
    scene.watch(20)
    assert len(scene.watcher.lapsed()) == 1


def test_an_outage_of_the_database_counts_as_not_having_looked(scene: Scene):
    scene.watch(90)
    scene.down = True
    for _ in range(5):
        scene.now_seconds += 10
        with pytest.raises(ConnectionError):
            scene.watcher.observe()
    scene.down = False
    scene.watch(90)
    assert scene.watcher.lapsed() == []


def test_a_look_that_took_long_counts_from_where_it_is_sure(scene: Scene):
    """Seen from the end of the first look to the beginning of the last one."""
    scene.look_seconds = 25
    scene.watcher.observe()
    for _ in range(3):
        scene.now_seconds += 5
        scene.watcher.observe()
    assert scene.watcher.lapsed() == []
    scene.now_seconds += 5
    scene.watcher.observe()
    assert scene.watcher.lapsed() == [], "unrenewed for 95 s as this look began, and that it ended later proves nothing"
    scene.now_seconds += 5
    scene.watcher.observe()
    assert len(scene.watcher.lapsed()) == 1


def test_a_lease_that_is_gone_is_forgotten(scene: Scene):
    scene.watch(90)
    scene.leases = []
    scene.watch(10)
    scene.leases = [Lease("w1", 1, 0)]
    scene.watch(90)
    assert scene.watcher.lapsed() == []
