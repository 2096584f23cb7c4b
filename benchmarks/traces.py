"""``python -m benchmarks.traces``: what following a command costs. It wants a quiet machine.

``far``: how much longer a run of 400 chunks takes than one of a single chunk, with a database at a distance and with
one beside the worker. ``cpu``: the worker's CPU per MiB, with a reader and without. ``idle``: one API process with
1,000 quiet streams and 50 busy ones.
"""

from __future__ import annotations

import argparse
import contextlib
import resource
import socket
import statistics
import threading
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

from rich.console import Console
from rich.table import Table

from benchmarks.burst import quantile
from benchmarks.cpu import cpu_seconds, memory_bytes
from benchmarks.delaying_proxy import DelayingProxy
from benchmarks.held import Sleeper
from benchmarks.service import Service, fleet
from benchmarks.wire import Connection
from benchmarks.workloads import Box

DELAY_SECONDS, JITTER_SECONDS = 0.115, 0.005
CHUNKS = 400
ROUNDS = 15
MIB = 1 << 20
OUTPUT_MIB = 6
IDLE, ACTIVE, CALLS = 1000, 50, 200
CONSOLE = Console(width=120)
_CHUNK = (
    "import sys, time\nfor n in range({}):\n sys.stdout.write('chunk %d\\n' % n); sys.stdout.flush(); time.sleep(0.001)"
)
_MUCH = f"import sys\nfor _ in range({OUTPUT_MIB} * 64):\n sys.stdout.write('x' * 16384); sys.stdout.flush()"
_TALKS = "import time\nwhile True:\n print('still here', flush=True); time.sleep(0.5)"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.traces")
    parser.add_argument("--only", nargs="*", choices=["far", "cpu", "idle"], default=["far", "cpu", "idle"])
    wanted = parser.parse_args().only
    if "far" in wanted:
        far()
    if "cpu" in wanted:
        with fleet() as service:
            cpu(service)
    if "idle" in wanted:
        # A socket for each stream, here and in the API.
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        with fleet({"SANDBOX_MAX_STREAMS": str(IDLE + ACTIVE + 50)}) as service:
            idle(service)


def far() -> None:
    proxies: list[DelayingProxy] = []

    def through(port: int) -> int:
        proxies.append(DelayingProxy(port, DELAY_SECONDS, JITTER_SECONDS))
        return proxies[-1].port

    with fleet() as service:
        near_ms = chunks_cost_ms(service)
    with fleet(worker_database=through) as service:
        far_ms = chunks_cost_ms(service)
    for proxy in proxies:
        proxy.close()
    table = Table("database", f"{CHUNKS} chunks less 1, ms", title="the worker's distance to PostgreSQL")
    table.add_row("beside the worker", f"{near_ms:.0f}")
    table.add_row(f"{1e3 * DELAY_SECONDS:.0f} ms away", f"{far_ms:.0f}")
    table.add_row("grows by", f"{far_ms - near_ms:.0f}")
    CONSOLE.print(table)


def chunks_cost_ms(service: Service) -> float:
    """Median of the differences of pairs, each side first in every other one."""
    connection = Connection(service.url, service.token)
    box = Box(connection, "chunks")

    def seconds(chunks: int) -> float:
        began = time.perf_counter()
        box.run(["python3", "-c", _CHUNK.format(chunks)])
        return time.perf_counter() - began

    for chunks in (1, CHUNKS):
        seconds(chunks)
    found = []
    for number in range(ROUNDS):
        order = (1, CHUNKS) if number % 2 else (CHUNKS, 1)
        took = {chunks: seconds(chunks) for chunks in order}
        found.append(1e3 * (took[CHUNKS] - took[1]))
    connection.close()
    return statistics.median(found)


