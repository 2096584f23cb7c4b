"""Contradictions, what a role needs, and what is refused because it cannot be enforced."""

from __future__ import annotations

import pytest

from sandloom.errors import EgressPolicyUnsupported, SettingsInvalid
from sandloom.settings import Role, Settings, missing_for, refuse_unsupported, unsupported


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ({"HEARTBEAT_TTL_SECONDS": "20", "HEARTBEAT_INTERVAL_SECONDS": "10"}, "HEARTBEAT_TTL_SECONDS"),
        ({"ORPHAN_RELEASE_GRACE_SECONDS": "70"}, "ORPHAN_RELEASE_GRACE_SECONDS"),
        ({"TERMINATE_GRACE_SECONDS": "235"}, "ORPHAN_RELEASE_GRACE_SECONDS"),
        ({"UID_START": "30000", "UID_END": "29999"}, "UID_END"),
        ({"UID_START": "0"}, "UID_START"),
        ({"PORT": "0"}, "PORT"),
        ({"LOCAL_ROOT": "relative/root"}, "LOCAL_ROOT"),
        ({"READONLY_MOUNTS": "/usr,../etc"}, "READONLY_MOUNTS"),
        ({"READONLY_MOUNTS": "/usr/../root"}, "READONLY_MOUNTS"),
        ({"INTERNAL_TOKEN": "tökén"}, "INTERNAL_TOKEN"),
        ({"INTERNAL_TOKEN": "two words"}, "INTERNAL_TOKEN"),
        ({"MAX_PARALLEL_EXECS_PER_SANDBOX": "65"}, "MAX_PARALLEL_EXECS_PER_SANDBOX"),
        ({"DISK_HIGH_WATERMARK_PERCENT": "100"}, "DISK_HIGH_WATERMARK_PERCENT"),
        ({"WORKER_ID": "../x"}, "WORKER_ID"),
        (
            {"ISOLATION_REQUIRED_FEATURES": "pid_namespace", "ISOLATION_OPTIONAL_FEATURES": "pid_namespace"},
            "ISOLATION_REQUIRED_FEATURES",
        ),
    ],
)
def test_values_that_cannot_work_are_refused_by_name(values: dict[str, str], names: str) -> None:
    with pytest.raises(SettingsInvalid, match=f"SANDBOX_{names}"):
        Settings.load({f"SANDBOX_{name}": value for name, value in values.items()})


def test_the_defaults_keep_the_order_of_fence_reaper_and_release() -> None:
    settings = Settings.load({})
    assert settings.fence_after_seconds < settings.reap_after_seconds
    given_up = settings.heartbeat_ttl_seconds + settings.orphan_release_grace_seconds
    assert settings.reap_after_seconds < given_up


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NETWORK_MODE", "allowlist"),
        ("EGRESS_ALLOWED_HOSTS", "example.org"),
        ("EGRESS_DENIED_ADDRESSES", "10.0.0.0/8"),
        ("EGRESS_ALLOWED_LITERALS", "10.0.0.1"),
    ],
)
def test_an_egress_policy_is_refused_by_its_own_code(name: str, value: str) -> None:
    settings = Settings.load({f"SANDBOX_{name}": value})
    with pytest.raises(EgressPolicyUnsupported, match=f"SANDBOX_{name}") as caught:
        refuse_unsupported(settings)
    assert caught.value.code == "SANDBOX_EGRESS_POLICY_UNSUPPORTED"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("EXECUTION_BACKEND", "gvisor"),
        ("CREDENTIAL_BROKER", "model-proxy"),
        ("RESIDENCY", "on"),
        ("TELEMETRY_SINK", "x"),
        ("BUBBLEWRAP_MIN_VERSION", "0.9"),
    ],
)
def test_what_cannot_be_enforced_is_refused(name: str, value: str) -> None:
    settings = Settings.load({f"SANDBOX_{name}": value})
    assert len(unsupported(settings)) == 1
    with pytest.raises(SettingsInvalid, match=f"SANDBOX_{name}"):
        refuse_unsupported(settings)


def test_the_defaults_ask_for_nothing_that_cannot_be_enforced() -> None:
    assert unsupported(Settings.load({})) == []


def test_features_that_a_probe_proves_are_not_refused_here() -> None:
    names = "pid_namespace,cgroup_namespace,uid_separation,seccomp,cgroup_limits"
    assert unsupported(Settings.load({"SANDBOX_ISOLATION_REQUIRED_FEATURES": names})) == []


@pytest.mark.parametrize(
    ("given", "controllers"),
    [
        ({}, set()),
        ({"BUDGET_PIDS": "100"}, {"pids"}),
        ({"BUDGET_MEMORY_BYTES": "1073741824", "BUDGET_CPU_PERCENT": "50"}, {"memory", "cpu"}),
        ({"RESOURCE_CONTROL": "required"}, {"memory", "cpu", "pids"}),
        ({"ISOLATION_REQUIRED_FEATURES": "cgroup_limits"}, {"memory", "cpu", "pids"}),
    ],
)
def test_a_budget_makes_its_controller_a_condition_of_the_start(given: dict[str, str], controllers: set[str]) -> None:
    settings = Settings.load({f"SANDBOX_{name}": value for name, value in given.items()})
    assert settings.required_controllers == controllers
    assert ("cgroup_limits" in settings.required_features) is bool(controllers)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("BUDGET_MEMORY_BYTES", "1073741824"),
        ("BUDGET_CPU_PERCENT", "100"),
        ("BUDGET_PIDS", "100"),
        ("ISOLATION_REQUIRED_FEATURES", "cgroup_limits"),
    ],
)
def test_budgets_without_resource_control_contradict(name: str, value: str) -> None:
    with pytest.raises(SettingsInvalid, match=f"SANDBOX_{name}"):
        Settings.load({f"SANDBOX_{name}": value, "SANDBOX_RESOURCE_CONTROL": "off"})


@pytest.mark.parametrize("role", list(Role))
def test_prod_demands_its_secrets(role: Role) -> None:
    missing = missing_for(Settings.load({"SANDBOX_ENVIRONMENT": "prod", "SANDBOX_BROKER_URL": "redis://h"}), role)
    assert [line.split()[0] for line in missing] == ["SANDBOX_INTERNAL_TOKEN", "SANDBOX_SECRET_KEY"]


@pytest.mark.parametrize("role", [Role.API, Role.WORKER, Role.BEAT, Role.FLOWER])
def test_a_process_of_a_fleet_needs_a_broker_that_others_reach(role: Role) -> None:
    assert any("SANDBOX_BROKER_URL" in line for line in missing_for(Settings.load({}), role))
    assert missing_for(Settings.load({"SANDBOX_BROKER_URL": "redis://h"}), role) == []


def test_rabbitmq_needs_a_redis_bus_beside_it() -> None:
    rabbit = Settings.load({"SANDBOX_BROKER_URL": "amqp://h//"})
    assert any("SANDBOX_BUS_URL" in line for line in missing_for(rabbit, Role.API))
    assert missing_for(rabbit.replaced(bus_url="redis://h"), Role.API) == []


def test_the_embedded_mode_needs_nothing() -> None:
    assert missing_for(Settings.load({}).embedded(), Role.EMBEDDED) == []
