"""Which facts of a command's surroundings break which claim."""

from __future__ import annotations

import pytest

from sandloom.cli.verify_inside import Claims, Facts, broken

FEATURES = {"pid_namespace": True, "cgroup_namespace": True, "uid_separation": True, "seccomp": True}
STRICT = Claims("strict", 20001, FEATURES, "isolated", "the-token")
GOOD = """uid 20001
proc yes
processes 5
NoNewPrivs 1
CapEff 0000000000000000
CapBnd 0000000000000000
Seccomp 2
cgroup /
cgroup /
interface lo
variable HOME=/home
"""


def test_what_is_as_claimed_breaks_nothing():
    assert [*broken(Facts(GOOD), STRICT)] == []


def replaced(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new)


@pytest.mark.parametrize(
    ("output", "words"),
    [
        (replaced("uid 20001", "uid 0"), "runs as uid 0"),
        (replaced("uid 20001", "uid 20002"), "runs as uid 20002, not 20001"),
        (GOOD + "writes /usr\n", "may write to /usr"),
        (GOOD + "leftover /tmp\n", "finds what another command left in /tmp"),
        (GOOD + "namespaces more\n", "may make further user namespaces"),
        (GOOD + "variable X=the-token\n", "finds the service's token"),
        (GOOD + "variable SANDBOX_INTERNAL_TOKEN=other\n", "finds the service's token"),
        ("uid 20001\n", "nothing shows that the level is strict"),
        (replaced("NoNewPrivs 1", "NoNewPrivs 0"), "may gain privileges"),
        (replaced("NoNewPrivs 1\n", ""), "may gain privileges"),
        (replaced("CapEff 0000000000000000", "CapEff 0000000000000400"), "has capabilities 0000000000000400"),
        (replaced("CapBnd 0000000000000000", "CapBnd 00000000a80425fb"), "or may get 00000000a80425fb"),
        (replaced("Seccomp 2", "Seccomp 0"), "has no seccomp filter"),
        (replaced("processes 5", "processes 230"), "sees 230 processes"),
        (replaced("cgroup /\ncgroup /", "cgroup /\ncgroup /docker/1"), "sees the cgroups /, /docker/1"),
        (replaced("cgroup /\ncgroup /\n", ""), "sees the cgroups"),
        (replaced("interface lo", "interface lo\ninterface eth0"), "has the interfaces lo, eth0"),
        (GOOD + "descriptor 7\n", "inherits the descriptors 7"),
        ("", "runs as uid -1"),
    ],
)  # fmt: skip
def test_a_claim_that_does_not_hold_is_named(output: str, words: str):
    assert words in "; ".join(broken(Facts(output), STRICT))


def test_what_is_not_claimed_is_not_demanded():
    basic = Claims("basic", 20001, {"uid_separation": True}, "host", "the-token")
    assert [*broken(Facts("uid 20001\n"), basic)] == []
    standard = Claims("standard", 20001, {"pid_namespace": True}, "host", "the-token")
    output = GOOD.replace("cgroup /\n", "cgroup /user.slice\n").replace("Seccomp 2", "Seccomp 0")
    output = output.replace("uid 20001", "uid 1000").replace("interface lo", "interface eth0")
    assert [*broken(Facts(output), standard)] == []
