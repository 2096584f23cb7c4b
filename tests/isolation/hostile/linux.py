"""System calls that Python has no name for. Every one raises ``OSError``."""

from __future__ import annotations

import ctypes
import os
from typing import Any

libc = ctypes.CDLL(None, use_errno=True)

#: The parent of the command: inside, that is bwrap. Programs themselves run in children.
MONITOR = os.getppid()

# x86_64, aarch64
_NUMBERS = {
    "pivot_root": (155, 41), "clone": (56, 220), "kexec_load": (246, 104), "init_module": (175, 105),
    "delete_module": (176, 106), "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282),
    "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218), "reboot": (169, 142), "syslog": (103, 116),
    "quotactl": (179, 60), "ioprio_get": (252, 31), "kcmp": (312, 272), "pidfd_getfd": (438, 438),
    "io_uring_setup": (425, 425), "open_tree": (428, 428), "fsopen": (430, 430), "fsconfig": (431, 431),
    "fsmount": (432, 432), "clone3": (435, 435), "statmount": (457, 457), "listmount": (458, 458), "getpid": (39, 172),
}  # fmt: skip
_COLUMN = {"x86_64": 0, "aarch64": 1}


def _number(name: str) -> int:
    return _NUMBERS[name][_COLUMN[os.uname().machine]]


def syscall(name: str, *arguments: Any) -> int:
    return checked(libc.syscall(ctypes.c_long(_number(name)), *map(_word, arguments)))


def call(name: str, *arguments: Any) -> int:
    """A function of the C library that answers with an int and -1 for an error."""
    return checked(getattr(libc, name)(*map(_word, arguments)))


def _word(value: Any) -> Any:
    return ctypes.c_long(value) if isinstance(value, int) else value


def checked(result: int) -> int:
    if result == -1:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def in_child(attempt: Any) -> None:
    """Runs it in a child, for what would change this process; raises what the child raised."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            attempt()
        except OSError as error:
            os.write(writing, str(error.errno).encode())
        except BaseException as error:
            os.write(writing, repr(error).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as stream:
        said = stream.read()
    os.waitpid(child, 0)
    if said:
        if not said.isdigit():
            raise RuntimeError(said)
        raise OSError(int(said), os.strerror(int(said)))
