"""``python -m sandloom.execution.native.build``: compiles what is here in C where a compiler is there.

Exit status 0 also without one: Python does the same. 1 when the compiler or every directory fails.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from sandloom.execution.native import library

_COMPILERS = ("cc", "gcc", "clang")
_FLAGS = ("-std=gnu11", "-O2", "-fPIC", "-shared", "-Wall", "-Wextra", "-fstack-protector-strong")
_LINKER_FLAGS = ("-Wl,-z,relro,-z,now,-z,noexecstack",)
_TIMEOUT_SECONDS = 60


class BuildFailed(Exception):
    """The library cannot be built; the message says why."""


def compiler() -> list[str] | None:
    """The command of the C compiler: ``CC``, else the first that is installed."""
    wanted = shlex.split(os.environ.get("CC", ""))
    if wanted:
        return wanted if shutil.which(wanted[0]) else None
    return next(([path] for name in _COMPILERS if (path := shutil.which(name))), None)


def build(source: Path = library.SOURCE) -> Path | None:
    """The library of ``source``, built if it is not there; ``None`` without a compiler. Raises ``BuildFailed``."""
    found = library.find(source)
    if found is not None:
        return found
    command = compiler()
    if command is None:
        return None
    problems = []
    for directory in library.directories():
        try:
            return _build_in(directory, command, source)
        except OSError as error:
            problems.append(str(error))
    raise BuildFailed("; ".join(problems))


def _build_in(directory: Path, command: list[str], source: Path) -> Path:
    directory.mkdir(mode=0o755, parents=True, exist_ok=True)
    target = directory / library.file_name(source)
    with tempfile.TemporaryDirectory(prefix=".build-", dir=directory) as scratch:
        draft = Path(scratch, target.name)
        _compile([*command, *_FLAGS, *_LINKER_FLAGS, "-o", str(draft), str(source)])
        draft.chmod(0o755)
        draft.rename(target)
    if not library.trusted(target):
        target.unlink()
        raise PermissionError(f"{directory} is writable for others")
    return target


def _compile(argv: list[str]) -> None:
    try:
        run = subprocess.run(argv, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise BuildFailed(f"{argv[0]} takes too long") from error
    if run.returncode != 0:
        raise BuildFailed(f"{argv[0]}: {run.stderr.strip() or run.returncode}")


def main() -> int:
    try:
        built = [build(source) for source in library.SOURCES]
    except BuildFailed as error:
        print(f"the native helpers cannot be built, commands and archives take longer: {error}", file=sys.stderr)
        return 1
    if None in built:
        print("no C compiler: commands and archives take longer", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
