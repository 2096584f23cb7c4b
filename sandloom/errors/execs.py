"""Errors of commands."""

from __future__ import annotations

from sandloom.errors.base import Category, SandloomError


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
