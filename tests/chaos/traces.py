"""Readers that come, drop and come back at random while what they read through is killed: all see the same."""

from __future__ import annotations

import hashlib
import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx

from api.event_log import event_data
from sandloom.errors import SandloomError
from sandloom.execs.states import TERMINAL
from sandloom.ids import ExecKey
from sandloom.sdk.events import frames
from tests.chaos.faults import QUICK
from tests.chaos.fleet import TOKEN, ChaosFleet, eventually

FAULTS = ("API killed", "worker killed", "Redis emptied", "PostgreSQL restarted", "commit answer dropped")
LANES = 3
LONGEST_SECONDS = 3000
_MOST_AT_ONCE = 200
_PAUSE_SECONDS = 0.2
_END_SECONDS = 180
#: Each line is an event; now and then output comes in between.
_COMMAND = """
import os, time
trace = open(os.environ["SANDLOOM_TRACE"], "a")
for number in range(400):
    print('{"number":%d}' % number, file=trace, flush=True)
    if number % 9 == 0:
        print("größe", number, flush=True)
    time.sleep(0.01)
"""

Entry = tuple[int, str, Any]


class Trace:
    """What one reader saw of one command, or what the rows say: as a count and a digest."""

    def __init__(self) -> None:
        self.seq = 0
        self.ends = 0
        self.last: tuple[str, Any] = ("", None)
        self._digest = hashlib.sha256()

    def add(self, entry: Entry) -> None:
        seq, kind, data = entry
        assert seq == self.seq + 1, f"{seq} came after {self.seq}"
        assert self.ends == 0, f"{kind} came after the end"
        self.seq, self.last = seq, (kind, data)
        self.ends += kind == "status" and data["status"] in TERMINAL
        self._digest.update(json.dumps([seq, kind, data], sort_keys=True).encode())

    @property
    def sum(self) -> tuple[int, int, str]:
        return self.seq, self.ends, self._digest.hexdigest()


@dataclass
class Book:
    """The commands that were accepted, and what went wrong."""

    keys: list[ExecKey] = field(default_factory=list)
    events: int = 0
    faults: list[str] = field(default_factory=list)
    resumed: int = 0
    closed: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)


class Reader(threading.Thread):
    """Follows every command, one after the other, in all forms and through all replicas."""

    def __init__(self, fleet: ChaosFleet, book: Book, number: int, rng: random.Random) -> None:
        super().__init__(name=f"reader-{number}", daemon=True)
        self._book = book
        self._rng = rng
        self._ports = fleet.ports
        self.traces: dict[ExecKey, Trace] = {}

    def run(self) -> None:
        try:
            while True:
                closed = self._book.closed.is_set()
                left = [key for key in list(self._book.keys) if key not in self.traces]
                if left:
                    self._follow(self._rng.choice(left))
                elif closed:
                    return
                else:
                    self._book.closed.wait(_PAUSE_SECONDS)
        except BaseException as error:
            self._book.faults.append(f"{self.name} ended: {error!r}")

    def _follow(self, key: ExecKey) -> None:
        trace = self.traces[key] = Trace()
        until = time.monotonic() + LONGEST_SECONDS
        forms: list[Callable[[httpx.Client, str, Trace], bool]] = [self._stream, self._stream, self._poll]
        while time.monotonic() < until:
            url = f"http://127.0.0.1:{self._rng.choice(self._ports)}"
            headers = {"Authorization": f"Bearer {TOKEN}"}
            path = f"/api/v1/sandboxes/{key.sandbox_id}/exec/{key.exec_id}/events"
            try:
                with httpx.Client(base_url=url, headers=headers, trust_env=False, timeout=30) as http:
                    if self._rng.choice(forms)(http, path, trace):
                        return
            except (httpx.HTTPError, _Away):
                time.sleep(_PAUSE_SECONDS)
            with self._book.lock:
                self._book.resumed += 1
        raise AssertionError(f"{key.exec_id} did not end after {trace.seq}")

    def _stream(self, http: httpx.Client, path: str, trace: Trace) -> bool:
        """Some of it; whether it ended."""
        form = self._rng.choice(["text/event-stream", "application/x-ndjson"])
        headers = {"Accept": form}
        params = {}
        if self._rng.random() < 0.5:
            headers["Last-Event-ID"] = str(trace.seq)
        else:
            params["after"] = str(trace.seq)
        left = self._rng.randint(1, _MOST_AT_ONCE)
        with http.stream("GET", path, headers=headers, params=params) as response:
            if _is_over(response, trace):
                return True
            for entry in _sse(response) if form.endswith("stream") else _ndjson(response):
                if entry is None:
                    return True
                trace.add(entry)
                left -= 1
                if left == 0:
                    break
        return False

    def _poll(self, http: httpx.Client, path: str, trace: Trace) -> bool:
        response = http.get(path, params={"after": str(trace.seq), "wait": str(self._rng.choice([0, 2]))})
        if _is_over(response, trace):
            return True
        answer = response.json()
        for entry in answer["events"]:
            trace.add((entry["id"], entry["event"], entry["data"]))
        assert answer["next"] == trace.seq
        return bool(answer["ended"])


