"""What to do about an error, in words of the command line."""

from __future__ import annotations

import httpx

from sandloom.errors import NotFound, SandloomError, Unavailable


def told(error: SandloomError) -> str:
    """The error's own text, and what the service or the SDK cannot know: how commands are called and configured."""
    if isinstance(error, Unavailable) and isinstance(error.__cause__, httpx.ConnectError):
        return f"{error}; start one with 'sandloom up', or name another by SANDBOX_BASE_URL or SANDBOX_PORT"
    if isinstance(error, NotFound):
        return (
            "there is nothing at this address for this token; what operators do (key, tenant, worker, usage"
            " --all-tenants) and another tenant (--tenant, SANDBOX_TENANT) need the operator's token in"
            " SANDBOX_INTERNAL_TOKEN, and no SANDBOX_API_KEY, which goes first"
        )
    return str(error)
