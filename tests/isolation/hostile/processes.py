"""Against processes: of the worker, of other sandboxes, of its own monitor, and those it leaves behind."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import time

from .linux import MONITOR, call, syscall
from .program import BASIC, STANDARD, STRICT, Facts, Held, first_of, program

_ATTACH, _DETACH = 16, 17


def _attach(pid: int) -> None:
    call("ptrace", _ATTACH, pid, None, None)
    os.waitpid(pid, 0x40000000)
    call("ptrace", _DETACH, pid, None, None)


@program("root")
def signals_the_worker(facts: Facts) -> str | None:
    """Send a signal to the worker."""
    os.kill(facts["host_pid"], signal.SIGCONT)
    return "a signal was sent"


@program("root")
def signals_another_sandbox(facts: Facts) -> str | None:
    """Send a signal to a process of another sandbox, by its number on the host."""
    os.kill(facts["victim_pid"], signal.SIGCONT)
    return "a signal was sent"


@program("user: of the sandbox itself", reaches="other commands of the same sandbox, by signals", at=(BASIC,))
def signals_another_command_of_its_sandbox(facts: Facts) -> str | None:
    """Send a signal to another command of its own sandbox, by its number on the host."""
    os.kill(facts["sibling_pid"], signal.SIGCONT)
    return "a signal was sent"


@program("root")
def signals_by_pidfd(facts: Facts) -> str | None:
    """Send a signal to the worker by a descriptor of it."""
    fd = os.pidfd_open(facts["host_pid"])
    signal.pidfd_send_signal(fd, signal.SIGCONT)
    return "a signal was sent"


@program("root")
def traces_the_worker(facts: Facts) -> str | None:
    """Attach to the worker as a debugger."""
    _attach(facts["host_pid"])
    return "attached"


@program("root")
def traces_another_sandbox(facts: Facts) -> str | None:
    """Attach to a process of another sandbox."""
    _attach(facts["victim_pid"])
    return "attached"


@program(
    "user",
    reaches="process 1 inside, which is bubblewrap, as a debugger: no more than to misreport its own command's end",
    at=(STANDARD, STRICT),
)
def traces_its_monitor(facts: Facts) -> str | None:
    """Attach to its parent, which is bwrap; at basic that one is outside of all namespaces."""
    _attach(MONITOR)
    return "attached"


@program("root")
def reads_memory_of_others(facts: Facts) -> str | None:
    """Read the stack of the worker, of the other sandbox and of the monitor by process_vm_readv."""
    local, remote = ctypes.create_string_buffer(1), (ctypes.c_size_t * 2)(facts["host_address"], 1)
    own = (ctypes.c_size_t * 2)(ctypes.addressof(local), 1)
    pids = (facts["host_pid"], facts["victim_pid"], MONITOR)
    return first_of(pids, lambda pid: call("process_vm_readv", pid, own, 1, remote, 1, 0)) and "memory"


@program("root")
def takes_descriptors_of_others(facts: Facts) -> str | None:
    """Take descriptor 0 out of the worker and out of the other sandbox."""

    def take(pid: int) -> None:
        os.close(syscall("pidfd_getfd", os.pidfd_open(pid), 0, 0))

    return first_of((facts["host_pid"], facts["victim_pid"]), take) and "a descriptor"


@program("user", reaches="which process ids of the host exist, with their priorities and sessions", at=(BASIC,))
def finds_processes_of_the_host(facts: Facts) -> str | None:
    """Ask for the session and the scheduling of the worker's process id."""
    return f"session {os.getsid(facts['host_pid'])}, policy {os.sched_getscheduler(facts['host_pid'])}"


@program("root")
def slows_others_down(facts: Facts) -> str | None:
    """Lower the priority, the processors and the limits of the worker and of the other sandbox."""

    def slow(pid: int) -> None:
        os.setpriority(os.PRIO_PROCESS, pid, os.getpriority(os.PRIO_PROCESS, pid))
        os.sched_setaffinity(pid, os.sched_getaffinity(pid))
        resource.prlimit(pid, resource.RLIMIT_CORE, resource.prlimit(pid, resource.RLIMIT_CORE))

    return first_of((facts["host_pid"], facts["victim_pid"]), slow) and "its priority"


@program("no control: it would end processes of the machine", alone=True)
def kills_everything_it_can(facts: Facts) -> str | None:
    """Signal process 1, its monitor, its group and everything else that it may."""
    for pid in (1, MONITOR):
        for number in (signal.SIGSTOP, signal.SIGTERM, signal.SIGKILL):
            _try_kill(pid, number)
    _try_kill(-1, signal.SIGKILL)
    raise Held("nobody else ended")


def _try_kill(pid: int, number: int) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, number)


@program("no control: there is no supervisor to deceive outside", alone=True)
def forges_its_verdict(facts: Facts) -> str | None:
    """Write a status of bwrap's to every descriptor, and say its errors."""
    for fd in range(3, 256):
        try:
            os.write(fd, b'{ "exit-code": 0, "launch_error": "forged" }\n')
        except OSError:
            continue
        return f"descriptor {fd} took it"
    os.write(2, b"bwrap: Creating new namespace failed: Resource temporarily unavailable\n")
    raise Held("no descriptor took it")


@program("no control: it would stay on the machine", alone=True)
def stays_after_its_end(facts: Facts) -> str | None:
    """Leave processes that ignore signals, in sessions of their own, stopped or orphaned."""
    for signal_number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(signal_number, signal.SIG_IGN)
    for stopped in (False, True):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                if stopped:
                    os.kill(os.getpid(), signal.SIGSTOP)
                time.sleep(300)
            os._exit(0)
    raise Held("to be seen by the test")


@program("no control: it would stay on the machine", alone=True)
def runs_from_child_to_child(facts: Facts) -> str | None:
    """Change its process id a thousand times a second, so that no kill finds it."""
    if os.fork() == 0:
        os.setsid()
        while True:
            if os.fork():
                os._exit(0)
            time.sleep(0.001)
    raise Held("to be seen by the test")


@program("root")
def forges_credentials(facts: Facts) -> str | None:
    """Tell a peer on a socket that it is the worker (SCM_CREDENTIALS)."""
    import socket
    import struct

    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    other.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    claim = struct.pack("iii", facts["host_pid"], 0, 0)
    one.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_CREDENTIALS, claim)])
    return "credentials of the worker"


@program("user: with a directory descriptor left open")
def finds_descriptors_of_the_worker(facts: Facts) -> str | None:
    """Look for descriptors that were left open above 2."""
    left = []
    for fd in range(3, 1024):
        try:
            left.append(os.readlink(f"/proc/self/fd/{fd}") if os.path.exists("/proc/self/fd") else str(os.fstat(fd)))
        except OSError:
            continue
    return str(left) if left else None


@program("no control: it is its own core file")
def leaves_a_core_file(facts: Facts) -> str | None:
    """Crash with the largest core file it may have."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
    if os.fork() == 0:
        call("prctl", 4, 1, 0, 0, 0)
        os.kill(os.getpid(), signal.SIGSEGV)
    os.wait()
    cores = [name for name in os.listdir(".") if name.startswith("core")]
    return str(cores) if cores else None
