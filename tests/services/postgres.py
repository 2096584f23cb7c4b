"""A private PostgreSQL server: own directory, own port, own password, durability left on."""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import shutil
import signal
import subprocess
import threading
from pathlib import Path

import psycopg2
import psycopg2.extensions

from tests.services.account import free_port, give, make_private, new_password, server_account
from tests.services.need import missing
from tests.services.process import NotReady, Process, base_environment

USER = "sandloom"
_CONFIGURATION = """
listen_addresses = '127.0.0.1'
max_connections = 300
shared_buffers = '64MB'
fsync = on
synchronous_commit = on
log_timezone = 'UTC'
timezone = 'UTC'
"""


def binaries() -> Path:
    """The directory of the newest installed server's programs."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: int(p.parts[-3]))
    if found:
        return found[-1].parent
    on_path = shutil.which("initdb")
    if on_path:
        return Path(on_path).resolve().parent
    missing("PostgreSQL server (package postgresql)")


class PostgresServer:
    """``directory`` may hold the data of an earlier start, which is then used again with its port and password."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._bin = binaries()
        self._account = server_account("postgres")
        self._process: Process | None = None
        self._numbers = itertools.count(1)
        self._template_lock = threading.Lock()
        self._migrated = False
        make_private(directory, self._account)
        if not (self._data / "PG_VERSION").exists():
            self._initialise()
        self.password = (directory / "password").read_text()
        self.port = int((directory / "port").read_text())

    @property
    def _data(self) -> Path:
        return self.directory / "data"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.running

    def start(self) -> None:
        """Returns when it accepts connections; a running server is left alone."""
        if self.running:
            return
        for attempt in range(5):
            process = Process(
                [self._bin / "postgres", "-D", self._data, "-p", str(self.port)],
                log_path=self.directory / "postgres.log",
                env=base_environment(),
                cwd=self.directory,
                account=self._account,
            )
            try:
                process.wait_for_output("ready to accept connections")
            except NotReady:
                process.stop()
                if attempt == 4 or "Address already in use" not in process.output():
                    raise
                self._choose_port()
            else:
                self._process = process
                return

    def stop(self) -> None:
        """Fast shutdown: open transactions are rolled back, everything committed is on disk."""
        if self._process is not None:
            self._process.stop(signal.SIGINT, timeout_seconds=60)

    def kill(self) -> None:
        """SIGKILL for the server and its backends at once; the next start recovers from the log."""
        if self._process is None or not self._process.running:
            return
        backends = [(pid, os.pidfd_open(pid)) for pid in _children(self._process.pid)]
        self._process.kill()
        for pid, descriptor in backends:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            select.select([descriptor], [], [], 60)
            os.close(descriptor)
            assert not Path(f"/proc/{pid}/root").exists(), f"backend {pid} outlived its server"

    def restart(self) -> None:
        self.stop()
        self.start()

    def url(self, database: str) -> str:
        return f"postgresql+psycopg2://{USER}:{self.password}@127.0.0.1:{self.port}/{database}"

    def new_database(self, migrated: bool = True) -> str:
        """The URL of a new database: a copy of one that holds the current schema, or an empty one."""
        name = f"test_{os.getpid()}_{next(self._numbers)}"
        template = self._template() if migrated else "template1"
        self.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
        return self.url(name)

    def drop_database(self, url: str) -> None:
        self.execute(f'DROP DATABASE IF EXISTS "{url.rsplit("/", 1)[1]}" WITH (FORCE)')

    def connect(self, database: str = "postgres") -> psycopg2.extensions.connection:
        return psycopg2.connect(
            host="127.0.0.1", port=self.port, user=USER, password=self.password, dbname=database, connect_timeout=60
        )

    def execute(self, statement: str, database: str = "postgres") -> None:
        """Runs one statement outside of a transaction."""
        connection = self.connect(database)
        try:
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute(statement)
        finally:
            connection.close()

    def exists(self, database: str) -> bool:
        connection = self.connect()
        try:
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1 FROM pg_database WHERE datname = %s", (database,))
                return cursor.fetchone() is not None
        finally:
            connection.close()

    def _template(self) -> str:
        name = "sandloom_template"
        with self._template_lock:
            if not self._migrated:
                self.execute(f'CREATE DATABASE "{name}"')
                migrate(self.url(name))
                self._migrated = True
        return name

    def _choose_port(self) -> None:
        self.port = free_port()
        (self.directory / "port").write_text(str(self.port))

    def _initialise(self) -> None:
        password_file = self.directory / "password"
        password_file.touch(mode=0o600)
        password_file.write_text(new_password())
        give(password_file, self._account)
        self._choose_port()
        # fmt: off
        subprocess.run(
            [self._bin / "initdb", "-D", self._data, "-U", USER, f"--pwfile={password_file}", "--auth=scram-sha-256",
             "--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions"],
            check=True, capture_output=True, cwd=self.directory, env=base_environment(),
            user=self._account.uid, group=self._account.gid,
            extra_groups=None if self._account.uid is None else [],
        )
        # fmt: on
        with (self._data / "postgresql.conf").open("a") as configuration:
            configuration.write(_CONFIGURATION)
            configuration.write(f"unix_socket_directories = '{self.directory}'\n")


def _children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(number) for number in text.split()]


def migrate(url: str) -> None:
    """Brings the database at ``url`` to the current schema and lets go of it."""
    from sandloom.db import open_database, upgrade

    database = open_database(url)
    try:
        upgrade(database)
    finally:
        database.dispose()
