"""Every setting does something."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest

from sandloom.execution.toolchains import ToolchainRequest
from sandloom.settings import Settings
from tests.architecture.tree import own_files, shown

#: Read by other settings, by ``unsupported``, through a property, or by ``ToolchainRequest.of``.
INDIRECT = {
    "bubblewrap_min_version", "credential_broker", "egress_allowed_hosts", "egress_allowed_literals",
    "egress_denied_addresses", "execution_backend", "local_root", "residency", "shared_root",
    "strict_settings", "telemetry_sink", "template_root",
    *(field.name for field in fields(ToolchainRequest)),
}  # fmt: skip


@pytest.fixture(scope="module")
def used() -> set[str]:
    """Names that code outside the settings reads from a ``settings`` object."""
    code = [path for path in own_files(".py") if re.match(r"(api|workers|sandloom)/(?!settings/)", shown(path))]
    text = "\n".join(path.read_text("utf-8") for path in code)
    return set(re.findall(r"settings\.([a-z_]+)\b", text)) & set(Settings.model_fields)


def test_every_setting_is_used(used: set[str]) -> None:
    assert set(Settings.model_fields) - used - INDIRECT == set()
