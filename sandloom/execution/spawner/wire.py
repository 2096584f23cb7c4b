"""What the worker and the spawner say to each other, over SOCK_SEQPACKET sockets on one machine.

Main socket, worker to spawner: ``S`` spawn (descriptors: command socket, stdout, stderr, then stdin and a memfd with
the body where the flags say so) and ``L`` lease. The end of the main socket means that the worker is gone.
Command socket: any byte from the worker, or its end, cancels (``K`` without grace); the spawner answers once, with the
facts, and closes.
"""

from __future__ import annotations

import json
import os
import socket
from typing import Any

SPAWN = b"S"
LEASE = b"L"
HAS_STDIN = 1
HAS_BODY_FD = 2
CANCEL = b"C"
KILL = b"K"

MAX_DATAGRAM_BYTES = 128 * 1024
# Larger bodies travel in a memfd: a datagram must fit the socket buffer at once.
MAX_INLINE_BYTES = 60 * 1024
MAX_FDS = 5

_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode

Facts = dict[str, Any]


def pack(value: object) -> bytes:
    """JSON bytes; lone surrogates (undecodable argv bytes) survive as escapes."""
    return _encode(value).encode("ascii")


def unpack(data: bytes) -> Any:
    return json.loads(str(data, "utf-8"))


def send_spawn(sock: socket.socket, body: bytes, fds: list[int], stdin_fd: int | None) -> None:
    """Send one spawn request with its descriptors."""
    flags = 0
    if stdin_fd is not None:
        flags |= HAS_STDIN
        fds = [*fds, stdin_fd]
    if len(body) <= MAX_INLINE_BYTES:
        socket.send_fds(sock, [SPAWN, bytes([flags]), body], fds)
        return
    body_fd = os.memfd_create("spec", os.MFD_CLOEXEC)
    try:
        with open(body_fd, "wb", closefd=False) as stream:
            stream.write(body)
        socket.send_fds(sock, [SPAWN, bytes([flags | HAS_BODY_FD])], [*fds, body_fd])
    finally:
        os.close(body_fd)


def read_body(message: bytes, fds: list[int]) -> tuple[dict[str, Any], list[int], int | None]:
    """(request, [command socket, stdout, stderr], stdin or None) of a spawn message; closes the body's memfd."""
    flags = message[1]
    body = message[2:]
    if flags & HAS_BODY_FD:
        body_fd = fds.pop()
        with open(body_fd, "rb") as stream:
            stream.seek(0)
            body = stream.read()
    stdin_fd = fds.pop() if flags & HAS_STDIN else None
    return unpack(body), fds, stdin_fd