class _Away(Exception):
    """A replica that cannot answer at the moment."""


def _is_over(response: httpx.Response, trace: Trace) -> bool:
    if response.status_code == 204:
        assert trace.ends == 1, "told that it is over before the end came"
        return True
    if response.status_code in (502, 503, 504):
        raise _Away
    assert response.status_code == 200, f"{response.status_code} at {trace.seq}"
    return False


def _sse(response: httpx.Response) -> Iterator[Entry | None]:
    for frame in frames(response.iter_bytes()):
        data = json.loads(frame.data)
        yield None if frame.event == "end" else (int(frame.id or 0), frame.event, data)


def _ndjson(response: httpx.Response) -> Iterator[Entry | None]:
    rest = b""
    for chunk in response.iter_bytes():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in filter(None, lines):
            entry = json.loads(line)
            yield None if entry["event"] == "end" else (entry["id"], entry["event"], entry["data"])


def run(fleet: ChaosFleet, seed: int, events: int, readers: int, strikes: int) -> Book:
    """Until ``events`` are stored, each fault struck ``strikes`` times and every reader has seen everything."""
    rng = random.Random(seed)
    book = Book()
    threads = [Reader(fleet, book, number, random.Random(rng.random())) for number in range(readers)]
    striking = threading.Thread(target=_strike, args=(fleet, book, random.Random(rng.random()), strikes), daemon=True)
    lanes = [
        threading.Thread(target=_load, args=(fleet, book, lane, events, striking), daemon=True) for lane in range(LANES)
    ]
    for thread in (*threads, striking, *lanes):
        thread.start()
    for thread in (striking, *lanes):
        thread.join(LONGEST_SECONDS)
    print(f"  {book.events:6} events; the load ends", flush=True)
    book.closed.set()
    for reader in threads:
        reader.join(LONGEST_SECONDS)
        if reader.is_alive():
            book.faults.append(f"{reader.name} has not seen everything")
    for key in book.keys:
        stored = _stored(fleet, key)
        if stored.ends != 1:
            book.faults.append(f"{key.exec_id} has {stored.ends} ends")
        for reader in threads:
            seen = reader.traces.get(key)
            if seen is None or seen.sum != stored.sum:
                book.faults.append(f"{reader.name} saw {seen and seen.sum} of {key.exec_id}, which is {stored.sum}")
    return book


def _load(fleet: ChaosFleet, book: Book, lane: int, events: int, striking: threading.Thread) -> None:
    number = 0
    while (book.events < events or striking.is_alive()) and not book.faults:
        number += 1
        name = f"trace-{lane}-{number}"
        try:
            box = fleet.clients[number % len(fleet.clients)].sandbox(name, scope="traces", keep=True)
            box.start(["python3", "-c", _COMMAND], exec_id=name, scope="traces", timeout=60)
        except (SandloomError, OSError):
            time.sleep(_PAUSE_SECONDS)
            continue
        key = ExecKey("default", name, name)
        with book.lock:
            book.keys.append(key)
        try:
            eventually(lambda key=key: fleet.execs.get(key).terminal, _END_SECONDS)  # type: ignore[misc]
        except AssertionError:
            book.faults.append(f"{name} did not end")
            return
        with book.lock:
            book.events += _stored(fleet, key).seq


def _strike(fleet: ChaosFleet, book: Book, rng: random.Random, strikes: int) -> None:
    order = list(FAULTS) * strikes
    rng.shuffle(order)
    for name in order:
        time.sleep(rng.uniform(0.5, 3.0))
        try:
            print(f"  {book.events:6} events; {name} {QUICK[name](fleet, rng)}", flush=True)
        except Exception as error:
            book.faults.append(f"{name}: {error}"[:2000])
            return


def _stored(fleet: ChaosFleet, key: ExecKey) -> Trace:
    found: list[Trace] = []

    def read() -> bool:
        trace = Trace()
        while page := fleet.execs.events(key, trace.seq).events:
            for event in page:
                trace.add((event.seq, event.kind, event_data(event)))
        found.append(trace)
        return True

    eventually(read)
    return found[-1]
