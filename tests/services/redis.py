"""A private Redis server: own directory, own ports (one of them TLS), own password, an append-only file."""

from __future__ import annotations

import itertools
import shutil
import signal
from pathlib import Path

import redis

from tests.services.account import free_port, give, make_private, new_password, server_account
from tests.services.certificates import Certificates
from tests.services.need import missing
from tests.services.process import NotReady, Process, base_environment

DATABASES = 10_000


class RedisServer:
    """``directory`` may hold the data of an earlier start, which is then used again with its port and password."""

    def __init__(self, directory: Path) -> None:
        self._binary = shutil.which("redis-server", path="/usr/bin:/usr/local/bin:/usr/sbin:/bin") or ""
        if not self._binary:
            missing("Redis server (package redis-server)")
        self.directory = directory
        self.certificates = Certificates.of(directory)
        self._account = server_account("redis")
        self._process: Process | None = None
        self._numbers = itertools.count(1)
        make_private(directory, self._account)
        self.certificates.make(self._account)
        if not (directory / "redis.conf").exists():
            self._configure(free_port(), new_password())
        self._read_configuration()

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
                [self._binary, self.directory / "redis.conf"],
                log_path=self.directory / "redis.log",
                env=base_environment(),
                cwd=self.directory,
                account=self._account,
            )
            try:
                process.wait_for_output("Ready to accept connections")
            except NotReady:
                process.stop()
                if attempt == 4 or "Address already in use" not in process.output():
                    raise
                self._configure(free_port(), self.password)
                self._read_configuration()
            else:
                self._process = process
                return

    def stop(self) -> None:
        """Orderly shutdown, data kept."""
        if self._process is not None:
            self._process.stop(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL; what the last fsync of the append-only file did not reach is lost."""
        if self._process is not None:
            self._process.kill()

    def restart(self, empty: bool = False) -> None:
        """``empty``: comes back without any data, as after the loss of its disk."""
        if empty:
            self.kill()
            shutil.rmtree(self.directory / "appendonlydir", ignore_errors=True)
            for leftover in self.directory.glob("*.[ar][od][fb]"):
                leftover.unlink()
        else:
            self.stop()
        self.start()

    def flush(self) -> None:
        """Removes every key of every database, connections stay."""
        with self.client() as client:
            client.flushall()

    def url(self, db: int = 0) -> str:
        return f"redis://:{self.password}@127.0.0.1:{self.port}/{db}"

    def tls_url(self, db: int = 0) -> str:
        """Without the certificate authority, which a client must be told."""
        return f"rediss://:{self.password}@127.0.0.1:{self.tls_port}/{db}"

    def new_url(self) -> str:
        """The URL of a database number that nobody was given before."""
        return self.url(self.new_database())

    def new_database(self) -> int:
        return next(self._numbers) % DATABASES

    def client(self, db: int = 0) -> redis.Redis:
        return redis.Redis(host="127.0.0.1", port=self.port, password=self.password, db=db)

    def _configure(self, port: int, password: str) -> None:
        lines = [
            "bind 127.0.0.1",
            f"port {port}",
            f"tls-port {free_port()}",
            f"tls-cert-file {self.certificates.certificate}",
            f"tls-key-file {self.certificates.key}",
            f"tls-ca-cert-file {self.certificates.ca}",
            "tls-auth-clients no",
            f"requirepass {password}",
            f"dir {self.directory}",
            f"databases {DATABASES}",
            "appendonly yes",
            "appendfsync everysec",
            'save ""',
            "daemonize no",
            "protected-mode yes",
        ]
        path = self.directory / "redis.conf"
        path.touch(mode=0o600)
        path.write_text("\n".join(lines) + "\n")
        give(path, self._account)

    def _read_configuration(self) -> None:
        pairs = dict(line.split(" ", 1) for line in (self.directory / "redis.conf").read_text().splitlines())
        self.port, self.tls_port, self.password = int(pairs["port"]), int(pairs["tls-port"]), pairs["requirepass"]
