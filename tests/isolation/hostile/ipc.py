"""Against what processes share: queues, memory segments, keys, sockets."""

from __future__ import annotations

import ctypes
import os
import socket

from .linux import call, libc
from .program import Facts, Held, found, program


@program("user")
def reads_a_message_queue(facts: Facts) -> str | None:
    """Open a POSIX message queue of the host that everybody may read."""
    libc.mq_open.restype = ctypes.c_int
    os.close(call("mq_open", facts["queue"].encode(), os.O_RDONLY))
    return "a queue of the host"


@program("user")
def attaches_shared_memory(facts: Facts) -> str | None:
    """Attach a System V segment of the host that everybody may read."""
    segment = call("shmget", facts["shm_key"], 0, 0)
    libc.shmat.restype = ctypes.c_void_p
    address = libc.shmat(segment, None, 0o10000)
    text = ctypes.string_at(address, 64).decode(errors="replace")
    libc.shmdt(ctypes.c_void_p(address))
    return found(text)


@program("user")
def finds_shared_memory_files(facts: Facts) -> str | None:
    """Read a file that others left in /dev/shm or /tmp for everybody."""
    for base in ("/dev/shm", "/tmp"):
        path = f"{base}/{facts['shared_name']}"
        if os.path.exists(path):
            with open(path) as stream:
                return found(stream.read())
    raise Held("neither file is there")


@program("user")
def connects_to_a_socket_file(facts: Facts) -> str | None:
    """Connect to a socket file of the host that everybody may write to."""
    _connect(facts["socket_path"])
    return "connected"


@program("user")
def connects_to_an_abstract_socket(facts: Facts) -> str | None:
    """Connect to an abstract socket of the host, with an own network."""
    _connect("\0" + facts["abstract_name"])
    return "connected"


@program("user", network="host", reaches="abstract sockets of the host, with `SANDBOX_NETWORK_MODE=host`")
def connects_to_an_abstract_socket_of_the_hosts_network(facts: Facts) -> str | None:
    """The same with the network of the host."""
    _connect("\0" + facts["abstract_name"])
    return "connected"


@program("user")
def takes_over_an_abstract_socket(facts: Facts) -> str | None:
    """Find, in the list of sockets, those of other sandboxes."""
    with open("/proc/net/unix") as stream:
        return f"{facts['abstract_name']} is listed" if facts["abstract_name"] in stream.read() else None


def _connect(name: str) -> None:
    with socket.socket(socket.AF_UNIX) as peer:
        peer.settimeout(10)
        peer.connect(name)
