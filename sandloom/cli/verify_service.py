"""What every deployment does for a client, checked in two sandboxes that are released at the end."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Any

from sandloom.cli.verify_inside import SCRIPT, Claims, Facts, broken
from sandloom.cli.verify_report import Report, demand, refused
from sandloom.errors import FileMissing, PathInvalid, SandloomError, StaleRoute, Unauthorized
from sandloom.ids import new_id
from sandloom.sdk import Client

SCOPE = "sandloom-verify"
#: Above what travels in a message, so that it takes the byte channel.
LARGE_BYTES = 2 << 20


class ServiceChecks:
    """``stranger`` makes a client of the same deployment with another token; ``token`` is looked for inside."""

    def __init__(
        self, client: Client, stranger: Callable[[str], Client], token: str, report: Report, *, strict: bool
    ) -> None:
        self._client = client
        self._stranger = stranger
        self._token = token
        self._report = report
        self._strict = strict

    def run(self) -> None:
        check = self._report.check
        if not check("health", self.health):
            return
        check("authorization", self.authorization)
        check("isolation level", self.level)
        if check("resolve", self.resolve):
            try:
                for name, made in self._in_sandboxes().items():
                    check(name, made)
            finally:
                self._release_all()

    def _in_sandboxes(self) -> dict[str, Callable[[], str]]:
        return {
            "exec": self.exec,
            "exec id": self.exec_id,
            "event stream": self.stream,
            "timeout": self.timeout,
            "cancel": self.cancel,
            "files": self.files,
            "byte channel": self.byte_channel,
            "inside": self.inside,
            "separation": self.separation,
            "suspend and resume": self.suspend,
            "generation": self.generation,
            "release": self.release,
        }

    # --- the deployment ---

    def health(self) -> str:
        health = self._client.health()
        down = [name for name, state in health["dependencies"].items() if state != "UP"]
        demand(health["status"] == "UP" and not down and health["workers"]["live"] > 0, health)
        return f"version {health['version']}, environment {health['environment']}, {health['workers']['live']} live"

    def authorization(self) -> str:
        with self._stranger("not-the-token") as client:
            refused(Unauthorized, client.sandboxes)
        return "refused with a wrong token"

    def level(self) -> str:
        own = self._client.health()["worker"]["profile_hash"]
        rows = [row for row in self._client.workers() if row["profile_hash"] == own]
        levels = {row["worker_id"]: row["isolation_level"] for row in rows}
        seen = ", ".join(f"{worker} {level}" for worker, level in sorted(levels.items()))
        demand(bool(levels) and set(levels.values()) <= {"basic", "standard", "strict"}, seen or "no worker")
        demand(not self._strict or set(levels.values()) == {"strict"}, f"strict is demanded: {seen}")
        return seen

    def resolve(self) -> str:
        self._box = self._client.sandbox(f"verify-{new_id()}", scope=SCOPE, keep=True)
        self._other = self._client.sandbox(f"verify-{new_id()}", scope=SCOPE, keep=True)
        for box in (self._box, self._other):
            demand(box.route.status == "READY" and box.route.workspace == "new", box.route)
        return f"on {self._box.route.worker_id} and {self._other.route.worker_id}"

    # --- commands ---

    def exec(self) -> str:
        result = self._box.run("cat; echo err >&2; exit 7", stdin="out", timeout=30)
        seen = (result.status, result.exit_code, result.stdout, result.stderr)
        demand(seen == ("FAILED", 7, "out", "err\n"), seen)
        missing = self._box.run(["/no/such/program"], timeout=30)
        demand((missing.status, missing.exit_code) == ("FAILED", 127), missing)
        return f"{result.duration_ms} ms"

    def exec_id(self) -> str:
        name = f"verify-{new_id()}"
        first, second = (self._box.run("echo once >> ran", exec_id=name, timeout=30) for _ in range(2))
        demand(first.ok and first.started_at == second.started_at, second)
        count = len(self._box.files.read("/workspace/ran").splitlines())
        demand(count == 1, f"it ran {count} times")
        return "the same call again ran nothing"

    def stream(self) -> str:
        events = [*self._box.stream("for i in 1 2 3; do echo $i; sleep 0.1; done", timeout=30)]
        numbers = [event.seq for event in events]
        demand(numbers == list(range(1, len(events) + 1)), f"numbered {numbers}")
        text = "".join(event.text for event in events if event.kind == "stdout")
        demand(text == "1\n2\n3\n", repr(text))
        demand(events[-1].data.get("status") == "SUCCEEDED", events[-1])
        return f"{len(events)} events, without holes"

    def timeout(self) -> str:
        script = "(setsid sh -c 'trap \"\" TERM; while :; do echo x >> alive; sleep 0.05; done' &) ; sleep 600"
        result = self._box.run(script, timeout=1)
        demand(result.status == "TIMED_OUT", result.status)
        return f"nothing of it lives after {result.duration_ms} ms, {self._still('alive')} lines written"

    def cancel(self) -> str:
        process = self._box.start("echo begun; while :; do echo x >> ticks; sleep 0.05; done", timeout=60)
        next(event for event in process.events() if event.kind == "stdout")
        demand(process.cancel(), "it was not running")
        result = process.wait()
        demand(result.status == "CANCELLED", result.status)
        return f"ended, {self._still('ticks')} lines written"

    def _still(self, name: str) -> int:
        """The lines of a file that nothing may write to any more."""
        before, after = (self._box.run(f"sleep 0.3; cat {name} 2>/dev/null | wc -l", timeout=30) for _ in range(2))
        demand(before.stdout == after.stdout, f"{name} still grows: {before.stdout} {after.stdout}")
        return int(after.stdout)

    # --- files ---

    def files(self) -> str:
        files, content = self._box.files, bytes(range(256)) * 16
        files.mkdir("/workspace/tree/inner", parents=True)
        files.write("/workspace/tree/inner/a", content, mode=0o640)
        files.move("/workspace/tree/inner/a", "/workspace/tree/b")
        demand(files.read("/workspace/tree/b") == content, "it is not read as it was written")
        demand([entry.name for entry in files.list("/workspace/tree")] == ["b", "inner"], files.list("/workspace/tree"))
        inside = self._box.run("wc -c < tree/b", timeout=30)
        demand(inside.stdout.strip() == str(len(content)), inside.stdout or inside.status)
        files.delete("/workspace/tree", recursive=True)
        refused(FileMissing, lambda: files.read("/workspace/tree/b"))
        refused(PathInvalid, lambda: files.read("/workspace/../etc/passwd"))
        return "written, moved, listed, read, seen by a command, deleted"

    def byte_channel(self) -> str:
        content = secrets.token_bytes(LARGE_BYTES)
        self._box.files.write("/workspace/large", content)
        demand(self._box.files.read("/workspace/large") == content, "it is not read as it was written")
        return f"{LARGE_BYTES >> 20} MiB"

    # --- boundaries ---

    def inside(self) -> str:
        worker: dict[str, Any] = self._client.health()["worker"]
        levels = {row["worker_id"]: row["isolation_level"] for row in self._client.workers()}
        route = self._box.route
        claims = Claims.of(levels[route.worker_id], route.sandbox_uid, worker["capabilities"], self._token)
        self._box.run(": > /tmp/sandloom-verify", timeout=30).check()
        facts = Facts(self._box.run(SCRIPT, timeout=30).check().stdout)
        found = [*broken(facts, claims)]
        demand(not found, f"a command {'; '.join(found)}")
        on = sorted(name for name, there in claims.features.items() if there)
        return f"{claims.level}, network {claims.network}, {', '.join(on)}: as claimed"

    def separation(self) -> str:
        marker = f"mark-{new_id()}"
        self._box.files.write(f"/workspace/{marker}", "mine")
        places = "/workspace /home /envs /cache /tmp /var /run /opt /srv /mnt"
        found = self._other.run(f"find {places} -name '{marker}' 2>/dev/null; true", timeout=60).stdout
        demand(not found, f"another sandbox finds {found}")
        separate = (self._client.health()["worker"]["capabilities"].get("features") or {}).get("uid_separation")
        uids = (self._box.route.sandbox_uid, self._other.route.sandbox_uid)
        same_host = self._box.route.worker_id == self._other.route.worker_id
        demand(not separate or not same_host or uids[0] != uids[1], f"both have uid {uids[0]}")
        return "files of another sandbox are not to be found"

    # --- life ---

    def suspend(self) -> str:
        self._box.files.write("/workspace/kept", "kept")
        demand(self._box.suspend(), "it was suspended before")
        demand(self._client.attach(self._box.id).route.status == "SUSPENDED", "it is not")
        demand(self._box.resume(), "it was awake")
        demand(self._box.files.read("/workspace/kept") == b"kept", "its file is another one")
        return f"workspace {self._box.route.workspace}"

    def generation(self) -> str:
        """A route that was superseded by a release and another resolve."""
        box = self._other
        before = box.generation
        demand(box.release() == "RELEASED", "it was not released")
        box.refresh()
        demand(box.generation > before and box.route.workspace == "new", box.route)
        stale = self._client.attach(box.id)
        stale.route = stale.route.model_copy(update={"generation": before})
        refused(StaleRoute, lambda: stale.files.mkdir("/workspace/late"))
        refused(StaleRoute, lambda: stale.fenced("POST", "/exec", json={"exec_id": f"v-{new_id()}", "argv": ["true"]}))
        return f"{before} is refused, {box.generation} is current"

    def release(self) -> str:
        for box in (self._box, self._other):
            for _ in range(2):
                demand((status := box.release()) == "RELEASED", status)
            refused(StaleRoute, lambda box=box: box.files.mkdir("/workspace/late"))  # type: ignore[misc]
        return "twice, and nothing is done in them any more"

    def _release_all(self) -> None:
        for box in (self._box, self._other):
            try:
                self._client.attach(box.id).release()
            except SandloomError:
                continue  # the check of releases has said so
