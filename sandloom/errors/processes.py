"""Errors between processes, and those that keep one from starting."""

from __future__ import annotations

from typing import ClassVar

from sandloom.errors.base import Category, SandloomError


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


class DatabaseDriverMissing(SandloomError):
    """The Python driver that the database URL names is not installed."""

    code, status, category = "SANDBOX_DATABASE_DRIVER_MISSING", 500, Category.STOP
    exit_code: ClassVar[int] = 2


class DatabaseUnsuitable(SandloomError):
    """The database server is set up in a way that would break a promise; change what the message names."""

    code, status, category = "SANDBOX_DATABASE_UNSUITABLE", 500, Category.STOP
    exit_code: ClassVar[int] = 2


class IsolationBlocked(SandloomError):
    """The requested isolation cannot be enforced on this machine; 'sandloom doctor' names the fix."""

    code, status, category = "SANDBOX_ISOLATION_BLOCKED", 500, Category.STOP
    exit_code: ClassVar[int] = 2


class WorkerNotFound(SandloomError):
    """No worker with this id has ever registered."""

    code, status, category = "SANDBOX_WORKER_NOT_FOUND", 404, Category.CHANGE


class WorkerIdInUse(SandloomError):
    """A worker with this id is alive elsewhere; stop it, or give this one another SANDBOX_WORKER_ID."""

    code, status, category = "SANDBOX_WORKER_ID_IN_USE", 500, Category.STOP
    exit_code: ClassVar[int] = 2


class BatchInvalid(SandloomError):
    """The batch cannot be run: its jobs, its journal and its files do not go together."""

    code, status, category = "SANDBOX_BATCH_INVALID", 422, Category.CHANGE
    exit_code: ClassVar[int] = 2
