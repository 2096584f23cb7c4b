"""Toolchains, mirrors and what commands may reach."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator

from sandloom.settings.fields import Group, TextList, one_of, setting

TOOLCHAINS = ("python", "node", "go", "rust", "java")


class Toolchains(Group):
    toolchains: Annotated[TextList, AfterValidator(one_of(*TOOLCHAINS))] = setting(
        ("python", "node"), f"In PATH order, of {', '.join(f'`{name}`' for name in TOOLCHAINS)}."
    )
    python_index_url: str | None = setting(None, "Package index exported to commands.")
    npm_registry: str | None = setting(None, "npm registry exported to commands.")
    go_proxy: str | None = setting(None, "Go module proxy exported to commands.")
    go_sumdb: str | None = setting(None, "Go checksum database exported to commands.")
    cargo_registry_url: str | None = setting(None, "Cargo registry exported to commands.")
    maven_repository_url: str | None = setting(None, "Maven repository exported to commands.")
    java_home: Path | None = setting(
        None,
        "JAVA_HOME of commands, below a read-only mount. At `basic` they get launchers for it that need no /proc.",
        shown="of the `java` on the system's path",
    )
    rust_launcher_dir: Path | None = setting(
        None,
        "Programs that go before the system's `rustc` and `cargo`, below a read-only mount.",
        shown="at `basic` launchers that need no /proc, else none",
    )


class Egress(Group):
    http_proxies: TextList = setting((), "Proxies exported to commands, rotating.")
    no_proxy: TextList = setting(("127.0.0.1", "localhost", "::1"), "Hosts that commands reach without a proxy.")
    egress_allowed_hosts: TextList = setting(
        (), "Needs network mode `allowlist`; otherwise startup is refused with `SANDBOX_EGRESS_POLICY_UNSUPPORTED`."
    )
    egress_denied_addresses: TextList = setting((), "As EGRESS_ALLOWED_HOSTS.")
    egress_allowed_literals: TextList = setting((), "As EGRESS_ALLOWED_HOSTS.")
    credential_broker: str = setting(
        "disabled", "`disabled` is the only one so far; anything else is refused.", min_length=1
    )