def cpu(service: Service) -> None:
    connection = Connection(service.url, service.token)
    box = Box(connection, "cpu")
    box.run(["python3", "-c", _MUCH])
    found: dict[bool, list[float]] = {True: [], False: []}
    for number in range(ROUNDS):
        for read in (True, False) if number % 2 else (False, True):
            before = cpu_seconds([service.parts["worker"]])
            run_with(service, connection, box, f"much-{number}-{read}", read=read)
            found[read].append(1e3 * (cpu_seconds([service.parts["worker"]]) - before) / OUTPUT_MIB)
    connection.close()
    ratios = [read / stored for read, stored in zip(found[True], found[False], strict=True)]
    table = Table("output", "worker's CPU ms per MiB", title=f"{OUTPUT_MIB} MiB in chunks of 16 KiB")
    table.add_row("stored", f"{statistics.median(found[False]):.1f}")
    table.add_row("stored and followed", f"{statistics.median(found[True]):.1f}")
    table.add_row("ratio, median of pairs", f"{statistics.median(ratios):.2f}")
    CONSOLE.print(table)


def run_with(service: Service, connection: Connection, box: Box, name: str, *, read: bool) -> None:
    body = {"generation": box.generation, "exec_id": name, "exec_scope": name, "background": True}
    connection.call("POST", f"{box.path}/exec", {**body, "argv": ["python3", "-c", _MUCH]})
    if read:
        with _stream(service, f"{box.path}/exec/{name}") as stream:
            while stream.recv(MIB):
                pass
    status = connection.call("GET", f"{box.path}/exec/{name}?wait=60")["status"]
    if status != "SUCCEEDED":
        raise SystemExit(f"a command is {status}")


def idle(service: Service) -> None:
    connection = Connection(service.url, service.token)
    quiet = Box(connection, "quiet")
    sleeper = Sleeper(connection, quiet)
    sleeper.await_running()
    (name,) = (entry["exec_id"] for entry in connection.call("GET", f"{quiet.path}/exec")["execs"])
    talking = Box(connection, "talking")
    body = {"generation": talking.generation, "exec_id": "talks", "exec_scope": "talks", "background": True}
    connection.call("POST", f"{talking.path}/exec", {**body, "argv": ["python3", "-c", _TALKS]})
    alone = calls_ms(connection, quiet)
    with contextlib.ExitStack() as streams:
        for number in range(IDLE + ACTIVE):
            path = f"{talking.path}/exec/talks" if number >= IDLE else f"{quiet.path}/exec/{name}"
            stream = streams.enter_context(_stream(service, path))
            if number >= IDLE:
                threading.Thread(target=_drain, args=(stream,), daemon=True).start()
        beside = calls_ms(connection, quiet)
        memory = memory_bytes([service.parts["api"]])
    table = Table("what", "alone", "beside", title=f"one API process with {IDLE} quiet and {ACTIVE} busy streams")
    for what, at in (("a route, p50 ms", 0.5), ("a route, p95 ms", 0.95)):
        table.add_row(what, f"{quantile(alone, at):.1f}", f"{quantile(beside, at):.1f}")
    table.add_row("p95 : p95", "", f"{quantile(beside, 0.95) / quantile(alone, 0.95):.2f}")
    table.add_row("PSS of the API, with its master, MiB", "", f"{memory / MIB:.0f}")
    CONSOLE.print(table)
    sleeper.cancel()
    connection.close()


def calls_ms(connection: Connection, box: Box) -> list[float]:
    found = []
    for _ in range(CALLS):
        began = time.perf_counter()
        connection.call("GET", box.path)
        found.append(1e3 * (time.perf_counter() - began))
    return found


@contextlib.contextmanager
def _stream(service: Service, exec_path: str) -> Iterator[socket.socket]:
    """An open event stream whose first bytes have come."""
    parts = urlsplit(service.url)
    with socket.create_connection((parts.hostname, parts.port or 80), timeout=120) as stream:
        head = (
            f"GET /api/v1{exec_path}/events HTTP/1.1\r\nHost: {parts.netloc}\r\nAuthorization: Bearer {service.token}"
        )
        stream.sendall(f"{head}\r\nConnection: close\r\n\r\n".encode())
        if b" 200 " not in stream.recv(4096):
            raise SystemExit("a stream was refused")
        yield stream


def _drain(stream: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while stream.recv(65536):
            pass


if __name__ == "__main__":
    main()
