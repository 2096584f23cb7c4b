"""What a command sees of its own isolation, held against what the deployment reports."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

#: Prints ``fact value`` lines. Nothing secret is ever sent into a sandbox, so what is looked for is looked for outside.
SCRIPT = r"""
echo "uid $(id -u)"
for place in / /usr /etc /dev /sys /proc/sys; do
    ( : > "$place/sandloom-verify" ) 2>/dev/null && { echo "writes $place"; rm -f "$place/sandloom-verify"; }
done
unshare -U true 2>/dev/null && echo "namespaces more"
[ -e /tmp/sandloom-verify ] && echo "leftover /tmp"
: > /tmp/sandloom-verify
if [ -e /proc/self/status ]; then
    echo "proc yes"
    echo "processes $(ls -d /proc/[0-9]* | wc -l)"
    sed -n 's/^\(NoNewPrivs\|CapEff\|CapBnd\|Seccomp\):[[:space:]]*/\1 /p' /proc/self/status
    sed 's/^[^:]*:[^:]*:/cgroup /' /proc/self/cgroup
    sed -n 's/^ *\([^ :]*\):.*/interface \1/p' /proc/net/dev
    for number in $(seq 3 63); do
        [ -e "/proc/$$/fd/$number" ] && echo "descriptor $number"
    done
    cat /proc/[0-9]*/environ 2>/dev/null | tr '\0' '\n' | sed 's/^/variable /'
fi
env | sed 's/^/variable /'
"""

#: A PID namespace of its own holds bubblewrap, the shell and its pipes; a machine's holds more.
MOST_PROCESSES = 16


@dataclass(frozen=True, slots=True)
class Claims:
    """What the deployment says of the worker. ``secret``: what must be nowhere inside."""

    level: str
    uid: int
    features: Mapping[str, bool]
    network: str
    secret: str

    @classmethod
    def of(cls, level: str, uid: int, capabilities: Mapping[str, Any], secret: str) -> Claims:
        features = capabilities.get("features") or {}
        return cls(level, uid, features, str(capabilities.get("network_mode")), secret)


class Facts:
    """The lines of ``SCRIPT``."""

    def __init__(self, output: str) -> None:
        self._values: dict[str, list[str]] = {}
        for line in output.splitlines():
            name, _, value = line.partition(" ")
            self._values.setdefault(name, []).append(value)

    def all(self, name: str) -> list[str]:
        return self._values.get(name, [])

    def one(self, name: str) -> str:
        return self.all(name)[0] if self.all(name) else ""

    def number(self, name: str, base: int = 10) -> int:
        """-1 when it was not seen."""
        try:
            return int(self.one(name), base)
        except ValueError:
            return -1


def broken(facts: Facts, claims: Claims) -> Iterator[str]:
    """Each boundary that is claimed and was not found inside, in words."""
    uid = facts.number("uid")
    if uid <= 0 or (claims.features.get("uid_separation") and uid != claims.uid):
        yield f"runs as uid {uid}, not {claims.uid}"
    yield from (f"may write to {place}" for place in facts.all("writes"))
    yield from (f"finds what another command left in {place}" for place in facts.all("leftover"))
    if facts.all("namespaces"):
        yield "may make further user namespaces"
    text = "\n".join(facts.all("variable"))
    if (claims.secret and claims.secret in text) or "SANDBOX_INTERNAL_TOKEN=" in text:
        yield "finds the service's token"
    if not facts.all("proc"):
        if claims.level != "basic":
            yield f"has no /proc, so nothing shows that the level is {claims.level}"
        return
    yield from _broken_by_proc(facts, claims)


def _broken_by_proc(facts: Facts, claims: Claims) -> Iterator[str]:
    if facts.number("NoNewPrivs") != 1:
        yield "may gain privileges"
    if facts.number("CapEff", 16) != 0 or facts.number("CapBnd", 16) != 0:
        yield f"has capabilities {facts.one('CapEff')}, or may get {facts.one('CapBnd')}"
    if claims.features.get("seccomp") and facts.number("Seccomp") != 2:
        yield "has no seccomp filter"
    if not 0 < facts.number("processes") <= MOST_PROCESSES:
        yield f"sees {facts.number('processes')} processes"
    if claims.level == "strict" and not (facts.all("cgroup") and all(path == "/" for path in facts.all("cgroup"))):
        yield f"sees the cgroups {', '.join(sorted(set(facts.all('cgroup'))))}"
    if claims.network == "isolated" and facts.all("interface") != ["lo"]:
        yield f"has the interfaces {', '.join(facts.all('interface'))}"
    if facts.all("descriptor"):
        yield f"inherits the descriptors {', '.join(facts.all('descriptor'))}"
