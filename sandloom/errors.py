"""Every failure that a client can see, as a class.

The tree::

    SandloomError
    ├── InvalidRequest …      category CHANGE: the caller must change the call
    ├── …                     category WAIT: the same call may succeed later
    └── …                     category STOP: neither waiting nor changing helps

A class carries its stable ``code``, the HTTP ``status``, the ``category`` and whether repeating the very same call is
safe and useful (``retryable``). Its docstring is the default message. ``REGISTRY`` maps codes to classes, for HTTP in
one direction and for clients in the other.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, ClassVar


class Category(StrEnum):
    """What the caller should do."""

    CHANGE = "change"
    WAIT = "wait"
    STOP = "stop"


REGISTRY: dict[str, type[SandloomError]] = {}


class SandloomError(Exception):
    """The service met an unexpected condition; the request id leads to its log."""

    code: ClassVar[str] = "SANDBOX_INTERNAL_ERROR"
    status: ClassVar[int] = 500
    category: ClassVar[Category] = Category.STOP
    retryable: ClassVar[bool] = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.code in REGISTRY:
            raise TypeError(f"two errors share the code {cls.code}")
        REGISTRY[cls.code] = cls

    def __init__(self, detail: str | None = None, **extra: Any) -> None:
        self.detail = detail or " ".join((type(self).__doc__ or "").split())
        self.extra = extra
        super().__init__(self.detail)

    @property
    def retry_after_seconds(self) -> int | None:
        """Seconds for a ``Retry-After`` header; errors of category WAIT always have one."""
        value = self.extra.get("retry_after_seconds")
        if value is None and self.category is Category.WAIT:
            return 1
        return value

    def to_problem(self) -> dict[str, Any]:
        """The RFC 9457 body (``application/problem+json``)."""
        return {
            "type": "about:blank",
            "status": self.status,
            "title": _TITLES.get(self.status, "Error"),
            "detail": self.detail,
            "code": self.code,
            **{k: v for k, v in self.extra.items() if v is not None},
        }

    @staticmethod
    def from_problem(problem: dict[str, Any]) -> SandloomError:
        """The exception for a problem body; an unknown code becomes a plain ``SandloomError``."""
        known = {"type", "status", "title", "detail", "code"}
        extra = {k: v for k, v in problem.items() if k not in known and isinstance(k, str)}
        cls = REGISTRY.get(str(problem.get("code")), SandloomError)
        return cls(str(problem.get("detail") or "") or None, **extra)


REGISTRY[SandloomError.code] = SandloomError

_TITLES = {
    400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed",
    408: "Request Timeout", 409: "Conflict", 410: "Gone", 411: "Length Required", 413: "Content Too Large",
    415: "Unsupported Media Type", 416: "Range Not Satisfiable", 422: "Unprocessable Content",
    429: "Too Many Requests", 431: "Request Header Fields Too Large", 500: "Internal Server Error",
    501: "Not Implemented", 503: "Service Unavailable", 507: "Insufficient Storage",
}  # fmt: skip


# --- the call itself -------------------------------------------------------------------------------------------------


class Unauthorized(SandloomError):
    """Send a valid token as 'Authorization: Bearer <token>'."""

    code, status, category = "UNAUTHORIZED", 401, Category.CHANGE


class NotFound(SandloomError):
    """There is nothing at this address."""

    code, status, category = "NOT_FOUND", 404, Category.CHANGE


class MethodNotAllowed(SandloomError):
    """This address does not take that method; the Allow header lists those it takes."""

    code, status, category = "METHOD_NOT_ALLOWED", 405, Category.CHANGE


class MalformedRequest(SandloomError):
    """The request cannot be read: the body must be a JSON object in UTF-8."""

    code, status, category = "MALFORMED_REQUEST", 400, Category.CHANGE


class UnsupportedMediaType(SandloomError):
    """Send the body as application/json."""

    code, status, category = "UNSUPPORTED_MEDIA_TYPE", 415, Category.CHANGE


class ValidationFailed(SandloomError):
    """A field of the request is not acceptable; 'errors' names it."""

    code, status, category = "VALIDATION_FAILED", 422, Category.CHANGE


class BodyTooLarge(SandloomError):
    """The body is larger than this route accepts."""

    code, status, category = "BODY_TOO_LARGE", 413, Category.CHANGE


class RequestTimeout(SandloomError):
    """The body did not arrive in time; send it again."""

    code, status, category, retryable = "REQUEST_TIMEOUT", 408, Category.WAIT, True


class RangeNotSatisfiable(SandloomError):
    """The requested range lies outside the file."""

    code, status, category = "RANGE_NOT_SATISFIABLE", 416, Category.CHANGE


class Unavailable(SandloomError):
    """A part the service needs does not answer at the moment; repeat the call."""

    code, status, category, retryable = "SERVICE_UNAVAILABLE", 503, Category.WAIT, True


# --- sandboxes -------------------------------------------------------------------------------------------------------


class SandboxNotFound(SandloomError):
    """No sandbox of this id exists; resolve it first."""

    code, status, category = "SANDBOX_NOT_FOUND", 404, Category.CHANGE


class StaleRoute(SandloomError):
    """The generation, owner or owner epoch is no longer current; resolve the sandbox again."""

    code, status, category = "STALE_SANDBOX_ROUTE", 409, Category.CHANGE


class StaleGeneration(SandloomError):
    """The generation is no longer current; resolve the sandbox again."""

    code, status, category = "STALE_SANDBOX_GENERATION", 409, Category.CHANGE


class ScopeMismatch(SandloomError):
    """This sandbox id belongs to another workspace_scope_id."""

    code, status, category = "SANDBOX_SCOPE_MISMATCH", 409, Category.CHANGE


class NoWorkerAvailable(SandloomError):
    """No live worker of this profile has a free slot; try again, or add workers."""

    code, status, category, retryable = "NO_SANDBOX_WORKER_AVAILABLE", 503, Category.WAIT, True


class WorkerLost(SandloomError):
    """The worker that owns the sandbox does not answer."""

    code, status, category = "SANDBOX_WORKER_LOST", 503, Category.WAIT


class SandboxSuspended(SandloomError):
    """The sandbox is suspended; resume it first."""

    code, status, category = "SANDBOX_SUSPENDED", 409, Category.CHANGE


class SandboxNotReady(SandloomError):
    """The sandbox is not ready; connect it first."""

    code, status, category = "SANDBOX_NOT_READY", 409, Category.CHANGE


class SandboxBusy(SandloomError):
    """Something runs in the sandbox; wait until it is quiet."""

    code, status, category = "SANDBOX_BUSY", 409, Category.WAIT


class WorkspaceFailed(SandloomError):
    """The worker could not make the workspace ready; its log has the reason."""

    code, status, category, retryable = "SANDBOX_WORKSPACE_FAILED", 503, Category.WAIT, True


# --- execs -----------------------------------------------------------------------------------------------------------


class ExecNotFound(SandloomError):
    """No exec of this id exists in the sandbox."""

    code, status, category = "SANDBOX_EXEC_NOT_FOUND", 404, Category.CHANGE


class ExecIdConflict(SandloomError):
    """This exec_id was used for another request; choose a new one."""

    code, status, category = "SANDBOX_EXEC_ID_CONFLICT", 409, Category.CHANGE


class ScopeBusy(SandloomError):
    """The exec_scope, or a command without a scope, is running; wait for it or cancel it."""

    code, status, category = "SANDBOX_EXEC_SCOPE_BUSY", 409, Category.WAIT


class ParallelLimit(SandloomError):
    """The sandbox already runs as many commands as it may."""

    code, status, category, retryable = "SANDBOX_PARALLEL_EXEC_LIMIT", 429, Category.WAIT, True


class QueueFull(SandloomError):
    """The worker's queue is at its bound."""

    code, status, category, retryable = "SANDBOX_QUEUE_FULL", 429, Category.WAIT, True


