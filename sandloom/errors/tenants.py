"""Errors of keys, quotas and rates."""

from __future__ import annotations

from typing import Self

from sandloom.errors.base import Category, SandloomError


class KeyNotFound(SandloomError):
    """There is no key of this id."""

    code, status, category = "SANDBOX_KEY_NOT_FOUND", 404, Category.CHANGE


class KeyScopeMissing(SandloomError):
    """The key was not given the scope that this call needs; have a key made that has it."""

    code, status, category = "SANDBOX_KEY_SCOPE_MISSING", 403, Category.CHANGE

    @classmethod
    def of(cls, scope: str) -> Self:
        return cls(f"The key was not given the scope '{scope}'.", scope=scope)


class QuotaExceeded(SandloomError):
    """The tenant has as much as it may have; give some back, or ask whoever runs the service for more."""

    code, status, category = "SANDBOX_QUOTA_EXCEEDED", 429, Category.WAIT


class RateLimited(SandloomError):
    """The tenant sends more calls than it may; wait for as long as Retry-After says."""

    code, status, category, retryable = "SANDBOX_RATE_LIMITED", 429, Category.WAIT, True
