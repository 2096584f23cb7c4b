"""Variables that the deployment gives to every command: proxies and toolchains. Pure apart from its counter."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from sandloom.settings import Settings


class RuntimeEnvironment:
    """The proxies take turns, one for each command. ``toolchains``: their variables."""

    def __init__(self, settings: Settings, toolchains: Mapping[str, str]) -> None:
        self._fixed = toolchains
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
