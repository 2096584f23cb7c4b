"""The real project that the demo tests: a source release from the package index, pinned by its hash."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from sandloom.cli.invocation import Stop

NAME, VERSION = "Markdown", "3.11.3"
SHA256 = "81eb91631dc97ad1efbc76019ef0f80fe90ca49ddf81546752d79989c3bfff3e"
FILE = "markdown-3.11.3.tar.gz"


def fetch(cache_dir: Path) -> Path:
    """The source archive, from the cache or by pip. Raises Stop, saying what to do, when there is none."""
    kept = cache_dir / FILE
    if kept.is_file() and _sha256(kept) == SHA256:
        return kept
    cache_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="sandloom-demo-") as name:
        _pip_download(Path(name))
        archives = list(Path(name).glob("*.tar.gz"))
        if len(archives) != 1 or _sha256(archives[0]) != SHA256:
            raise Stop(f"the package index has another {NAME} {VERSION} than this release knows; nothing was run")
        # Within the cache's own file system the name then appears with all of its content.
        draft = kept.with_suffix(".part")
        shutil.copyfile(archives[0], draft)
        draft.replace(kept)
    return kept


def _pip_download(directory: Path) -> None:
    command = [
        sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input",
        "--retries", "2", "--no-deps", "--no-binary", ":all:", "--dest", str(directory), f"{NAME}=={VERSION}",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        reasons = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
        raise Stop(
            f"the demo needs {NAME} {VERSION} from the package index, and pip could not get it"
            f" ({reasons[-1] if reasons else 'no reason given'}).\n"
            "Connect to a package index (pip reads PIP_INDEX_URL and pip.conf), or put"
            f" {FILE} into the cache directory named above, and run it again."
        )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
