"""The bwrap command line: one fixed order, the same for the same spec."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandloom.execution import argv
from sandloom.execution.machine import Machine
from sandloom.execution.spec import Directories, Level, Limits, Network, Plan, Spec, SpecInvalid, SystemMount

PLAN = Plan(
    bwrap="/usr/bin/bwrap",
    features=frozenset(),
    level=Level.STRICT,
    pid_namespace=True,
    cgroup_namespace=True,
    network=Network.ISOLATED,
    uid_separation=True,
    readonly_mounts=(SystemMount("usr/bin", "/bin", link=True), SystemMount("/usr", "/usr")),
    etc_dir="/state/etc",
    identity_dir="/state/identity",
)
SPEC = Spec(
    name="s",
    plan=PLAN,
    uid=20001,
    gid=20001,
    home_dirs=Directories("/r/s/workspace", "/r/s/home", "/r/s/envs", "/r/s/cache"),
    argv=("echo", "--", "--bind"),
    limits=Limits(tmpfs_bytes=1000, shm_bytes=500),
    hostname="box",
)


def line(spec: Spec = SPEC, **plan_changes) -> tuple[str, ...]:
    return argv.build(replace(spec, plan=replace(spec.plan, **plan_changes)), "/state/identity/20001").argv


def test_the_whole_line_at_strict():
    assert " ".join(line()) == (
        "/usr/bin/bwrap --unshare-user --disable-userns --unshare-ipc --unshare-uts --hostname box --unshare-pid"
        " --unshare-cgroup --unshare-net --new-session --die-with-parent"
        " --symlink usr/bin /bin --ro-bind /usr /usr --ro-bind /state/etc /etc"
        " --perms 0755 --dir /run --ro-bind /state/identity/20001 /run/identity"
        " --dev /dev --perms 1777 --size 500 --tmpfs /dev/shm --remount-ro /dev --proc /proc"
        " --perms 1777 --size 1000 --tmpfs /tmp --perms 0755 --dir /var --symlink ../tmp /var/tmp"
        " --bind /r/s/workspace /workspace --bind /r/s/home /home --bind /r/s/envs /envs --bind /r/s/cache /cache"
        " --remount-ro / --chdir /workspace --json-status-fd 3 -- echo -- --bind"
    )


def test_the_filter_comes_by_a_descriptor_of_its_own():
    words = line(seccomp_file="/state/seccomp.bpf")
    assert words[words.index("--seccomp") + 1] == "6"
    assert "/state/seccomp.bpf" not in words


def test_without_a_pid_namespace_there_is_no_proc_and_a_set_up_byte():
    words = line(level=Level.BASIC, pid_namespace=False, cgroup_namespace=False)
    assert "--proc" not in words
    assert "--unshare-pid" not in words
    assert words[words.index("--block-fd") + 1] == "4"
    assert "--block-fd" not in line()


def test_the_host_network_brings_the_hosts_resolver():
    words = line(network=Network.HOST, resolv_conf="/run/resolv.conf")
    assert "--unshare-net" not in words
    at = words.index("/run/resolv.conf")
    assert words[at - 1 : at + 2] == ("--ro-bind", "/run/resolv.conf", "/etc/resolv.conf")


def test_a_whole_etc_still_has_its_own_accounts():
    words = " ".join(line(whole_etc=True))
    assert "--ro-bind /etc /etc" in words
    for name in ("passwd", "group", "hosts"):
        assert f"--ro-bind /state/identity/20001/{name} /etc/{name}" in words


def test_the_machine_is_mounted_over_proc_and_before_what_the_sandbox_owns():
    shown = Machine((0,), (("/state/meminfo", "/proc/meminfo"), ("/state/cpu", "/sys/devices/system/cpu")))
    words = argv.build(SPEC, "/i", shown).argv
    at = words.index("/state/meminfo")
    assert words[at - 1 : at + 5] == (
        "--ro-bind", "/state/meminfo", "/proc/meminfo", "--ro-bind", "/state/cpu", "/sys/devices/system/cpu",
    )  # fmt: skip
    assert words.index("--proc") < at < words.index("--bind")
    assert argv.build(SPEC, "/i") == argv.build(SPEC, "/i", Machine())


def writable_binds(words: tuple[str, ...]) -> list[str]:
    options = words[: words.index("--")]
    return [options[at + 2] for at, word in enumerate(options) if word == "--bind"]


@given(
    pid=st.booleans(),
    cgroup=st.booleans(),
    network=st.sampled_from(Network),
    whole_etc=st.booleans(),
    words=st.lists(st.text(st.characters(exclude_characters="\0"), max_size=20), min_size=1, max_size=5),
)
def test_whatever_is_asked_the_borders_stand(pid, cgroup, network, whole_etc, words):
    plan = {"pid_namespace": pid, "cgroup_namespace": cgroup, "network": network, "whole_etc": whole_etc}
    built = line(replace(SPEC, argv=tuple(words)), **plan)
    split = built.index("--")
    options = built[:split]
    assert built[split + 1 :] == tuple(words)
    assert writable_binds(built) == ["/workspace", "/home", "/envs", "/cache"]
    for option in ("--unshare-user", "--disable-userns", "--new-session", "--die-with-parent", "--unshare-ipc"):
        assert option in options
    assert not {"--share-net", "--dev-bind", "--cap-add", "--bind-try", "--overlay"} & set(options)
    # nothing is mounted after the root became read-only, and the owned places come after all system places
    last_mount = max(at for at, word in enumerate(options) if word in {"--bind", "--ro-bind", "--tmpfs", "--symlink"})
    assert last_mount < len(options) - 1 - options[::-1].index("--remount-ro")
    assert max(at for at, word in enumerate(options) if word == "--ro-bind") < options.index("--bind")
    assert ("--proc" in options) == pid


def test_the_environment_is_that_of_bwrap_itself():
    built = argv.build(replace(SPEC, env={"A": "1"}), "/i")
    assert built.env["A"] == "1"
    assert "--setenv" not in built.argv
    assert "--clearenv" not in built.argv


@pytest.mark.parametrize(
    "changes",
    [
        {"argv": ()},
        {"argv": ("a\0b",)},
        {"cwd": "relative"},
        {"cwd": "/work\0space"},
        {"hostname": "a\0"},
        {"uid": 0},
        {"gid": 0},
        {"env": {"LD_PRELOAD": "x"}},
        {"runtime_env": {"LD_AUDIT": "x"}},
    ],
)
def test_what_cannot_be_run_is_refused(changes):
    with pytest.raises(SpecInvalid):
        argv.build(replace(SPEC, **changes), "/i")


@pytest.mark.parametrize("cwd", ["/workspace/sub", "/workspace/", "/home/sub", "/proc/self/fd/4", "/etc", "/usr"])
def test_where_a_command_can_put_a_link_bwrap_does_not_go(cwd):
    words = line(replace(SPEC, cwd=cwd))
    assert words[words.index("--chdir") + 1] == "/"
    assert words[words.index("--") + 1 :][:2] == ("/bin/sh", "-c")
    assert words[words.index("--") + 4 :] == ("sh", cwd, *SPEC.argv)


@pytest.mark.parametrize("cwd", ["/", "/workspace", "/home", "/tmp"])
def test_fixed_places_need_no_shell(cwd):
    words = line(replace(SPEC, cwd=cwd))
    assert words[words.index("--chdir") + 1] == cwd
    assert words[words.index("--") + 1 :] == SPEC.argv
