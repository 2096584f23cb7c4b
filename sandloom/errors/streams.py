"""Errors of event streams."""

from __future__ import annotations

from sandloom.errors.base import Category, SandloomError


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
