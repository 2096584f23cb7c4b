"""gunicorn's settings, from ours. Read by the master before it forks; nothing is opened here."""

from __future__ import annotations

import os
from pathlib import Path

from api.gunicorn_worker import MAX_WAITING
from sandloom.settings import Role, server_settings

_settings = server_settings(os.environ, Role.API, dotenv=Path(".env"))

bind = f"[{_settings.host}]:{_settings.port}" if ":" in _settings.host else f"{_settings.host}:{_settings.port}"
worker_class = "api.gunicorn_worker.Worker"
#: Places in the streams and waits are counted per process, so more processes mean more of them.
workers = int(os.environ.get("WEB_CONCURRENCY", "1"))
#: Every held place has a thread of its own, so the API_THREADS for short calls are always there.
threads = _settings.api_threads + _settings.max_waits + _settings.max_streams + MAX_WAITING
#: Above the threads, so that kept-alive connections need none.
worker_connections = threads + 1024
keepalive = 75
#: The master kills a worker process whose main loop is stuck for this long; requests have their own bounds.
timeout = 60
graceful_timeout = 30
#: The longest request line gunicorn allows.
limit_request_line = 8190
limit_request_fields = 100
limit_request_field_size = 16384
#: Its own headers in the environ could be set by any client.
forwarded_allow_ips = ""
#: Lines per request are written by the application, with the request id.
accesslog = None
errorlog = "-"
loglevel = _settings.log_level
#: Threads and connections must be made after the fork.
preload_app = False
control_socket_disable = True
