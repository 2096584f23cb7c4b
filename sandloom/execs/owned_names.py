"""Environment names that the runtime owns, so that a command which sets one is refused before it is accepted.

The engine decides for itself once more; a test holds the two against each other.
"""

from __future__ import annotations

from collections.abc import Iterable

OWNED_PREFIXES = ("LD_", "DYLD_", "MALLOC_TRACE", "SANDLOOM_")
OWNED = frozenset(
    {
        "CARGO_HOME", "CARGO_INSTALL_ROOT", "COREPACK_HOME", "GCONV_PATH", "GETCONF_DIR", "GLIBC_TUNABLES", "GOBIN",
        "GOCACHE", "GOMODCACHE", "GOPATH", "GOPROXY", "GOROOT", "GOSUMDB", "GOTOOLCHAIN", "GRADLE_USER_HOME", "HOME",
        "HOSTALIASES", "JAVA_HOME", "LOCALDOMAIN", "LOCPATH", "LOGNAME", "M2_HOME", "MAVEN_ARGS",
        "MAVEN_HOME", "NIS_PATH", "NLSPATH", "PATH", "PIP_BREAK_SYSTEM_PACKAGES", "PIP_CACHE_DIR", "PIP_CONFIG_FILE",
        "PIP_EXTRA_INDEX_URL", "PIP_INDEX_URL", "PWD", "PYTHONHOME", "PYTHONUSERBASE", "RESOLV_HOST_CONF",
        "RES_OPTIONS", "RUSTUP_HOME", "RUSTUP_TOOLCHAIN", "USER", "UV_CACHE_DIR", "UV_DEFAULT_INDEX", "UV_INDEX_URL",
        "UV_PYTHON_INSTALL_DIR", "UV_TOOL_BIN_DIR", "UV_TOOL_DIR", "XDG_CACHE_HOME", "YARN_CACHE_FOLDER",
    }
)  # fmt: skip
#: Tools read these in either case.
OWNED_IN_ANY_CASE = frozenset(
    {
        "ALL_PROXY", "FTP_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "NPM_CONFIG_CACHE",
        "NPM_CONFIG_GLOBALCONFIG", "NPM_CONFIG_PREFIX", "NPM_CONFIG_REGISTRY", "NPM_CONFIG_USERCONFIG",
    }
)  # fmt: skip


def owned_names(names: Iterable[str]) -> list[str]:
    """Those of ``names`` that a caller may not set, sorted."""
    return sorted(
        name for name in names if name in OWNED or name.upper() in OWNED_IN_ANY_CASE or name.startswith(OWNED_PREFIXES)
    )
