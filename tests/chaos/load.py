"""Callers that do everything at once through both replicas. ``OPERATIONS`` is the whole list: another kind of call is
another function with its weight."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from sandloom.errors import SandboxSuspended, WorkerLost
from tests.chaos.book import RAN
from tests.chaos.caller import MANY, Caller, Over

#: A lasting command outlives a cut and the fence, and ends by its timeout where nobody ends it.
LASTING_SECONDS = 75
#: Long enough for a worker that is to be empty to look, and to move it out.
REST_SECONDS = 4.0
#: Long enough for a worker that is cut off meanwhile to be declared lost, so that the sandbox wakes elsewhere.
SLEEP_SECONDS = 12.0
_BEAT = "echo {id} $EPOCHREALTIME >> {beats}; sleep 0.2"
_LASTING = (
    "trap '' TERM; (setsid bash -c 'while :; do " + _BEAT + "; done' &) ; while :; do " + _BEAT + "; done"
)  # fmt: skip


def foreground(caller: Caller) -> None:
    exec_id, text = caller.order("echo out-$((6 * 7))", b"out-42\n")
    # Without a scope it has the sandbox alone.
    scope = f"scope-{exec_id}" if caller.rng.random() < 0.8 else None
    try:
        result = caller.box.run(["bash", "-c", text], exec_id=exec_id, scope=scope, timeout=30)
    except WorkerLost as error:
        if error.extra.get("exec_id") == exec_id:  # an end like any other
            caller.book.accept(exec_id)
        raise
    caller.book.accept(exec_id)
    if result.ok and result.stdout != "out-42\n":
        caller.book.fault(f"{exec_id} answered {result.stdout!r}")


def several(caller: Caller) -> None:
    started = [caller.start("echo {id}", None) for _ in range(MANY)]
    for process in started:
        caller.ended(process)


def follow(caller: Caller) -> None:
    """Every event once, in order, and the end last."""
    process = caller.start("for i in 1 2 3 4 5; do echo $i; sleep 0.1; done", b"1\n2\n3\n4\n5\n")
    seqs, ends = [], 0
    for event in process.events():
        seqs.append(event.seq)
        ends += event.kind == "status" and event.data["status"] not in ("QUEUED", "RUNNING")
    if seqs != list(range(1, len(seqs) + 1)) or ends != 1:
        caller.book.fault(f"{process.exec_id}: events {seqs}, {ends} of them an end")


def lasting(caller: Caller) -> None:
    if caller.lasting is None or caller.lasting.poll().finished:
        caller.lasting = caller.start(_LASTING, timeout=LASTING_SECONDS, lasting=True)


def overtime(caller: Caller) -> None:
    caller.ended(caller.start(_LASTING, timeout=1))


def cancel(caller: Caller) -> None:
    if caller.running:
        caller.rng.choice(caller.running).cancel()


def files(caller: Caller) -> None:
    path, data = (
        f"/workspace/file-{caller.rng.randrange(1 << 40):x}",
        caller.rng.randbytes(caller.rng.randrange(40_000)),
    )
    caller.box.files.write(path, data)
    if caller.box.files.read(path) != data:
        caller.book.fault(f"{caller.box.id}: {path} has other content than was written")
    caller.box.files.delete(path)


def rest(caller: Caller) -> None:
    caller.quiet()
    caller.stop.wait(caller.rng.uniform(0, 2) * REST_SECONDS)
    caller.box.files.read(f"/workspace/{RAN}")


def suspend_and_resume(caller: Caller) -> None:
    caller.quiet()
    caller.box.suspend()
    if caller.rng.random() < 0.5:
        caller.stop.wait(SLEEP_SECONDS)
    caller.box.resume()
    caller.look_again()


def suspend_and_use(caller: Caller) -> None:
    """A use is refused, and told to resolve, which wakes it."""
    caller.quiet()
    caller.box.suspend()
    if caller.rng.random() < 0.5:
        caller.stop.wait(SLEEP_SECONDS)
    with suppress(SandboxSuspended):
        caller.start("echo awake", b"awake\n")
    caller.look_again()
    caller.ended(caller.start("echo awake", b"awake\n"))


def fork(caller: Caller) -> None:
    """The copy has the files of its source as they were; half of the time the caller goes on with the copy."""
    caller.quiet()
    source, disks = caller.box, caller.fleet.disks
    mark = caller.rng.randbytes(caller.rng.randrange(20_000))
    source.files.write("/workspace/mark", mark)
    copy = source.fork(caller.new_name(), keep=True)
    # Nothing was asked of the source since.
    for name, wanted in (("mark", mark), (RAN, source.files.read(f"/workspace/{RAN}"))):
        if copy.files.read(f"/workspace/{name}") != wanted:
            caller.book.fault(f"{copy.id} has another {name} than {source.id}")
    if caller.rng.random() < 0.5:
        copy.release()
        return
    may_go = caller.keeps()
    with suppress(OSError):  # it is being moved; nobody is owed anything of it
        caller.move_to(copy, disks)
        if may_go:
            source.release()


def template(caller: Caller) -> None:
    """Also in a copy, and wherever the sandbox wakes."""
    if caller.template is None:
        caller.quiet()
        caller.ended(caller.start("mkdir -p /envs/made; printf content > /envs/made/file"))
        caller.box.publish_template(caller.box.id, "/envs/made")
        caller.box.attach_templates(caller.box.id)
        caller.template = caller.box.id
    caller.ended(caller.start(f"cat /envs/{caller.template}/file || :", b"content"))


def release(caller: Caller) -> None:
    if caller.keeps():  # else its files must stay until somebody has counted
        caller.released = True
        caller.box.release()
        caller.book.called("release")
    raise Over


OPERATIONS: dict[str, tuple[Callable[[Caller], None], int]] = {
    "foreground": (foreground, 12),
    "several": (several, 10),
    "follow": (follow, 3),
    "lasting": (lasting, 4),
    "overtime": (overtime, 1),
    "cancel": (cancel, 4),
    "files": (files, 4),
    "rest": (rest, 1),
    "suspend and resume": (suspend_and_resume, 1),
    "suspend and use": (suspend_and_use, 1),
    "fork": (fork, 2),
    "template": (template, 2),
    "release": (release, 1),
}
