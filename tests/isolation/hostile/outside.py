"""Whom the programs attack, on the host or in another sandbox: ``python3 -m hostile.outside DIRECTORY``.

It has what a worker has (a secret in its environment, sockets, queues, memory that others could attach) and, twenty
times a second, opens a system file that it also holds a lock on. Its first line of output is JSON: where all that is.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import secrets
import signal
import socket
import sys
import threading
import time

from .linux import call, libc
from .program import MARK

SYSTEM_FILE = "/usr/lib/os-release"


def main(directory: str) -> None:
    os.umask(0)
    name = f"hostile-{secrets.token_hex(6)}"
    files = share_files(directory, name)
    services = [serve(socket.AF_UNIX, "\0" + name), serve(socket.AF_UNIX, f"{directory}/{name}.socket")]
    services.append(serve(socket.AF_INET, ("127.0.0.1", 0)))
    key, segment = share_memory()
    libc.mq_open.restype = ctypes.c_int
    call("mq_open", f"/{name}".encode(), os.O_CREAT | os.O_RDWR, 0o666, None)
    memory = ctypes.create_string_buffer(MARK.encode(), 64)
    locked = os.open(SYSTEM_FILE, os.O_RDONLY)
    fcntl.flock(locked, fcntl.LOCK_SH)
    facts = {
        "abstract_name": name, "socket_path": f"{directory}/{name}.socket", "port": services[2].getsockname()[1],
        "queue": f"/{name}", "shm_key": key, "shared_name": name, "locked_file": SYSTEM_FILE,
        "watched_file": SYSTEM_FILE, "host_address": ctypes.addressof(memory),
    }  # fmt: skip
    print(json.dumps(facts), flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    try:
        while True:
            os.close(os.open(SYSTEM_FILE, os.O_RDONLY))
            time.sleep(0.05)
    finally:
        for path in (*files, f"{directory}/{name}.socket"):
            os.unlink(path)
        call("mq_unlink", f"/{name}".encode())
        call("shmctl", segment, 0, None)


def share_files(directory: str, name: str) -> list[str]:
    paths = [f"{base}/{name}" for base in (directory, "/dev/shm", "/tmp")]
    for path in paths:
        with open(path, "w") as stream:
            stream.write(f"{MARK} {secrets.token_hex(8)}\n")
    return paths


def share_memory() -> tuple[int, int]:
    key = secrets.randbelow(1 << 30) + 1
    segment = call("shmget", key, 4096, 0o1666)
    libc.shmat.restype = ctypes.c_void_p
    ctypes.memmove(libc.shmat(segment, None, 0), MARK.encode(), len(MARK))
    return key, segment


def serve(family: int, address: object) -> socket.socket:
    server = socket.socket(family)
    server.bind(address)  # type: ignore[arg-type]
    server.listen()

    def answer() -> None:
        while True:
            peer, _ = server.accept()
            peer.sendall(MARK.encode())
            peer.close()

    threading.Thread(target=answer, daemon=True).start()
    return server


main(sys.argv[1])
