"""The owner of the other end of a connection."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading

import pytest

from workers.peers import uid_of

_CONNECT = """
import os, socket, sys
os.setuid(int(sys.argv[1]))
held = socket.create_connection((sys.argv[2], int(sys.argv[3])))
held.recv(1)
"""


@pytest.fixture(params=["127.0.0.1", "::1", "::ffff:127.0.0.1"])
def listener(request: pytest.FixtureRequest) -> socket.socket:
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    listener = socket.socket(family)
    listener.bind((request.param, 0))
    listener.listen()
    return listener


def test_own_end(listener: socket.socket) -> None:
    with listener, socket.create_connection(listener.getsockname()[:2]):
        end, peer = listener.accept()
        with end:
            assert uid_of(peer, end.getsockname()) == os.getuid()


@pytest.mark.root
def test_end_of_another_account_while_others_come_and_go(listener: socket.socket) -> None:
    host, port = listener.getsockname()[:2]
    done = threading.Event()

    def churn() -> None:
        with socket.create_server(("127.0.0.1", 0)) as other:
            while not done.is_set():
                with socket.create_connection(other.getsockname()), other.accept()[0]:
                    pass

    others = threading.Thread(target=churn)
    command = [sys.executable, "-c", _CONNECT, "54321", host, str(port)]
    with listener, subprocess.Popen(command) as process:
        end, peer = listener.accept()
        with end:
            others.start()
            seen = {uid_of(peer, end.getsockname()) for _ in range(2000)}
            done.set()
            others.join()
        assert process.wait(10) == 0
    assert seen == {54321}


def test_nobody(listener: socket.socket) -> None:
    """A listener on the port is not the connection that is asked for."""
    with listener:
        address = listener.getsockname()
        assert uid_of(address, (address[0], 9)) is None
        assert uid_of((address[0], 9), address) is None
