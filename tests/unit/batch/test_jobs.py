"""Lines become jobs, or problems with their line and field."""

from __future__ import annotations

import json
from graphlib import TopologicalSorter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandloom.batch.graph import check
from sandloom.batch.jobs import Job, parse
from sandloom.batch.jobs import Problem as Found


def line(**fields: object) -> bytes:
    return json.dumps(fields).encode() + b"\n"


def problems(*lines: bytes) -> list[str]:
    jobs, found = parse(lines)
    return [str(problem) for problem in [*found, *check(jobs)]]


def test_a_line_is_a_job_with_its_command_as_it_travels() -> None:
    (job,), found = parse(
        [
            line(
                id="a",
                argv=["true"],
                cwd="/workspace/d",
                env={"A": "1"},
                timeout_seconds=5,
                labels={"k": "v"},
                inputs={"in/x": "x.txt"},
                outputs=["/workspace/out", "out"],
                templates=["tools"],
                sandbox="k",
                depends_on=["b", "b"],
                retries=3,
                retry_on=["exit"],
                limits={"pids": 10},
            )
        ]
    )
    assert found == []
    assert job == Job(
        id="a",
        line=1,
        command={
            "argv": ["true"], "cwd": "/workspace/d", "env": {"A": "1"}, "timeout_seconds": 5, "labels": {"k": "v"},
            "limits": {"pids": 10},
        },
        templates=("tools",),
        inputs={"/workspace/in/x": "x.txt"},
        outputs=("/workspace/out",),
        sandbox="k",
        depends_on=("b",),
        retries=3,
        retry_on=frozenset({"exit"}),
    )  # fmt: skip


def test_a_script_goes_to_a_shell_and_blank_lines_are_left_out() -> None:
    (job,), found = parse([b"\n", line(id="a", script="echo $0 | cat"), b"  \n"])
    assert (job.command["argv"], job.line, found) == (["sh", "-c", "echo $0 | cat"], 2, [])


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"argv": ["true"]}, "id: Field required"),
        ({"id": "../x", "argv": ["true"]}, "id: String should match"),
        ({"id": "a\n", "argv": ["true"]}, "id: String should match"),
        ({"id": "a"}, "argv: give argv or script"),
        ({"id": "a", "argv": ["x"], "script": "y"}, "argv: give argv or script"),
        ({"id": "a", "script": ""}, "script: String should have at least 1"),
        ({"id": "a", "script": "a\x00b"}, "script.2: must not contain NUL"),
        ({"id": "a", "argv": [1]}, "argv.0: Input should be a valid string"),
        ({"id": "a", "argv": ["x"], "depend_on": []}, "depend_on: is not a field of a job; did you mean depends_on?"),
        ({"id": "a", "argv": ["x"], "exec_id": "x"}, "exec_id: is not a field of a job"),
        ({"id": "a", "argv": ["x"], "sensitive_env": {}}, "sensitive_env: is not a field of a job"),
        ({"id": "a", "argv": ["x"], "env": {"LD_PRELOAD": "x"}}, "env.LD_PRELOAD: the runtime owns this name"),
        ({"id": "a", "argv": ["x"], "cwd": "/etc"}, "cwd must be /workspace or below"),
        ({"id": "a", "argv": ["x"], "timeout_seconds": 0}, "timeout_seconds: Input should be greater"),
        ({"id": "a", "argv": ["x"], "inputs": {"../x": "y"}}, "inputs.../x.[key]: must lie below /workspace"),
        ({"id": "a", "argv": ["x"], "outputs": ["/etc/passwd"]}, "outputs.0: must lie below /workspace"),
        ({"id": "a", "argv": ["x"], "outputs": ["/workspace"]}, "outputs.0: must lie below /workspace"),
        ({"id": "a", "argv": ["x"], "templates": ["A"]}, "templates.0: String should match"),
        ({"id": "a", "argv": ["x"], "retries": -1}, "retries: Input should be greater"),
        ({"id": "a", "argv": ["x"], "retry_on": ["bad luck"]}, "must be one of cancelled"),
        ({"id": "a", "argv": ["x"], "labels": {str(n): "" for n in range(15)}}, "labels: at most 14"),
        ({"id": "a", "argv": ["x"], "depends_on": ["a"]}, "depends_on: a waits for itself, by a > a"),
        ({"id": "a", "argv": ["x"], "depends_on": ["b"]}, "depends_on: there is no job b"),
    ],
)
def test_a_bad_field_is_named_with_its_line(fields: dict[str, object], said: str) -> None:
    (problem,) = problems(b"\n", line(**fields))
    assert problem.startswith("line 2: ")
    assert said in problem


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"{", "is not JSON"),
        (b"[]", "is not a JSON object"),
        (b'{"id": "\xff"}', "is not UTF-8 at byte 8"),
        (b'{"id": "a", "id": "b", "argv": ["x"]}', "'id' is given twice"),
        (b"[" * 100_000, "is nested too deeply"),
        (b'{"id": ' + b"9" * 5000 + b"}", "is not JSON"),
        (b'{"id": "' + b"a" * (8 << 20) + b'"}', "is longer than"),
    ],
)
def test_a_line_that_is_no_job_is_named(raw: bytes, said: str) -> None:
    (problem,) = problems(line(id="fine", argv=["x"]), raw)
    assert problem.startswith("line 2: ")
    assert said in problem


