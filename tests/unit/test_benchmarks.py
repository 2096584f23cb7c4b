"""How measurements are compared: the numbers a benchmark prints must not depend on luck or hide a failure."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from benchmarks import floor_process
from benchmarks.burst import Burst, alternate, quantile, ratio, run_burst


def per_second(found: Burst) -> float:
    return found.per_second


def test_the_ratio_is_the_median_of_the_pairs_within_its_interval():
    pairs = [(Burst([1.0], 2.0 * (1 + n / 10), 0), Burst([1.0], 1.0, 0)) for n in range(-5, 6)]
    found = ratio(pairs, lambda b: b.wall_seconds)
    assert found.median == pytest.approx(2.0)
    assert 1.0 <= found.low < found.median < found.high <= 3.0
    assert ratio(pairs, lambda b: b.wall_seconds) == found


def test_pairs_of_equal_ratios_have_no_interval():
    pairs = [(Burst([1.0] * 3, n, 0), Burst([1.0] * 6, n, 0)) for n in (1.0, 5.0, 9.0)]
    assert (ratio(pairs, per_second).low, ratio(pairs, per_second).high) == (0.5, 0.5)


def test_quantiles_are_values_that_were_measured():
    assert (quantile([3.0, 1.0, 2.0], 0.5), quantile([3.0, 1.0, 2.0], 0.95), quantile([1.0], 0)) == (2.0, 3.0, 1.0)


def test_each_side_goes_first_in_every_other_pair():
    order = []

    class Side:
        def __init__(self, name: str) -> None:
            self.name = name

        def burst(self, count: int, at_once: int) -> Burst:
            order.append((self.name, count, at_once))
            return Burst([1.0], 1.0, 1.0)

    pairs = alternate(Side("ours"), Side("floor"), 2, 10, at_once=8, floor_at_once=4)
    assert len(pairs) == 2
    assert order == [("ours", 8, 8), ("floor", 10, 4), ("ours", 10, 8), ("ours", 10, 8), ("floor", 10, 4)]


def test_a_burst_runs_each_command_once_and_never_more_lanes_than_wanted():
    lanes: list[int] = []
    found = run_burst(lanes.append, 50, 4, lambda: 7.0)
    assert (found.count, len(lanes), set(lanes) <= {0, 1, 2, 3}, found.cpu_seconds) == (50, 50, True, 0.0)


def floor_of(program: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own: it waits for every child that it has."""
    argv = [sys.executable, "-I", "-S", floor_process.__file__, program]
    return subprocess.run(argv, input="9 4\n", capture_output=True, text=True, check=False)


def test_a_failing_command_ends_the_run():
    def fail(_: int) -> None:
        raise SystemExit("a command failed")

    with pytest.raises(SystemExit, match="a command failed"):
        run_burst(fail, 5, 2, lambda: 0.0)
    floor = floor_of("/bin/false")
    assert floor.returncode == 1
    assert "the floor failed" in floor.stderr


def test_the_floor_counts_what_it_starts():
    found = Burst(**json.loads(floor_of("/bin/true").stdout))
    assert found.count == 9
    assert found.cpu_seconds > 0
