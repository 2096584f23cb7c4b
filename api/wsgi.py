"""Entry point for gunicorn: ``gunicorn -c python:api.gunicorn_conf 'api.wsgi:create()'``."""

from __future__ import annotations

import os
from pathlib import Path

from flask import Flask

from api.app import create_app
from api.services import build
from sandloom.settings import Role, server_settings
from sandloom.telemetry import configure


def create() -> Flask:
    """The application from the environment; called once in each server process."""
    settings = server_settings(os.environ, Role.API, dotenv=Path(".env"))
    configure(settings.log_level, settings.log_format)
    return create_app(build(settings))
