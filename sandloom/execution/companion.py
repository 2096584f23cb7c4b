"""Small processes of the engine's own, each at the other end of a socket."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

# The package is loaded by its own short name, so that no other module of the service is ever imported over there.
_BOOT = (
    "import sys; sys.path.insert(0, sys.argv[1]); import {package}.server as s; sys.path.pop(0); "
    "s.main(int(sys.argv[2]), *sys.argv[3:])"
)


def start(
    package: str, *arguments: str, send_seconds: float, keep_fds: Sequence[int] = ()
) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """Our end, and a new process that runs ``main(socket, *arguments)`` of ``package``'s server, with a clean
    environment and ``keep_fds`` only. ``send_seconds`` bounds what is sent from our end. Raises OSError."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    words = [str(Path(__file__).parent), str(theirs.fileno()), *arguments]
    try:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _BOOT.format(package=package), *words],
            pass_fds=(theirs.fileno(), *keep_fds),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env={"LANG": "C.UTF-8", "PATH": os.defpath},
            cwd="/",
            start_new_session=True,
        )
    except OSError:
        ours.close()
        raise
    finally:
        theirs.close()
    ours.settimeout(send_seconds)
    return ours, process