class EnvironmentRefused(SandloomError):
    """A name in env is owned by the runtime."""

    code, status, category = "SANDBOX_ENV_REFUSED", 400, Category.CHANGE


class CredentialBrokerUnavailable(SandloomError):
    """sensitive_env needs a credential broker, and this deployment has none."""

    code, status, category = "SANDBOX_CREDENTIAL_BROKER_UNAVAILABLE", 400, Category.CHANGE


class ModelAccessUnavailable(SandloomError):
    """model_access needs network mode 'isolated' or 'allowlist' and a configured credential broker."""

    code, status, category = "SANDBOX_MODEL_ACCESS_UNAVAILABLE", 409, Category.STOP


class EgressPolicyUnsupported(SandloomError):
    """This deployment cannot enforce an egress policy; leave out 'egress' or use network mode 'allowlist'."""

    code, status, category = "SANDBOX_EGRESS_POLICY_UNSUPPORTED", 409, Category.STOP


class LimitsExceeded(SandloomError):
    """A requested limit is above what the deployment allows, or cannot be enforced here."""

    code, status, category = "SANDBOX_LIMITS_UNAVAILABLE", 409, Category.CHANGE


class ProgramNotFound(SandloomError):
    """The program does not exist inside the sandbox."""

    code, status, category = "SANDBOX_PROGRAM_NOT_FOUND", 422, Category.CHANGE


class ProgramNotExecutable(SandloomError):
    """The program cannot be executed: it is a directory, lacks permission or has no valid format."""

    code, status, category = "SANDBOX_PROGRAM_NOT_EXECUTABLE", 422, Category.CHANGE


class WorkingDirectoryUnavailable(SandloomError):
    """cwd does not exist inside the sandbox, or is not a directory the command may enter."""

    code, status, category = "SANDBOX_CWD_UNAVAILABLE", 422, Category.CHANGE


