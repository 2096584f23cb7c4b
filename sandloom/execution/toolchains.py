"""What each toolchain puts into the environment of commands. Pure.

Caches lie in ``/cache``, installs in hidden directories of ``/envs``, whose names no template can have.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from sandloom.execution.environment import PATH
from sandloom.execution.spec import Limits


@dataclass(frozen=True, slots=True)
class Toolchain:
    """``check``: a shell script that uses the toolchain and ends with a line that names its version."""

    program: str
    bin_dirs: tuple[str, ...]
    env: Mapping[str, str]
    check: str


TOOLCHAINS: Mapping[str, Toolchain] = {
    "python": Toolchain(
        "python3",
        ("/envs/.python/bin",),
        {
            "PIP_CACHE_DIR": "/cache/pip",
            # The system's directories are read-only, so what pip installs outside of an environment goes here.
            "PYTHONUSERBASE": "/envs/.python",
            "PIP_BREAK_SYSTEM_PACKAGES": "1",
            "UV_CACHE_DIR": "/cache/uv",
            "UV_TOOL_DIR": "/envs/.python/uv-tools",
            "UV_TOOL_BIN_DIR": "/envs/.python/bin",
            "UV_PYTHON_INSTALL_DIR": "/envs/.python/uv-pythons",
        },
        "python3 -c 'import platform, ssl, subprocess; subprocess.run([\"true\"]); print(platform.python_version())'",
    ),
    "node": Toolchain(
        "node",
        ("/envs/.node/bin",),
        {
            "npm_config_cache": "/cache/npm",
            "npm_config_prefix": "/envs/.node",
            "COREPACK_HOME": "/cache/corepack",
            "YARN_CACHE_FOLDER": "/cache/yarn",
        },
        'node -e \'require("child_process").execSync("true"); console.log(process.version)\'',
    ),
    "go": Toolchain(
        "go",
        ("/envs/.go/bin",),
        {
            "GOPATH": "/envs/.go",
            "GOCACHE": "/cache/go-build",
            "GOMODCACHE": "/cache/go-mod",
            "GOTOOLCHAIN": "local",
        },
        "go list fmt >/dev/null && go version",
    ),
    "rust": Toolchain(
        "rustc",
        ("/envs/.rust/bin",),
        {"CARGO_HOME": "/cache/cargo", "CARGO_INSTALL_ROOT": "/envs/.rust", "RUSTUP_HOME": "/envs/.rustup"},
        "echo 'fn main() {}' | rustc --emit=metadata -o /tmp/checked - && cargo --version && rustc --version",
    ),
    "java": Toolchain(
        "java",
        (),
        {"GRADLE_USER_HOME": "/cache/gradle"},
        "java -version >/tmp/said 2>&1 || { cat /tmp/said; exit 1; }; head -n 1 /tmp/said",
    ),
}


@dataclass(frozen=True, slots=True)
class ToolchainRequest:
    """What the deployment wants of toolchains; the fields are named as its settings are."""

    toolchains: tuple[str, ...]
    python_index_url: str | None = None
    npm_registry: str | None = None
    go_proxy: str | None = None
    go_sumdb: str | None = None
    cargo_registry_url: str | None = None
    maven_repository_url: str | None = None
    java_home: Path | None = None
    rust_launcher_dir: Path | None = None
    limits: Limits = field(default_factory=Limits)

    @classmethod
    def of(cls, settings: Any) -> ToolchainRequest:
        """Taken from an object with attributes of the same names."""
        own = {name: getattr(settings, name) for name in _names(cls) if name != "limits"}
        return cls(**own, limits=Limits(**{name: getattr(settings, name) for name in _names(Limits)}))


def _names(cls: type[Any]) -> list[str]:
    return [found.name for found in fields(cls)]


def environment_of(request: ToolchainRequest, launchers: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The variables of all toolchains, PATH included. ``launchers``: directories that go before a toolchain's own."""
    env: dict[str, str] = {}
    path: list[str] = []
    for name in request.toolchains:
        env |= TOOLCHAINS[name].env
        path += [*launchers.get(name, ()), *TOOLCHAINS[name].bin_dirs]
    if path:
        env["PATH"] = ":".join([*path, PATH])
    return env | mirrors(request)


def mirrors(request: ToolchainRequest) -> dict[str, str]:
    """Where the toolchains fetch from, as far as a variable can say it; Cargo and Maven are told in files."""
    values = {
        "PIP_INDEX_URL": request.python_index_url,
        "UV_DEFAULT_INDEX": request.python_index_url,
        "npm_config_registry": request.npm_registry,
        "GOPROXY": request.go_proxy,
        "GOSUMDB": request.go_sumdb,
    }
    return {name: value for name, value in values.items() if value}
