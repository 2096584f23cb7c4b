"""Errors of file calls."""

from __future__ import annotations

from sandloom.errors.base import Category, SandloomError


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


class ArchiveInvalid(SandloomError):
    """The body is not a tar archive that may be extracted: it is damaged, cut off, or an entry leads outside."""

    code, status, category = "SANDBOX_ARCHIVE_INVALID", 400, Category.CHANGE


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
