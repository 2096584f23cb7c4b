"""Under which names the MCP endpoint is served."""

from __future__ import annotations

import pytest

from api.allowed_hosts import check_host
from sandloom.errors import HostNotAllowed, OriginNotAllowed

ALLOWED = ("localhost", "localhost:*", "Sandbox.Example", "[::1]:*", "inside:8443")


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST", "localhost:1", "sandbox.example", "[::1]:8080", "inside:8443"]
)
def test_a_name_that_is_listed_is_served(host: str) -> None:
    check_host(ALLOWED, host, None)
    check_host(ALLOWED, "localhost", f"https://{host}")
    check_host(ALLOWED, "localhost", f"HTTP://{host}")


@pytest.mark.parametrize(
    "host",
    [
        None, "", "evil.example", "localhost.evil.example", "localhost:", "localhost:80.evil", "localhost:٣", "inside",
        "evil@localhost", "sandbox.example:80", "[::1]", "localhost, evil", "*", "localhost:*", " localhost",
    ],
)  # fmt: skip
def test_another_name_is_not(host: str | None) -> None:
    with pytest.raises(HostNotAllowed):
        check_host(ALLOWED, host, None)


@pytest.mark.parametrize(
    "origin", ["", "null", "localhost", "https://evil.example", "file://localhost", "https://", "https://localhost/"]
)
def test_a_page_of_another_origin_is_refused(origin: str) -> None:
    with pytest.raises(OriginNotAllowed):
        check_host(ALLOWED, "localhost", origin)
