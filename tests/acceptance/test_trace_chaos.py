"""Every reader sees every event once and in order, whatever is killed.

``--long --events 10000 --readers 50`` is the whole form.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.chaos import traces
from tests.chaos.fleet import ChaosFleet, Servers
from tests.services.postgres import PostgresServer
from tests.services.rclone import S3Server
from tests.services.redis import RedisServer

pytestmark = [pytest.mark.bwrap, pytest.mark.slow, pytest.mark.root, pytest.mark.long, pytest.mark.timeout(3600)]


def test_all_readers_see_the_same_dense_sequence_through_every_restart(
    private_postgres: PostgresServer,
    private_redis: RedisServer,
    s3: S3Server,
    data_dir: Path,
    pytestconfig: pytest.Config,
) -> None:
    seed = pytestconfig.getoption("--seed")
    seed = random.randrange(1 << 32) if seed is None else seed
    events, readers = pytestconfig.getoption("--events"), pytestconfig.getoption("--readers")
    print(f"seed {seed}")
    fleet = ChaosFleet(Servers(private_postgres, private_redis, s3), data_dir)
    try:
        fleet.wait_started()
        book = traces.run(fleet, seed, events, readers, strikes=max(1, events // 5000))
    finally:
        fleet.close()
    print(f"{book.events} events of {len(book.keys)} commands, taken up again {book.resumed} times")
    assert not book.faults, f"seed {seed}: {book.faults[:20]}"
    assert book.events >= events
    assert book.resumed > readers
