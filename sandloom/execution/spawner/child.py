"""Between fork and exec of one command: everything here runs in the new process. ``native/start.c`` does the same."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Sequence
from typing import Any, NoReturn

from . import linux, wire

HIGHEST_FD = 5
_OOM_SCORE_ADJ = b"500"
_UMASK = 0o022


def start(request: dict[str, Any], fds: Sequence[int], parent: int) -> NoReturn:
    """Become the command: ``fds`` are stdin, stdout, stderr and three pipes: status, set-up, entering (-1: none),
    all above 5.

    Of the request it uses ``attach`` (cgroup files to write ``0`` into), ``open`` (pairs of a path and the number its
    descriptor gets, above 5, for reading), ``cpus`` (numbers of processors, empty: all), ``rlimits``, ``switch_user``,
    ``uid``, ``gid``, ``argv`` and ``env``.

    Every failure is one JSON document on the status pipe and exit status 1; bwrap never ran then.
    """
    status = fds[3]
    try:
        # First: a path may lead through a descriptor of the spawner.
        _join_groups(request["attach"])
        _install(fds)
        status = 3
        # The spawner ignores no signal, it handles them; so exec alone restores every default.
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        # Before the limits: the spawner's descriptors, closed by the exec only, may be more than a command may have.
        _open_files(request["open"])
        _own_nothing_of_the_worker(request)
        _drop_privileges(request)
        # After the change of credentials, which would clear it. It covers the time until bwrap asks for the same.
        linux.die_with_parent(signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        argv = [os.fsencode(word) for word in request["argv"]]
        env = {os.fsencode(name): os.fsencode(value) for name, value in request["env"].items()}
        os.execve(argv[0], argv, env)
    except BaseException as error:
        os.write(status, told(error))
    finally:
        os._exit(1)


def told(error: BaseException) -> bytes:
    """What is said on the status pipe when bwrap never ran."""
    fault = {"launch_error": f"{type(error).__name__}: {error}", "errno": getattr(error, "errno", None)}
    return wire.pack(fault) + b"\n"


def _install(fds: Sequence[int]) -> None:
    for number, fd in enumerate(fds):
        if fd >= 0:
            os.dup2(fd, number)
        else:
            os.close(number)
    # Whatever a library in the spawner opened without close-on-exec must not reach a command. Not before the exec: the
    # worker takes the end of the spawner's socket for a sign that no process is left on its way to one.
    linux.close_all_above_at_exec(HIGHEST_FD)


def _own_nothing_of_the_worker(request: dict[str, Any]) -> None:
    os.chdir("/")
    os.umask(_UMASK)
    linux.join_empty_session_keyring()
    fd = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
    os.write(fd, _OOM_SCORE_ADJ)
    os.close(fd)
    if request["cpus"]:
        os.sched_setaffinity(0, request["cpus"])
    for number, soft, hard in request["rlimits"]:
        resource.setrlimit(number, (soft, hard))


def _join_groups(files: Sequence[str]) -> None:
    for path in files:
        fd = os.open(path, os.O_WRONLY)
        os.write(fd, b"0")
        os.close(fd)


def _open_files(pairs: Sequence[tuple[str, int]]) -> None:
    # Each command reads from a description, and so from an offset, of its own.
    for path, number in pairs:
        fd = os.open(path, os.O_RDONLY)
        if fd == number:
            os.set_inheritable(fd, True)
        else:
            os.dup2(fd, number)
            os.close(fd)


def _drop_privileges(request: dict[str, Any]) -> None:
    if not request["switch_user"]:
        return
    os.setgroups([])
    gid, uid = request["gid"], request["uid"]
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
