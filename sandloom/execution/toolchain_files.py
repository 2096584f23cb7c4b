"""Files that toolchains need beside the system's: mirrors of Cargo and Maven, and launchers where there is no /proc.

They lie in one directory of the worker, which every command sees read-only at ``/run/toolchains``. Without /proc,
Java's programs do not find their libraries and Rust's end when they ask for their own path; a launcher tells them.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from sandloom.execution.argv import TOOLCHAIN_TARGET
from sandloom.execution.native import library
from sandloom.execution.spec import Plan
from sandloom.execution.toolchains import ToolchainRequest, environment_of

_SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
_RUST_PROGRAMS = ("cargo", "rustc", "rustdoc", "rustfmt", "cargo-fmt", "cargo-clippy", "clippy-driver")
_MAVEN_SETTINGS = f"{TOOLCHAIN_TARGET}/maven/settings.xml"
_PRELOADED = f"{TOOLCHAIN_TARGET}/rust/exe.so"


@dataclass(frozen=True, slots=True)
class Prepared:
    """``env``: what every command gets. ``directory``: for the plan; ``None`` when no file is needed. ``hints``: what
    an operator should know, by toolchain."""

    env: dict[str, str]
    directory: str | None
    hints: dict[str, str]


def prepare(request: ToolchainRequest, plan: Plan, directory: Path) -> Prepared:
    """Make ``directory`` anew for commands with ``plan``. Raises ``OSError``."""
    shutil.rmtree(directory, ignore_errors=True)
    launchers: dict[str, list[str]] = {}
    env: dict[str, str] = {}
    hints: dict[str, str] = {}
    if "rust" in request.toolchains:
        launchers["rust"] = list(_rust(request, plan, directory, hints))
        if request.cargo_registry_url:
            _write(directory / "cargo" / "config.toml", _cargo_config(request.cargo_registry_url))
    if "java" in request.toolchains:
        # Maven reads the variable since 3.9; the one of the system may be older.
        env["MAVEN_ARGS"] = f"-gs {_MAVEN_SETTINGS}"
        _write(directory / "maven" / "settings.xml", _maven_settings(request.maven_repository_url))
        launchers["java"] = list(_maven(directory / "maven" / "bin"))
        home = _java_home(request, plan, directory, hints)
        if home is not None:
            env["JAVA_HOME"] = home
            launchers["java"].append(f"{home}/bin")
    made = directory.exists()
    if made:
        _show_to_all(directory)
    return Prepared(environment_of(request, launchers) | env, str(directory) if made else None, hints)


def _java_home(request: ToolchainRequest, plan: Plan, directory: Path, hints: dict[str, str]) -> str | None:
    home = request.java_home or _installed_java()
    if home is None:
        return None
    if not _shown(home, plan):
        hints["java"] = f"commands do not see {home}: add it to SANDBOX_READONLY_MOUNTS"
    elif not plan.pid_namespace and (home / "bin").is_dir():
        _java_launchers(home, directory / "java")
        return f"{TOOLCHAIN_TARGET}/java"
    return str(home)


def _maven(target: Path) -> Iterator[str]:
    found = shutil.which("mvn", path=_SYSTEM_PATH)
    if found:
        _launcher(target / "mvn", "", f"{found} -gs {_MAVEN_SETTINGS}")
        yield f"{TOOLCHAIN_TARGET}/maven/bin"


def _installed_java() -> Path | None:
    found = shutil.which("java", path=_SYSTEM_PATH)
    real = Path(os.path.realpath(found)) if found else None
    return real.parent.parent if real is not None and real.parent.name == "bin" else None


def _java_launchers(home: Path, target: Path) -> None:
    """A home like the real one, apart from its programs."""
    target.mkdir(parents=True)
    for entry in sorted(os.listdir(home)):
        if entry != "bin":
            (target / entry).symlink_to(home / entry)
    libraries = f"{home}/lib:{home}/lib/server"
    for program in sorted(os.listdir(home / "bin")):
        _launcher(
            target / "bin" / program, f"LD_LIBRARY_PATH={shlex.quote(libraries)} ", shlex.quote(f"{home}/bin/{program}")
        )


def _rust(request: ToolchainRequest, plan: Plan, directory: Path, hints: dict[str, str]) -> Iterator[str]:
    if request.rust_launcher_dir is not None:
        if not _shown(request.rust_launcher_dir, plan):
            hints["rust"] = f"commands do not see {request.rust_launcher_dir}: add it to SANDBOX_READONLY_MOUNTS"
        yield str(request.rust_launcher_dir)
    elif not plan.pid_namespace:
        preloaded = library.find(library.EXE_SOURCE)
        if preloaded is None:
            hints["rust"] = "build the launch helper: python -m sandloom.execution.native.build"
            return
        for program in _RUST_PROGRAMS:
            found = shutil.which(program, path=_SYSTEM_PATH)
            if found:
                _launcher(directory / "rust" / "bin" / program, f"LD_PRELOAD={_PRELOADED} ", found)
        if (directory / "rust").exists():
            shutil.copyfile(preloaded, directory / "rust" / "exe.so")
            yield f"{TOOLCHAIN_TARGET}/rust/bin"


def _shown(path: Path, plan: Plan) -> bool:
    """Whether commands see the directory."""
    real = Path(os.path.realpath(path))
    sources: Iterable[str] = (mount.source for mount in plan.readonly_mounts if not mount.link)
    return real.is_dir() and any(real.is_relative_to(source) for source in sources)


def _launcher(path: Path, setting: str, words: str) -> None:
    _write(path, f'#!/bin/sh\n{setting}exec {words} "$@"\n')
    path.chmod(0o755)


def _cargo_config(url: str) -> str:
    return f'[source.crates-io]\nreplace-with = "mirror"\n\n[source.mirror]\nregistry = {json.dumps(url)}\n'


def _maven_settings(url: str | None) -> str:
    mirrors = ""
    if url:
        mirrors = f"<mirrors><mirror><id>mirror</id><mirrorOf>*</mirrorOf><url>{escape(url)}</url></mirror></mirrors>"
    return f"<settings><localRepository>/cache/maven</localRepository>{mirrors}</settings>\n"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _show_to_all(directory: Path) -> None:
    """Whatever the umask of the worker is."""
    for path, _, files in os.walk(directory):
        os.chmod(path, 0o755)
        for name in files:
            entry = Path(path, name)
            if not entry.is_symlink():
                entry.chmod(0o755 if entry.stat().st_mode & 0o100 else 0o644)
