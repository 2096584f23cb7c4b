"""Which services of the control plane answer a command that shows no password: found by dialling from a sandbox."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sandloom.execution.probe import ProbeRequest, scratch_sandbox
from sandloom.execution.process import Spawner
from sandloom.execution.runner import Runner
from sandloom.execution.spec import Network, Plan, Reason

PROGRAM = Path(__file__).with_name("dialler.py")
_TIMEOUT_SECONDS = 20


@dataclass(frozen=True, slots=True)
class Answer:
    """``answer``: ``open`` (to anyone), ``guarded`` (asks who it is) or ``closed``. ``remedy``: what helps if open."""

    name: str
    address: str
    answer: str
    said: str
    remedy: str


@dataclass(frozen=True, slots=True)
class DialReport:
    """``dialled_from``: ``sandbox``; ``worker`` where a sandbox finds no python3, whose network is the same; empty when
    nothing was dialled, because commands have no network but their own."""

    dialled_from: str = ""
    answers: tuple[Answer, ...] = ()

    @property
    def problems(self) -> list[str]:
        """A line for each service that is open, with its remedy."""
        found: dict[tuple[str, str], list[str]] = {}
        for answer in self.answers:
            if answer.answer == "open":
                place = f"{answer.address} ({answer.said})"
                found.setdefault((answer.name, answer.remedy), []).append(place)
        return [
            f"{name} answers commands in a sandbox without authentication at {', '.join(places)}: {remedy}"
            for (name, remedy), places in found.items()
        ]

    def to_dict(self) -> dict[str, Any]:
        """By name; addresses are left out, since this is shown to whoever asks for the health."""
        found: dict[str, list[str]] = {"open": [], "guarded": [], "closed": []}
        for answer in self.answers:
            found[answer.answer].append(answer.name)
        return {"dialled_from": self.dialled_from or None, **{how: sorted(set(names)) for how, names in found.items()}}


def dial(request: ProbeRequest, plan: Plan, spawner: Spawner, targets: Sequence[Mapping[str, Any]]) -> DialReport:
    """Dial each target, as ``settings.control_plane`` lists them, from a sandbox with ``plan``."""
    if plan.network is not Network.HOST:
        return DialReport()
    resolved = [found for target in targets for found in _resolved(target)]
    words = ("-I", "-c", PROGRAM.read_text(encoding="utf-8"), json.dumps(resolved))
    place, said = "sandbox", _inside(request, plan, spawner, words)
    if said is None:
        place, said = "worker", _outside(words)
    return DialReport(place, tuple(_answer(*pair) for pair in zip(resolved, said, strict=True)))


def _inside(request: ProbeRequest, plan: Plan, spawner: Spawner, words: Sequence[str]) -> list[list[str]] | None:
    output: list[bytes] = []
    with scratch_sandbox(request, plan) as template:
        spec = replace(template, argv=("python3", *words), timeout_seconds=_TIMEOUT_SECONDS)
        verdict = (
            Runner(spawner).start(spec, lambda name, chunk: output.append(chunk) if name == "stdout" else None).wait()
        )
    if verdict.reason is not Reason.EXIT or verdict.exit_code != 0:
        return None
    return json.loads(b"".join(output))  # type: ignore[no-any-return]


def _outside(words: Sequence[str]) -> list[list[str]]:
    done = subprocess.run([sys.executable, *words], capture_output=True, timeout=_TIMEOUT_SECONDS, check=True)
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def _resolved(target: Mapping[str, Any]) -> list[dict[str, Any]]:
    """By address: a command needs no resolver. A name that means nothing here is dialled by nobody."""
    if target.get("socket"):
        return [dict(target)]
    try:
        found = socket.getaddrinfo(target["host"], target["port"], type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return []
    hosts = dict.fromkeys(str(address[4][0]) for address in found)
    return [{**target, "host": host} for host in list(hosts)[:4]]


def _answer(target: Mapping[str, Any], answer: Sequence[str]) -> Answer:
    place = target.get("socket") or f"{target['host']}:{target['port']}"
    return Answer(target["name"], place, answer[0], answer[1], target["remedy"])
