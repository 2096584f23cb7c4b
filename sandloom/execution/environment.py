"""The environment of a command, as pure functions.

The same mapping is the environment of bwrap itself, because ``/proc/1/environ`` inside a sandbox shows what bwrap was
started with. So a name that steers the dynamic loader must never get in: outside, it would act on bwrap.
"""

from __future__ import annotations

from collections.abc import Mapping

from sandloom.execution.spec import SpecInvalid

PATH = "/home/.local/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
USER_NAME = "sandbox"

_BASE = {
    "PATH": PATH,
    "HOME": "/home",
    "USER": USER_NAME,
    "LOGNAME": USER_NAME,
    "SHELL": "/bin/sh",
    "LANG": "C.UTF-8",
    "TMPDIR": "/tmp",
    "XDG_CACHE_HOME": "/cache",
}

# What ld.so itself calls unsafe for set-user-id programs, beyond LD_*.
_LOADER = frozenset(
    {
        "GCONV_PATH", "GETCONF_DIR", "GLIBC_TUNABLES", "HOSTALIASES", "LOCALDOMAIN", "LOCPATH", "MALLOC_TRACE",
        "NIS_PATH", "NLSPATH", "RESOLV_HOST_CONF", "RES_OPTIONS",
    }
)  # fmt: skip
_LOADER_PREFIXES = ("LD_", "MALLOC_TRACE", "DYLD_")

_OWNED = frozenset(
    {
        "PATH", "HOME", "USER", "LOGNAME", "PWD",
        "PIP_CACHE_DIR", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_CONFIG_FILE", "PIP_BREAK_SYSTEM_PACKAGES",
        "PYTHONHOME", "PYTHONUSERBASE", "UV_CACHE_DIR", "UV_INDEX_URL", "UV_DEFAULT_INDEX", "UV_PYTHON_INSTALL_DIR",
        "UV_TOOL_BIN_DIR", "UV_TOOL_DIR", "XDG_CACHE_HOME", "COREPACK_HOME", "YARN_CACHE_FOLDER",
        "GOROOT", "GOPATH", "GOPROXY", "GOSUMDB", "GOCACHE", "GOMODCACHE", "GOTOOLCHAIN", "GOBIN",
        "CARGO_HOME", "CARGO_INSTALL_ROOT", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN",
        "JAVA_HOME", "MAVEN_HOME", "M2_HOME", "MAVEN_ARGS", "GRADLE_USER_HOME",
    }
)  # fmt: skip
# Tools read these in either case.
_OWNED_ANY_CASE = frozenset(
    {
        "HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "ALL_PROXY", "NO_PROXY",
        "NPM_CONFIG_CACHE", "NPM_CONFIG_REGISTRY", "NPM_CONFIG_PREFIX", "NPM_CONFIG_USERCONFIG",
        "NPM_CONFIG_GLOBALCONFIG",
    }
)  # fmt: skip
_OWNED_PREFIXES = ("SANDLOOM_",)


def loader_name(name: str) -> bool:
    """Whether the dynamic loader or libc would act on ``name``; such a name never reaches any command."""
    return name in _LOADER or name.startswith(_LOADER_PREFIXES)


def reserved_name(name: str) -> bool:
    """Whether the runtime owns ``name``, so that a caller may not set it."""
    return loader_name(name) or name in _OWNED or name.upper() in _OWNED_ANY_CASE or name.startswith(_OWNED_PREFIXES)


def _check(name: str, value: str) -> None:
    if not name or "=" in name or "\0" in name:
        raise SpecInvalid(f"not an environment name: {name!r}")
    if "\0" in value:
        raise SpecInvalid(f"the value of {name} holds a NUL character")


def build(caller: Mapping[str, str], runtime: Mapping[str, str] | None = None) -> dict[str, str]:
    """The final environment: base, then what the runtime sets, then what the caller sets.

    Raises ``SpecInvalid`` for a reserved or malformed name; messages never show values.
    """
    env = dict(_BASE)
    for name, value in (runtime or {}).items():
        _check(name, value)
        if loader_name(name):
            raise SpecInvalid(f"{name} would steer the dynamic loader")
        env[name] = value
    for name, value in caller.items():
        _check(name, value)
        if reserved_name(name):
            raise SpecInvalid(f"{name} is set by the runtime and cannot be changed")
        env[name] = value
    return env
