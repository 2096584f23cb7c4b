"""The short form of ``make chaos``: every fault once."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.chaos.fleet import Servers
from tests.chaos.run import Plan, chaos
from tests.services.need import in_ci
from tests.services.postgres import PostgresServer
from tests.services.rclone import S3Server
from tests.services.redis import RedisServer

pytestmark = [pytest.mark.bwrap, pytest.mark.slow, pytest.mark.root, pytest.mark.timeout(900)]


def test_every_promise_is_kept_while_every_fault_strikes(
    private_postgres: PostgresServer,
    private_redis: RedisServer,
    s3: S3Server,
    data_dir: Path,
    pytestconfig: pytest.Config,
) -> None:
    seed = pytestconfig.getoption("--seed")
    if seed is None:
        seed = 1 if in_ci() else random.randrange(1 << 32)
    plan = Plan(seed, commands=100, strikes=1, callers=4)
    print(f"seed {plan.seed}")
    report = chaos(plan, Servers(private_postgres, private_redis, s3), data_dir)
    print(report)
    assert not report.faults, f"seed {plan.seed}"
    assert len(report.strikes) == 11
