"""A private MariaDB server: own directory, own port, own password. It never waits for the disk, so that it outlives
a crash of its process and not one of the machine."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pymysql

from tests.services.account import free_port, give, make_private, new_password, server_account
from tests.services.need import missing
from tests.services.postgres import migrate
from tests.services.process import NotReady, Process, base_environment

USER = "sandloom"
_SYSTEM_TABLES = ("mysql_system_tables.sql", "mysql_performance_tables.sql")
_OPTIONS = (
    "--bind-address=127.0.0.1",
    "--innodb-flush-method=nosync",
    "--innodb-log-file-size=64M",
    "--innodb-buffer-pool-size=64M",
    "--max-connections=300",
)


def binary() -> Path:
    """The server's program."""
    found = shutil.which("mariadbd", path="/usr/sbin:/usr/local/sbin:/usr/local/bin:/usr/bin")
    if found:
        return Path(found)
    missing("MariaDB server (package mariadb-server-core)")


class MariaDBServer:
    """``directory`` may hold the data of an earlier start, which is then used again with its port and password."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._binary = binary()
        self._account = server_account("mysql")
        self._process: Process | None = None
        self._numbers = itertools.count(1)
        make_private(directory, self._account)
        if not (directory / "port").exists():
            self._initialise()
        self.password = (directory / "password").read_text()
        self.port = int((directory / "port").read_text())

    @property
    def _data(self) -> Path:
        return self.directory / "data"

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.running

    def start(self) -> None:
        """Returns when it accepts connections; a running server is left alone."""
        if self.running:
            return
        for attempt in range(5):
            process = Process(
                [*self._command(), f"--port={self.port}", f"--socket={self.directory}/socket",
                 f"--pid-file={self.directory}/pid"],
                log_path=self.directory / "mariadb.log", env=base_environment(), cwd=self.directory,
                account=self._account,
            )  # fmt: skip
            try:
                process.wait_for_output("ready for connections")
            except NotReady:
                process.stop()
                if attempt == 4 or "Address already in use" not in process.output():
                    raise
                self._choose_port()
            else:
                self._process = process
                return

    def stop(self) -> None:
        """Open transactions are rolled back."""
        if self._process is not None:
            self._process.stop(signal.SIGTERM, timeout_seconds=60)

    def kill(self) -> None:
        """SIGKILL; the next start recovers from the log."""
        if self._process is not None:
            self._process.kill()

    def url(self, database: str, *, port: int | None = None) -> str:
        return f"mariadb+pymysql://{USER}:{self.password}@127.0.0.1:{port or self.port}/{database}"

    def new_database(self, migrated: bool = True) -> str:
        """The URL of a new database, with the current schema or empty."""
        name = f"test_{os.getpid()}_{next(self._numbers)}"
        self.execute(f"CREATE DATABASE `{name}`")
        if migrated:
            migrate(self.url(name))
        return self.url(name)

    def drop_database(self, url: str) -> None:
        """Also when connections are open."""
        self.execute(f"DROP DATABASE `{url.rsplit('/', 1)[1]}`")

    def connect(self, database: str | None = None) -> pymysql.Connection:
        return pymysql.connect(
            host="127.0.0.1", port=self.port, user=USER, password=self.password, database=database, connect_timeout=60
        )

    def execute(self, statement: str) -> None:
        """One statement that commits by itself."""
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(statement)
            connection.commit()

    def _command(self) -> list[str]:
        return [str(self._binary), "--no-defaults", f"--datadir={self._data}", *_OPTIONS]

    def _choose_port(self) -> None:
        self.port = free_port()
        (self.directory / "port").write_text(str(self.port))

    def _initialise(self) -> None:
        """The system tables, and one account that may do everything."""
        make_private(self._data, self._account)
        password_file = self.directory / "password"
        password_file.touch(mode=0o600)
        password_file.write_text(new_password())
        give(password_file, self._account)
        shared = self._binary.parents[1] / "share" / "mysql"
        if not shared.is_dir():
            shared = self._binary.parents[1] / "share" / "mariadb"
        script = "\n".join(
            (
                "CREATE DATABASE mysql;",
                "USE mysql;",
                *((shared / name).read_text() for name in _SYSTEM_TABLES),
                "FLUSH PRIVILEGES;",
                f"CREATE USER '{USER}'@'127.0.0.1' IDENTIFIED BY '{password_file.read_text()}';",
                f"GRANT ALL ON *.* TO '{USER}'@'127.0.0.1';",
                "",
            )
        )
        subprocess.run(
            [*self._command(), "--bootstrap"], input=script.encode(), check=True, capture_output=True,
            cwd=self.directory, env=base_environment(), user=self._account.uid, group=self._account.gid,
            extra_groups=None if self._account.uid is None else [],
        )  # fmt: skip
        self._choose_port()
