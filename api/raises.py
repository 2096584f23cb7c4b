"""What each kind of call may be refused with: a route names its kinds, and the OpenAPI document lists their codes."""

from __future__ import annotations

from sandloom import errors as e

Errors = tuple[type[e.SandloomError], ...]

#: Of every call: an address that cannot be read or is too long, a part that is down, a fault of the service.
EVERY_CALL: Errors = (e.MalformedRequest, e.SandloomError, e.Unavailable, e.CommitUnknown, e.BrokerRefused)
WITH_TOKEN: Errors = (e.Unauthorized, e.ValidationFailed, e.KeyScopeMissing, e.NotFound, e.RateLimited)
WITH_BODY: Errors = (e.UnsupportedMediaType, e.BodyTooLarge, e.RequestTimeout)
WITH_RAW_BODY: Errors = (e.BodyTooLarge, e.RequestTimeout)

#: Of a sandbox whose row is read.
KNOWN: Errors = (e.SandboxNotFound,)
FENCED: Errors = (*KNOWN, e.StaleRoute, e.SandboxSuspended, e.SuspendInProgress)
#: Of a call that the owner carries out, and for which it makes the workspace ready when it is not.
OWNED: Errors = (
    *FENCED, e.WorkerLost, e.WorkspaceFailed, e.FilePathLocked, e.DiskFull, e.OperationExpired, e.OperationSeen,
    e.EnvelopeRefused,
)  # fmt: skip
#: Of what brings a sandbox back from a snapshot.
RESTORED: Errors = (
    e.NoWorkerAvailable, e.DormantWorkspaceUnavailable, e.ObjectStoreUnavailable, e.DigestMismatch,
    e.SnapshotUnavailable, e.SnapshotFailed, e.TemplateNotFound, e.TemplateInvalid,
)  # fmt: skip
RESOLVED: Errors = (*OWNED, *RESTORED, e.ScopeMismatch, e.SandboxBusy, e.QuotaExceeded)
SUSPENDED: Errors = (
    *OWNED, e.StaleGeneration, e.SuspendBusy, e.SandboxNotReady, e.ObjectStoreUnavailable, e.DigestMismatch,
    e.SnapshotUnavailable, e.SnapshotFailed,
)  # fmt: skip
FORKED: Errors = (*RESOLVED, e.SandboxExists, e.SandboxNotReady, e.StaleGeneration)

STARTED: Errors = (
    *OWNED, e.ExecIdConflict, e.ScopeBusy, e.ParallelLimit, e.QueueFull, e.SandboxNotReady, e.EnvironmentRefused,
    e.CredentialBrokerUnavailable, e.ModelAccessUnavailable, e.EgressPolicyUnsupported, e.LimitsExceeded,
    e.QuotaExceeded,
)  # fmt: skip
#: Of a command that was started; with a generation the call is fenced.
OF_EXEC: Errors = (*FENCED, e.ExecNotFound)
STREAMED: Errors = (*OF_EXEC, e.CursorInvalid, e.CursorAhead, e.EventsPruned, e.StreamLimit)

AT_PATH: Errors = (*OWNED, e.PathInvalid, e.FileMissing, e.FileKindUnsupported, e.FileAccessDenied)
READ: Errors = (*AT_PATH, e.FileTooLarge)
LISTED: Errors = (*AT_PATH, e.CursorInvalid)
MADE: Errors = (*AT_PATH, e.FileExists)
WRITTEN: Errors = (*AT_PATH, e.FileExists, e.FileTooLarge)
DELETED: Errors = (*AT_PATH, e.DirectoryNotEmpty)
MOVED: Errors = (*AT_PATH, e.FileExists, e.DirectoryNotEmpty)
TRANSFERRED: Errors = (*READ, e.StreamLimit, e.NotFound)
RANGE: Errors = (*TRANSFERRED, e.RangeNotSatisfiable)
UPLOADED: Errors = (*WRITTEN, e.StreamLimit, e.NotFound)
EXTRACTED: Errors = (*UPLOADED, e.ArchiveInvalid, e.DirectoryNotEmpty)

STORE: Errors = (e.ObjectStoreUnavailable, e.DigestMismatch, e.TemplateInvalid, e.WorkerLost)
UNPUBLISHED: Errors = (*STORE, e.TemplateNotFound)
BUILT: Errors = (
    *READ, *STORE, e.SandboxBusy, e.SandboxNotReady, e.TemplateNameTaken, e.SnapshotFailed,
)  # fmt: skip
ATTACHED: Errors = (*OWNED, *STORE, e.SandboxBusy, e.SandboxNotReady, e.TemplateNotFound, e.TemplateConflict)

OF_KEY: Errors = (e.KeyNotFound,)
OVER_MCP: Errors = (e.HostNotAllowed, e.OriginNotAllowed)

ON_WORKER: Errors = (e.WorkerNotFound,)
ASKED_WORKER: Errors = (*ON_WORKER, e.WorkerLost, e.EnvelopeRefused, e.OperationExpired)
