"""Reads that trickle are cut off; others are left alone."""

from __future__ import annotations

import socket
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from flask import Request

from api.bodies import read_body
from api.read_deadlines import READ_DEADLINES, ReadDeadlines
from sandloom.errors import MalformedRequest, RequestTimeout


def test_a_blocked_read_ends_when_its_deadline_passes() -> None:
    ours, theirs = socket.socketpair()
    deadlines = ReadDeadlines()
    with ours, theirs:
        theirs.sendall(b"trickle")
        with deadlines.limit(ours, 0.01) as deadline:
            assert ours.recv(100) == b"trickle"
            assert ours.recv(100) == b""
        assert deadline is not None
        assert deadline.passed
        # The answer can still be written.
        ours.sendall(b"408")
        assert theirs.recv(3) == b"408"


def test_a_deadline_that_was_met_cuts_nothing() -> None:
    ours, theirs = socket.socketpair()
    deadlines = ReadDeadlines()
    with ours, theirs:
        with deadlines.limit(ours, 3600) as deadline:
            pass
        deadlines._cut(float("inf"))
        theirs.sendall(b"next request")
        assert ours.recv(100) == b"next request"
        assert deadline is not None
        assert not deadline.passed


def body_request(sock: socket.socket, announced: int) -> Request:
    environ: dict[str, Any] = {
        "REQUEST_METHOD": "POST",
        "CONTENT_LENGTH": str(announced),
        "wsgi.input": SimpleNamespace(read=lambda size: sock.recv(size)),
        "gunicorn.socket": sock,
    }
    return Request(environ)


def test_a_body_that_does_not_come_is_a_408(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.bodies._BASE_SECONDS", 0.01)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(b"{")
        with pytest.raises(RequestTimeout):
            read_body(body_request(ours, 10), 100)
    assert READ_DEADLINES._open == set()


def test_a_body_that_is_cut_off_is_a_400() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        theirs.sendall(b"{")
        threading.Thread(target=theirs.close).start()
        with pytest.raises(MalformedRequest):
            read_body(body_request(ours, 10), 100)
