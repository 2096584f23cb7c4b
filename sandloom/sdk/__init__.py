"""The REST clients. ``from sandloom import Client, AsyncClient`` is the way in."""

from __future__ import annotations

from sandloom.sdk.client import Client
from sandloom.sdk.events import Event
from sandloom.sdk.files import Files
from sandloom.sdk.process import Process
from sandloom.sdk.results import CommandFailed, Result
from sandloom.sdk.sandbox import Sandbox

__all__ = ["Client", "CommandFailed", "Event", "Files", "Process", "Result", "Sandbox"]