def test_every_problem_is_found_at_once_and_no_value_is_told() -> None:
    found = problems(line(id="a", argv=["x"], env={"A": 7777}), b"no", line(id="b"))
    assert [problem.split(":")[0] for problem in found] == ["line 1", "line 2", "line 3"]
    assert "7777" not in found[0]


def test_ids_are_taken_once_and_circles_are_shown() -> None:
    assert problems(line(id="a", argv=["x"]), line(id="a", argv=["y"])) == ["line 2: id: a is the id of line 1, too"]
    circle = [line(id=a, argv=["x"], depends_on=[b]) for a, b in ("ab", "bc", "ca", "da")]
    assert problems(*circle) == ["line 1: depends_on: a waits for itself, by a > b > c > a"]


def test_each_circle_is_shown_at_its_own_job_and_not_at_those_that_wait_for_it() -> None:
    waits = {"a": "cb", "b": "a", "c": "d", "d": "ec", "e": "e", "f": "a", "0": "c"}
    lines = [line(id=name, argv=["x"], depends_on=[*others]) for name, others in waits.items()]
    assert sorted(problems(*lines)) == [
        "line 1: depends_on: a waits for itself, by a > b > a",
        "line 3: depends_on: c waits for itself, by c > d > c",
        "line 5: depends_on: e waits for itself, by e > e",
    ]


@given(st.lists(st.lists(st.integers(0, 7), max_size=3, unique=True), max_size=8))
def test_with_a_job_of_each_circle_taken_away_none_is_left(waits: list[list[int]]) -> None:
    jobs = [Job(str(n), n + 1, {}, depends_on=tuple(map(str, waits[n]))) for n in range(len(waits))]
    known = {job.id for job in jobs}
    shown = [each.message.split(", by ")[1].split(" > ") for each in check(jobs) if " by " in each.message]
    names = [name for circle in shown for name in circle[1:]]
    assert len(names) == len(set(names))
    by_id = {job.id: job for job in jobs}
    assert all(other in by_id[name].depends_on for circle in shown for name, other in pairwise(circle))
    left = {job.id: known.intersection(job.depends_on) - set(names) for job in jobs if job.id not in names}
    [*TopologicalSorter(left).static_order()]  # raises CycleError


def test_one_kind_of_problem_hides_no_other() -> None:
    found = problems(
        line(id="a", argv="x", depends_on=["b"]),
        b"{",
        line(id="b", script="x", depends_on=["a", "gone"], tmeout=1),
        line(id="b", argv=["x"]),
        line(id="c", argv=["x"], depends_on=["d"]),
        line(id="d", script="x", retries="many", env=[], depends_on=["c", "a"]),
        line(id=5, argv=["x"], depends_on=["gone"]),
    )
    assert [problem.split(": ")[:2] for problem in sorted(found)] == [
        ["line 1", "argv"],
        ["line 1", "depends_on"],
        ["line 2", found[1].split(": ")[1]],
        ["line 3", "depends_on"],
        ["line 3", "tmeout"],
        ["line 4", "id"],
        ["line 5", "depends_on"],
        ["line 6", "env"],
        ["line 6", "retries"],
        ["line 7", "id"],
    ]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
NAMES = st.sampled_from(["id", "argv", "script", "env", "inputs", "outputs", "depends_on", "retry_on", "limits", "x"])


@settings(max_examples=60)
@given(
    st.lists(st.binary(max_size=40) | st.dictionaries(NAMES, JSON, max_size=6).map(lambda v: json.dumps(v).encode()))
)
def test_whatever_stands_in_a_file_becomes_jobs_or_problems(lines: list[bytes]) -> None:
    jobs, found = parse(lines)
    assert all(isinstance(problem, Found) and 1 <= problem.line <= len(lines) for problem in found)
    filled = {number for number, each in enumerate(lines, 1) if each.strip()}
    assert {job.line for job in jobs} | {problem.line for problem in found} == filled
