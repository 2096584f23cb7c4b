"""Errors of templates."""

from __future__ import annotations

from sandloom.errors.base import Category, SandloomError


class TemplateNotFound(SandloomError):
    """There is no template of this name, or no such revision of it; publish it first."""

    code, status, category = "SANDBOX_TEMPLATE_NOT_FOUND", 404, Category.CHANGE


class TemplateConflict(SandloomError):
    """Two revisions of one template cannot be attached to one sandbox."""

    code, status, category = "SANDBOX_TEMPLATE_CONFLICT", 409, Category.CHANGE


class TemplateNameTaken(SandloomError):
    """The operator has a template of this name; choose another one."""

    code, status, category = "SANDBOX_TEMPLATE_NAME_TAKEN", 409, Category.CHANGE


class TemplateInvalid(SandloomError):
    """The template's archive is damaged or no template; publish it again."""

    code, status, category = "SANDBOX_TEMPLATE_INVALID", 409, Category.CHANGE
