"""Errors of the object store and of what is kept there."""

from __future__ import annotations

from sandloom.errors.base import Category, SandloomError


class ObjectStoreUnavailable(SandloomError):
    """The object store does not do what it is asked; repeat the call, and look at the store if that does not help."""

    code, status, category, retryable = "OBJECT_STORE_UNAVAILABLE", 503, Category.WAIT, True


class DigestMismatch(SandloomError):
    """What was read is not what was written: the digest differs."""

    code, status, category, retryable = "OBJECT_DIGEST_MISMATCH", 503, Category.STOP, False
