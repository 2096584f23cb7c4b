"""What stands in a journal after whatever ended its process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from sandloom.batch.journal import Journal
from sandloom.batch.plan import Begun, Ended
from sandloom.batch.retries import Outcome
from sandloom.errors import BatchInvalid

RESULT = {"status": "FAILED", "reason": "exit", "error": None, "stdout": "ü\x00\n"}
Open = Callable[..., Journal]


@pytest.fixture
def opened(tmp_path: Path) -> Open:
    def make(resume: bool = True, jobs_digest: str = "d", new_batch: str = "b1") -> Journal:
        return Journal.open(tmp_path / "journal", jobs_digest=jobs_digest, new_batch=new_batch, resume=resume)

    return make


def fill(journal: Journal) -> None:
    journal.begun("a", 1, "box-a")
    journal.opened("box-k", 3)
    journal.begun("b", 1, "box-b")
    journal.ended("a", 1, RESULT)
    journal.released("box-a")
    journal.begun("a", 2, "box-a2")
    journal.close()


def test_another_run_reads_what_was_written(opened: Open) -> None:
    fill(opened(resume=False))
    journal = opened(new_batch="b2")
    history = journal.history()
    assert journal.batch == "b1"
    assert history.entries == [
        Begun("a", 1), Begun("b", 1), Ended("a", 1, Outcome("FAILED", "exit")), Begun("a", 2)
    ]  # fmt: skip
    assert history.sandboxes == {"box-b": Begun("b", 1), "box-a2": Begun("a", 2)}
    assert history.generations == {"box-k": 3}
    assert list(journal.results()) == [("a", 1, RESULT)]
    journal.close()


def test_cut_off_anywhere_it_holds_every_whole_entry(opened: Open, tmp_path: Path) -> None:
    fill(opened())
    path = tmp_path / "journal"
    whole = path.read_bytes()
    header = whole.index(b"\n") + 1
    for size in {*range(0, len(whole), 11), header - 1, header, len(whole) - 1, len(whole)}:
        path.write_bytes(whole[:size])
        journal = opened(new_batch="b2")
        assert journal.batch == ("b2" if size < header else "b1")
        before = len(journal.history().entries)
        journal.begun("z", 1, "box-z")
        journal.close()
        journal = opened()
        assert len(journal.history().entries) == before + 1
        journal.close()


def test_it_is_for_one_process_at_a_time_and_for_its_jobs_only(opened: Open, tmp_path: Path) -> None:
    journal = opened()
    with pytest.raises(BatchInvalid, match="another process runs this batch"):
        opened()
    journal.close()
    with pytest.raises(BatchInvalid, match="--resume"):
        opened(resume=False)
    with pytest.raises(BatchInvalid, match=r"has changed.* --scope back .* another --out, or delete it"):
        opened(jobs_digest="other")
    with pytest.raises(BatchInvalid, match=r"nowhere.journal cannot be written: No such file or directory"):
        Journal.open(tmp_path / "nowhere" / "journal", jobs_digest="d", new_batch="b", resume=True)


@pytest.mark.parametrize("line", [b"nonsense\n", b"[]\n", b'{"begun": "a"}\n', b'{"ended": "a", "attempt": 1}\n'])
def test_damage_is_told_and_not_guessed_around(opened: Open, tmp_path: Path, line: bytes) -> None:
    fill(opened())
    path = tmp_path / "journal"
    path.write_bytes(path.read_bytes() + line)
    journal = opened()
    with pytest.raises(BatchInvalid, match="is damaged"):
        journal.history()
    journal.close()


def test_threads_write_whole_entries(opened: Open) -> None:
    journal = opened()

    def write(name: str) -> None:
        for number in range(20):
            journal.begun(f"{name}-{number}", 1, "x" * 500)

    threads = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {entry.job for entry in journal.history().entries} == {f"{name}-{n}" for name in "abcd" for n in range(20)}
    journal.close()
