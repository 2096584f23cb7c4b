"""Builds without one of the conditions that the fleet's promises rest on. Each is a copy of the code with a small
patch; the product itself knows nothing of them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.services.process import ROOT

PACKAGES = ("sandloom", "api", "workers", "migrations")


@dataclass(frozen=True)
class Patch:
    """``old`` stands in the file ``times`` times; each time ``new`` takes its place."""

    file: str
    old: str
    new: str
    times: int = 1


@dataclass(frozen=True)
class Mutant:
    """``faults`` are enough to show it."""

    what: str
    patches: tuple[Patch, ...]
    faults: tuple[str, ...]
    commands: int = 300
    strikes: int = 2


MUTANTS = {
    "claim": Mutant(
        "a claim does not ask whether the command still waits",
        (
            Patch(
                "sandloom/execs/statements.py",
                "        _IS_KEY,\n        _e.status == ExecStatus.QUEUED,\n        _e.generation == _GENERATION,",
                "        _IS_KEY,\n        _e.generation == _GENERATION,",
            ),
        ),
        ("Redis emptied", "worker killed"),
    ),
    "epoch": Mutant(
        "an earlier life of a worker counts as the present one",
        (
            Patch(
                "sandloom/execs/statements.py", 'bindparam("of_epoch")',
                'bindparam("of_epoch", type_=_e.worker_epoch.type)',
            ),
            Patch("sandloom/execs/statements.py", "_e.worker_epoch == _EPOCH", "_EPOCH > 0", times=3),
            Patch("sandloom/execs/statements.py", "_s.worker_epoch == _EPOCH", "_EPOCH > 0", times=2),
            Patch(
                "sandloom/sandboxes/statements.py", '_s.worker_epoch == bindparam("of_epoch")',
                'bindparam("of_epoch", type_=_s.worker_epoch.type) > 0',
            ),
            Patch(
                "sandloom/fleet/service.py", '_w.epoch == bindparam("of_epoch")',
                'bindparam("of_epoch", type_=_w.epoch.type) > 0',
            ),
            Patch("workers/identity.py", " and route.worker_epoch == self.epoch", ""),
        ),
        ("worker replaced",),
        strikes=1,
    ),
    "self-fence": Mutant(
        "a spawner lets commands run on when the lease has lapsed",
        (
            Patch("sandloom/execution/spawner/server.py", "lapsed = self._lease_lapsed()", "lapsed = False"),
        ),
        ("worker cut off", "worker stopped"),
    ),
    "re-read": Mutant(
        "a worker takes a commit whose answer is lost for one that did not happen",
        (
            Patch("workers/ledger.py", "in_doubt = True", "in_doubt = False", times=2),
            Patch("workers/ledger.py", "doubts.append(doubt)", "pass"),
        ),
        ("commit answer dropped",),
        strikes=12,
    ),
}  # fmt: skip


@contextmanager
def mutated(mutant: Mutant, directory: Path) -> Iterator[Path]:
    """A copy of what the servers run, patched."""
    tree = directory / "mutant"
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tree / package, ignore=shutil.ignore_patterns("__pycache__"))
    try:
        for patch in mutant.patches:
            path = tree / patch.file
            text = path.read_text()
            assert text.count(patch.old) == patch.times, f"{patch.file} no longer holds {patch.old!r}"
            path.write_text(text.replace(patch.old, patch.new))
        yield tree
    finally:
        shutil.rmtree(tree)
