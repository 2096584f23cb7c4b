"""Variables that the deployment gives to every command: proxies and toolchain mirrors. Pure apart from its counter."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from sandloom.settings import Settings


class RuntimeEnvironment:
    """The proxies take turns, one for each command."""

    def __init__(self, settings: Settings) -> None:
        self._fixed = mirrors(settings)
        self._proxies = settings.http_proxies
        self._no_proxy = ",".join(settings.no_proxy)
        self._turns = itertools.count()

    def next(self) -> Mapping[str, str]:
        if not self._proxies:
            return self._fixed
        proxy = self._proxies[next(self._turns) % len(self._proxies)]
        names = ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY")
        excepted = {"no_proxy": self._no_proxy, "NO_PROXY": self._no_proxy}
        return {**self._fixed, **dict.fromkeys(names, proxy), **excepted}


def mirrors(settings: Settings) -> dict[str, str]:
    """Where the toolchains fetch from, as far as a variable can say it."""
    values = {
        "PIP_INDEX_URL": settings.python_index_url,
        "UV_DEFAULT_INDEX": settings.python_index_url,
        "npm_config_registry": settings.npm_registry,
        "GOPROXY": settings.go_proxy,
        "GOSUMDB": settings.go_sumdb,
        "JAVA_HOME": str(settings.java_home) if settings.java_home else None,
    }
    return {name: value for name, value in values.items() if value}
