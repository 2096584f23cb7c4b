"""Capping, discarding and holding back."""

from __future__ import annotations

import os

import pytest

from sandloom.execution.output import Stream


@pytest.fixture
def pipe():
    read_end, write_end = os.pipe()
    yield read_end, write_end
    os.close(write_end)


def make(pipe, name="stdout", max_bytes=100):
    got: list[bytes] = []
    stream = Stream(name, pipe[0], max_bytes, lambda _, chunk: got.append(chunk))
    return stream, got


@pytest.fixture
def closing():
    streams: list[Stream] = []
    yield streams.append
    for stream in streams:
        stream.close()


@pytest.mark.parametrize("writes", [[b"x" * 100], [b"x" * 60, b"x" * 40], [b"x"] * 100])
def test_up_to_the_cap_nothing_is_cut(pipe, closing, writes):
    stream, got = make(pipe)
    closing(stream)
    for data in writes:
        os.write(pipe[1], data)
        assert stream.read()
    assert (b"".join(got), stream.truncated) == (b"x" * 100, False)


@pytest.mark.parametrize("writes", [[b"x" * 101], [b"x" * 60, b"x" * 60], [b"x" * 100, b"y", b"z"]])
def test_beyond_the_cap_is_cut_and_said(pipe, closing, writes):
    stream, got = make(pipe)
    closing(stream)
    for data in writes:
        os.write(pipe[1], data)
        assert stream.read()
    assert (b"".join(got), stream.truncated) == (b"x" * 100, True)


def test_draining_does_not_wait_for_whoever_holds_the_pipe(pipe, closing):
    stream, got = make(pipe)
    closing(stream)
    os.write(pipe[1], b"last words")
    stream.drain()
    assert b"".join(got) == b"last words"


def test_what_may_be_bwraps_own_is_held_and_dropped(pipe, closing):
    stream, got = make(pipe, "stderr")
    closing(stream)
    for part in (b"bwr", b"ap: ", b"execvp x: No such file"):
        os.write(pipe[1], part)
        stream.read()
    assert got == []
    assert stream.release_in_seconds is not None
    stream.release(drop=True)
    assert (got, stream.head) == ([], b"bwrap: execvp x: No such file")


def test_what_looked_like_bwraps_own_goes_on_whole_and_later_output_is_not_held(pipe, closing):
    stream, got = make(pipe, "stderr")
    closing(stream)
    os.write(pipe[1], b"bwrap: hello\n")
    stream.read()
    stream.release()
    os.write(pipe[1], b"bwrap: again\n")
    stream.read()
    assert got == [b"bwrap: hello\n", b"bwrap: again\n"]
    assert stream.release_in_seconds is None


def test_ordinary_output_is_never_held(pipe, closing):
    stream, got = make(pipe, "stderr")
    closing(stream)
    os.write(pipe[1], b"bw")
    stream.read()
    os.write(pipe[1], b"arning")
    stream.read()
    assert b"".join(got) == b"bwarning"
    assert stream.release_in_seconds is None
