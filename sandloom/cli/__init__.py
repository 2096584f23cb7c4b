"""The command line."""

from __future__ import annotations

from sandloom.cli.app import cli, main

__all__ = ["cli", "main"]