class LaunchFailed(SandloomError):
    """The isolation could not be set up, so the command was not started; its detail has the cause."""

    code, status, category = "SANDBOX_LAUNCH_FAILED", 503, Category.WAIT


class QueueTimeout(SandloomError):
    """The command waited in the queue longer than allowed and was never started."""

    code, status, category, retryable = "SANDBOX_QUEUE_TIMEOUT", 503, Category.WAIT, True


# --- streams ---------------------------------------------------------------------------------------------------------


class CursorInvalid(SandloomError):
    """The cursor is not a whole number from 0."""

    code, status, category = "SANDBOX_CURSOR_INVALID", 400, Category.CHANGE


class CursorAhead(SandloomError):
    """The cursor lies after the newest event."""

    code, status, category = "SANDBOX_CURSOR_AHEAD", 409, Category.CHANGE


class EventsPruned(SandloomError):
    """Events after this cursor were already removed; 'first_available_seq' says where the rest begins."""

    code, status, category = "SANDBOX_EVENTS_PRUNED", 410, Category.CHANGE


class StreamLimit(SandloomError):
    """This API process serves as many streams as it may."""

    code, status, category, retryable = "SANDBOX_STREAM_LIMIT", 503, Category.WAIT, True


# --- files -----------------------------------------------------------------------------------------------------------


class PathInvalid(SandloomError):
    """Paths are absolute, below /workspace (for reading and listing also /home and /envs), without '..' or NUL."""

    code, status, category = "SANDBOX_PATH_INVALID", 400, Category.CHANGE


class FileMissing(SandloomError):
    """There is no such file or directory."""

    code, status, category = "SANDBOX_FILE_NOT_FOUND", 404, Category.CHANGE


class FileExists(SandloomError):
    """Something of that name exists already."""

    code, status, category = "SANDBOX_FILE_EXISTS", 409, Category.CHANGE


class FileKindUnsupported(SandloomError):
    """The path is a link, directory, FIFO, socket or device where a regular file or directory is needed."""

    code, status, category = "SANDBOX_FILE_KIND_UNSUPPORTED", 409, Category.CHANGE


class FileTooLarge(SandloomError):
    """The file is larger than this call carries; use the raw route."""

    code, status, category = "SANDBOX_FILE_TOO_LARGE", 413, Category.CHANGE


class DirectoryNotEmpty(SandloomError):
    """The directory has entries; pass recursive to delete them too."""

    code, status, category = "SANDBOX_DIRECTORY_NOT_EMPTY", 409, Category.CHANGE


class FilePathLocked(SandloomError):
    """Another file call holds this path, or a lifecycle command is running."""

    code, status, category = "SANDBOX_FILE_PATH_LOCKED", 409, Category.WAIT


class FileAccessDenied(SandloomError):
    """The file system refuses that for this path."""

    code, status, category = "SANDBOX_FILE_ACCESS_DENIED", 403, Category.CHANGE


class DiskFull(SandloomError):
    """The disk or the sandbox's disk budget is full; delete something first."""

    code, status, category = "SANDBOX_DISK_FULL", 507, Category.CHANGE


class OperationExpired(SandloomError):
    """The call reached the worker after its deadline, so nothing was done."""

    code, status, category = "SANDBOX_OPERATION_EXPIRED", 503, Category.WAIT


class OperationSeen(SandloomError):
    """This operation was already carried out or tried; it is not done twice."""

    code, status, category = "SANDBOX_OPERATION_REPEATED", 409, Category.CHANGE


# --- messages and start ----------------------------------------------------------------------------------------------


class EnvelopeRefused(SandloomError):
    """The message is not signed by a known key, or was changed, or its deadline has passed."""

    code, status, category = "SANDBOX_ENVELOPE_REFUSED", 403, Category.CHANGE


class DirectTasksOff(SandloomError):
    """Direct tasks are switched off in this deployment."""

    code, status, category = "SANDBOX_DIRECT_TASKS_OFF", 403, Category.STOP


class SettingsInvalid(SandloomError):
    """The settings cannot work; every problem is named by its variable."""

    code, status, category = "SANDBOX_SETTINGS_INVALID", 500, Category.STOP
    exit_code: ClassVar[int] = 2


class SchemaBehind(SandloomError):
    """The database schema lacks something that this release needs; run 'sandloom db upgrade'."""

    code, status, category = "SANDBOX_SCHEMA_BEHIND", 500, Category.STOP
    exit_code: ClassVar[int] = 3


class IsolationBlocked(SandloomError):
    """The requested isolation cannot be enforced on this machine; 'sandloom doctor' names the fix."""

    code, status, category = "SANDBOX_ISOLATION_BLOCKED", 500, Category.STOP
    exit_code: ClassVar[int] = 2


class WorkerIdInUse(SandloomError):
    """A worker with this id is alive elsewhere; stop it, or give this one another SANDBOX_WORKER_ID."""

    code, status, category = "SANDBOX_WORKER_ID_IN_USE", 500, Category.STOP
    exit_code: ClassVar[int] = 2
