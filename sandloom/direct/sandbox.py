"""One sandbox, reached through its owner's queue."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from celery.canvas import Signature

from sandloom.contracts.files import FileEntry, FileList, GlobAnswer, GrepAnswer, ReplaceAnswer
from sandloom.contracts.rest import RouteAnswer
from sandloom.contracts.templates import TemplateAnswer, TemplateList
from sandloom.direct import tasks
from sandloom.errors import StaleRoute
from sandloom.ids import new_id
from sandloom.sdk.results import Result

if TYPE_CHECKING:
    from sandloom.direct.fleet import Fleet

#: How long a command may wait for its turn, and how long one without a timeout of its own may run (the contract's
#: largest): together the longest that a result is waited for.
QUEUE_SECONDS: Final = 3_600.0
LONGEST_RUN_SECONDS: Final = 86_400.0
#: Suspending, resuming and copying may move all the files of a sandbox.
SLEEP_SECONDS: Final = 240.0
#: What is meant for the generation that the caller knows, and for no other.
_OF_THIS_GENERATION: Final = frozenset({tasks.SUSPEND, tasks.RELEASE})
#: Building and attaching read or write a whole tree.
TEMPLATE_SECONDS: Final = 700.0


class FleetSandbox:
    """Made by ``Fleet.sandbox``. Every call carries the generation that resolve told, and a stale one does nothing.

    Then the sandbox is looked for once, and the call repeated where its files were kept. ``StaleRoute``: they were not,
    or the sandbox was released; resolve it again with ``Fleet.sandbox``. A signature has nobody who could look.
    """

    def __init__(self, fleet: Fleet, route: RouteAnswer) -> None:
        self._fleet = fleet
        self.route = route
        self.files = FleetFiles(self)

    @property
    def id(self) -> str:
        return self.route.sandbox_id

    @property
    def generation(self) -> int:
        return self.route.generation

    def connect(self) -> RouteAnswer:
        """Have the workspace made ready now instead of at the first command."""
        self.route = RouteAnswer.model_validate(self.call(tasks.CONNECT))
        return self.route

    def suspend(self) -> bool:
        """Give its slot back and keep its files; False when it was suspended before."""
        answer = self.call(tasks.SUSPEND, wait_seconds=SLEEP_SECONDS)
        return bool(answer["suspended"])

    def resume(self) -> bool:
        """Wake it, and use the route that comes back; False when it was awake."""
        answer = self._fleet.call(tasks.RESUME, {"sandbox_id": self.id}, wait_seconds=SLEEP_SECONDS)
        self.route = RouteAnswer.model_validate(answer)
        return bool(answer["resumed"])

    def fork(self, copy_id: str | None = None, *, scope: str | None = None) -> FleetSandbox:
        """Another sandbox with a copy of its files; ``scope`` is this one's unless given. SandboxBusy while anything
        runs in it."""
        copy = {"copy_id": copy_id or f"sbx-{new_id()}", "workspace_scope_id": scope or self.route.workspace_scope_id}
        answer = self._fleet.call(tasks.FORK, self._named(copy), wait_seconds=SLEEP_SECONDS)
        return FleetSandbox(self._fleet, RouteAnswer.model_validate(answer))

    def run(self, argv: Sequence[str], *, timeout: int | None = None, **options: Any) -> Result:
        """Run a command to its end; a non-zero exit code is a result. ``timeout`` is in seconds, the deployment's
        default unless given. ``options``: ``cwd, env, exec_scope, stdin, labels, exec_id, limits``."""
        answer = self.call(
            tasks.EXEC,
            _exec(argv, timeout, options),
            valid_seconds=QUEUE_SECONDS,
            wait_seconds=QUEUE_SECONDS + (timeout or LONGEST_RUN_SECONDS),
        )
        return Result.model_validate(answer)

    def exec_signature(
        self,
        argv: Sequence[str],
        *,
        timeout: int | None = None,
        valid_seconds: float = tasks.SIGNATURE_VALID_SECONDS,
        **options: Any,
    ) -> Signature[Any]:
        """A command as a ``celery.Signature``, for group, chain and chord; its result is the exec's record.

        Signed now, and refused when its turn comes after ``valid_seconds``. Sending it again runs nothing again: its
        ``exec_id`` is fixed, and the record of the first run is the result.
        """
        return self._fleet.signature(
            tasks.EXEC,
            self._named(_exec(argv, timeout, options)),
            owner_queue=self.route.worker_endpoint,
            valid_seconds=valid_seconds,
        )

    def exec_status(self, exec_id: str) -> Result:
        """The record of a command, finished or not. Raises ExecNotFound."""
        return Result.model_validate(self._fleet.call(tasks.EXEC_STATUS, {"sandbox_id": self.id, "exec_id": exec_id}))

    def cancel(self, exec_id: str) -> bool:
        """End a command; False when it had ended already."""
        answer = self.call(tasks.CANCEL, {"exec_id": exec_id})
        return bool(answer.get("cancelled"))

    def publish_template(
        self, name: str, source_path: str = "/envs", *, description: str = "", labels: Mapping[str, str] | None = None
    ) -> TemplateAnswer:
        """Publish a directory of this sandbox, in which nothing may run meanwhile (SandboxBusy)."""
        args = {"name": name, "source_path": source_path, "description": description, "labels": dict(labels or {})}
        answer = self.call(tasks.BUILD_TEMPLATE, args, wait_seconds=TEMPLATE_SECONDS)
        return TemplateAnswer.model_validate(answer)

    def attach_templates(self, *templates: str) -> list[TemplateAnswer]:
        """Mount these, and no others, read-only at ``/envs/<name>``: ``name``, or ``name@sha256:<hex>``."""
        answer = self.call(tasks.ATTACH_TEMPLATES, {"templates": list(templates)}, wait_seconds=TEMPLATE_SECONDS)
        return TemplateList.model_validate(answer).templates

    def release(self) -> str:
        """End its commands and delete its files; returns the status."""
        return str(self.call(tasks.RELEASE).get("status"))

    def call(self, task: str, args: Mapping[str, Any] | None = None, **options: Any) -> dict[str, Any]:
        """A public task of this sandbox; see ``Fleet.call``."""
        try:
            return self._call(task, args or {}, options)
        except StaleRoute:
            if task in _OF_THIS_GENERATION or not self._found_again():
                raise
            return self._call(task, args or {}, options)

    def _call(self, task: str, args: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
        return self._fleet.call(task, self._named(args), owner_queue=self.route.worker_endpoint, **options)

    def _found_again(self) -> bool:
        """Whether another generation of it, or another owner, has its files. Raises StaleRoute for a released one,
        which nobody brings back unknowingly."""
        generation = self.generation
        self.resume()
        if self.generation == generation:
            named = {"workspace_scope_id": self.route.workspace_scope_id, "profile": self.route.profile_id}
            answer = self._fleet.call(tasks.RESOLVE, {"sandbox_id": self.id, **named})
            self.route = RouteAnswer.model_validate(answer)
        return self.generation != generation and self.route.workspace in ("kept", "restored")

    def _named(self, args: Mapping[str, Any]) -> dict[str, Any]:
        return {"sandbox_id": self.id, "generation": self.generation, **args}


class FleetFiles:
    """``box.files``: contents travel inside messages, so keep them small."""

    def __init__(self, sandbox: FleetSandbox) -> None:
        self._sandbox = sandbox

    def read(self, path: str) -> bytes:
        return base64.b64decode(self._sandbox.call(tasks.READ, {"path": path})["content_base64"])

    def write(self, path: str, content: str | bytes, *, mode: int | None = None) -> None:
        """Replace or make the file, atomically; its directory must exist. ``mode`` is 0600 unless given."""
        data = content.encode() if isinstance(content, str) else content
        args: dict[str, Any] = {"path": path, "content_base64": base64.b64encode(data).decode("ascii")}
        self._sandbox.call(tasks.WRITE, args if mode is None else {**args, "mode": mode})

    def list(self, path: str = "/workspace", *, limit: int = 1000, offset: int = 0) -> list[FileEntry]:
        """One page of a directory's entries, by name."""
        page = self._sandbox.call(tasks.LIST, {"path": path, "limit": limit, "offset": offset})
        return FileList.model_validate(page).entries

    def stat(self, path: str) -> FileEntry:
        return FileEntry.model_validate(self._sandbox.call(tasks.STAT, {"path": path}))

    def glob(self, pattern: str, path: str = "/workspace", *, limit: int = 1000) -> GlobAnswer:
        args = {"pattern": pattern, "path": path, "limit": limit}
        return GlobAnswer.model_validate(self._sandbox.call(tasks.GLOB, args))

    def grep(
        self, pattern: str, path: str = "/workspace", *, glob: str | None = None, max_matches: int = 100
    ) -> GrepAnswer:
        """Lines that match a regular expression (RE2)."""
        args = {"pattern": pattern, "path": path, "glob": glob, "max_matches": max_matches}
        return GrepAnswer.model_validate(self._sandbox.call(tasks.GREP, args))

    def replace(self, path: str, old: str, new: str, *, count: int | None = None) -> int:
        """Replace a text in a file by another; returns how often it was done."""
        answer = self._sandbox.call(tasks.REPLACE, {"path": path, "old": old, "new": new, "count": count})
        return ReplaceAnswer.model_validate(answer).replacements

    def mkdir(self, path: str, *, parents: bool = False) -> None:
        self._sandbox.call(tasks.MKDIR, {"path": path, "parents": parents})

    def delete(self, path: str, *, recursive: bool = False) -> None:
        self._sandbox.call(tasks.DELETE, {"path": path, "recursive": recursive})

    def move(self, source: str, destination: str, *, overwrite: bool = False) -> None:
        self._sandbox.call(tasks.MOVE, {"source": source, "destination": destination, "overwrite": overwrite})


def _exec(argv: Sequence[str], timeout_seconds: int | None, options: Mapping[str, Any]) -> dict[str, Any]:
    args: dict[str, Any] = {"argv": list(argv), "exec_id": new_id(), **options}
    if timeout_seconds is not None:
        args["timeout_seconds"] = timeout_seconds
    return args
