"""Errors of keys, quotas and rates."""

from __future__ import annotations

from sandloom.errors.base import Category, SandloomError


class KeyNotFound(SandloomError):
    """There is no key of this id."""

    code, status, category = "SANDBOX_KEY_NOT_FOUND", 404, Category.CHANGE


class KeyScopeMissing(SandloomError):
    """The key was not given the scope that this call needs; 'scope' names it."""

    code, status, category = "SANDBOX_KEY_SCOPE_MISSING", 403, Category.CHANGE


class QuotaExceeded(SandloomError):
    """The tenant has as much as it may have; 'quota' names which, 'limit' and 'used' are its numbers."""

    code, status, category = "SANDBOX_QUOTA_EXCEEDED", 429, Category.WAIT


class RateLimited(SandloomError):
    """The tenant sends more calls than it may; wait for as long as Retry-After says."""

    code, status, category, retryable = "SANDBOX_RATE_LIMITED", 429, Category.WAIT, True
