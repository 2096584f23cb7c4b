"""Requests to the spawner arrive whole, whatever their size."""

from __future__ import annotations

import os
import socket

import pytest

from sandloom.execution.spawner import wire


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        yield ours, theirs


@pytest.mark.parametrize("size", [0, 1000, 59_000, 61_000, 20_000_000])
@pytest.mark.parametrize("with_stdin", [True, False])
def test_a_spawn_request(pair, size, with_stdin):
    request = {"argv": ["x" * size, "caf\udce9"], "env": {}}
    null = os.open("/dev/null", os.O_RDONLY)
    wire.send_spawn(pair[0], wire.pack(request), [null, null, null], null if with_stdin else None)
    message, fds, flags, _ = socket.recv_fds(pair[1], wire.MAX_DATAGRAM_BYTES, wire.MAX_FDS)
    assert message[:1] == wire.SPAWN
    assert not flags & socket.MSG_CTRUNC
    got, three, stdin = wire.read_body(message, fds)
    assert got == request
    assert len(three) == 3
    assert (stdin is not None) == with_stdin
    for fd in (null, *three, *([stdin] if stdin is not None else [])):
        os.close(fd)
