"""What a command can see and touch. Each program tries one thing and reports what it got."""

from __future__ import annotations

import os
import secrets

import pytest

from sandloom.execution.spec import Reason

pytestmark = pytest.mark.bwrap


@pytest.fixture
def secret(monkeypatch):
    """A secret in this process's environment, as a worker has some."""
    value = f"top-secret-{secrets.token_hex(8)}"
    monkeypatch.setenv("SANDBOX_INTERNAL_TOKEN", value)
    return value


def has_proc(sandbox) -> bool:
    return sandbox.template.plan.pid_namespace


def test_another_sandbox_cannot_be_reached(make_sandbox):
    mine, other = make_sandbox(), make_sandbox()
    (other.workspace / "private").write_text("of the other")
    os.chmod(other.workspace / "private", 0o666)
    paths = [str(other.workspace / "private"), str(other.workspace), str(other.path), str(other.path.parent)]
    ran = mine.run("ls", "-d", *paths)
    assert ran.text == ""
    assert ran.stderr.count(b"No such file") == len(paths)


def test_two_sandboxes_have_different_uids(make_sandbox):
    first, second = make_sandbox(), make_sandbox()
    if not first.template.plan.uid_separation:
        pytest.skip("without root every sandbox has the worker's uid")
    uids = [int(sandbox.run("id", "-u").text) for sandbox in (first, second)]
    assert uids == [first.uid, second.uid]
    assert uids[0] != uids[1]


def test_the_hosts_files_are_not_there(sandbox, state_dir):
    (state_dir / "metadata.db").write_text("rows")
    places = ["/root", "/srv", "/boot", "/sys", "/mnt", "/opt", "/media", str(state_dir), "/etc/shadow", "/var/lib"]
    ran = sandbox.run("ls", "-d", *places)
    assert ran.text == ""


def test_private_keys_below_etc_are_not_copied(sandbox):
    assert sandbox.shell("find /etc/ ! -perm -o=r ! -type l 2>&1").text == ""
    assert sandbox.run("cat", "/etc/ssl/private").verdict.exit_code != 0


def test_no_process_shows_the_workers_environment(sandbox, secret):
    if not has_proc(sandbox):
        assert sandbox.shell("ls /proc").verdict.exit_code != 0
        return
    ran = sandbox.shell("for p in /proc/[0-9]*; do tr '\\0' '\\n' < $p/environ; done; env")
    assert "PATH=" in ran.text
    assert secret not in ran.text
    assert "SANDBOX_" not in ran.text


def test_only_its_own_processes_are_visible(sandbox):
    other = sandbox.begin_shell("echo ready; sleep 300")
    other.see("ready")
    if has_proc(sandbox):
        names = sandbox.shell("cat /proc/[0-9]*/comm; true").text.split()
        assert names[:2] == ["bwrap", "sh"]
        assert "sleep" not in names
    else:
        assert sandbox.shell("ls -A /proc").verdict.exit_code != 0
    other.handle.cancel()
    other.end()


def test_descriptors_of_the_worker_do_not_reach_it(sandbox, tmp_path):
    leaked = os.open(tmp_path, os.O_RDONLY)
    os.set_inheritable(leaked, True)
    script = (
        "import os\nopen_ = []\nfor fd in range(3, 4096):\n"
        "    try: os.fstat(fd); open_.append(fd)\n    except OSError: pass\nprint(open_)"
    )
    ran = sandbox.python(script)
    os.close(leaked)
    assert ran.text == "[]"


@pytest.mark.parametrize("fd", [0, 1, 2])
def test_standard_descriptors_are_no_terminal_and_no_file_of_the_host(sandbox, fd):
    ran = sandbox.python(f"import os, stat\nprint(stat.filemode(os.fstat({fd}).st_mode)[0], os.isatty({fd}))")
    assert ran.text == ("c False" if fd == 0 else "p False")
    assert sandbox.shell("exec 3<>/dev/tty").verdict.exit_code != 0


def test_output_can_be_opened_by_name(sandbox):
    if not has_proc(sandbox):
        pytest.skip("basic has no /proc, so /dev/stdout leads nowhere")
    ran = sandbox.shell("echo out > /dev/stdout; echo err | tee /dev/stderr >/dev/null; cat /dev/stdin", stdin=b"in")
    assert (ran.stdout, ran.stderr) == (b"out\nin", b"err\n")


def test_signals_are_not_ignored_inside(sandbox):
    if not has_proc(sandbox):
        assert sandbox.shell("yes | head -n 1").text == "y"
        return
    ran = sandbox.shell("grep -E '^Sig(Ign|Blk)' /proc/self/status")
    assert [int(line.split()[1], 16) for line in ran.text.splitlines()] == [0, 0]


KEYRING = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
number = {"x86_64": (248, 250), "aarch64": (217, 219)}[os.uname().machine]
def add(value): return libc.syscall(number[0], b"user", b"sandloom-test", value, len(value), -3)
def find(): return libc.syscall(number[1], 10, -3, b"user", b"sandloom-test", 0)
"""


def test_the_session_keyring_is_empty_and_private(sandbox):
    holder = sandbox.begin_python(KEYRING + "print('added', add(b'v'), flush=True)\nimport time\ntime.sleep(300)")
    holder.see("added")
    ran = sandbox.python(KEYRING + "print(find())")
    holder.handle.cancel()
    holder.end()
    assert ran.text == "-1"


def test_new_user_namespaces_are_refused(sandbox):
    script = "import ctypes\nprint(ctypes.CDLL(None, use_errno=True).unshare({}))"
    for flags in (0x10000000, 0x10020000, 0x00020000, 0x20000000):
        assert sandbox.python(script.format(flags)).text == "-1"


def test_mounts_cannot_be_changed(sandbox):
    script = """
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
print(libc.mount(b"none", b"/", None, 32 | 4096, None), libc.mount(b"none", b"/usr", None, 32, None))
print(libc.mount(b"tmpfs", b"/workspace", b"tmpfs", 0, None), libc.umount2(b"/tmp", 2), libc.chroot(b"/workspace"))
"""
    assert set(sandbox.python(script).text.split()) == {"-1"}


def test_nothing_but_its_own_places_is_writable(sandbox):
    script = """
import os
found = set()
for base, names, _ in os.walk("/"):
    if base.startswith("/proc/"):
        names[:] = []
        continue
    try:
        path = os.path.join(base, ".probe")
        os.close(os.open(path, os.O_CREAT | os.O_EXCL)); os.unlink(path)
        found.add(base)
    except OSError:
        pass
print(sorted(found))
"""
    assert eval(sandbox.python(script).text) == ["/cache", "/dev/shm", "/envs", "/home", "/tmp", "/workspace"]  # noqa: S307


def test_devices_are_only_the_harmless_ones(sandbox):
    ran = sandbox.shell("cd /dev; find . -type c -o -type b | sort")
    assert set(ran.text.split()) <= {
        "./full", "./null", "./ptmx", "./pts/ptmx", "./random", "./tty", "./urandom", "./zero", "./console"
    }  # fmt: skip
    made = sandbox.shell("mknod /tmp/disk b 8 0")
    assert made.verdict.exit_code != 0


def test_setuid_programs_gain_nothing(sandbox):
    script = "chmod 4755 own; ./own -u"
    sandbox.shell("cp /usr/bin/id own")
    assert int(sandbox.shell(script).text) == sandbox.uid
    if has_proc(sandbox):
        assert sandbox.shell("sed -n 's/^NoNewPrivs:.//p' /proc/self/status").text == "1"


def test_network_isolated_has_loopback_only(sandbox):
    script = """
import socket
print([name for _, name in socket.if_nameindex()])
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
print("loopback")
try:
    socket.create_connection(("192.0.2.1", 80), timeout=5)
except OSError as error:
    print("outside", error.errno)
"""
    assert sandbox.python(script).text.splitlines() == ["['lo']", "loopback", "outside 101"]


def test_abstract_sockets_of_the_host_are_not_reachable(sandbox):
    import socket

    name = f"\0sandloom-{secrets.token_hex(8)}"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(name)
        server.listen()
        ran = sandbox.python(f"import socket\nprint(socket.socket(socket.AF_UNIX).connect_ex({name!r}))")
    assert ran.text == "111"


def test_ipc_objects_are_private_and_vanish(sandbox):
    script = "import ctypes\nprint(ctypes.CDLL(None).shmget(0x5a11, 4096, {}))"
    assert int(sandbox.python(script.format(0o1666)).text) >= 0
    assert sandbox.python(script.format(0o666)).text == "-1"


def test_a_monitor_cannot_be_made_to_forge(sandbox):
    forge = """
import os
for fd in range(3, 64):
    try:
        os.write(fd, b'{ "exit-code": 0 }\\n')
    except OSError:
        pass
print('{ "exit-code": 0 }', flush=True)
os.write(2, b"bwrap: execvp python3: No such file or directory\\n")
os._exit(9)
"""
    verdict = sandbox.python(forge).verdict
    assert (verdict.reason, verdict.exit_code, verdict.error) == (Reason.EXIT, 9, None)


def test_killing_the_monitor_is_never_a_sandbox_failure(sandbox):
    script = """
import os, signal
os.write(2, b"bwrap: Creating new namespace failed: Resource temporarily unavailable\\n")
os.kill(os.getppid(), signal.SIGKILL)
os._exit(1)
"""
    verdict = sandbox.python(script).verdict
    assert verdict.reason in (Reason.SIGNAL, Reason.EXIT)
    assert verdict.error is None


def test_links_in_its_directories_lead_nowhere_outside(sandbox, state_dir):
    (state_dir / "outside").write_text("outside")
    link = sandbox.workspace / "link"
    link.symlink_to(state_dir / "outside")
    assert sandbox.run("cat", "link").verdict.exit_code == 1


def test_the_working_directory_may_not_escape_by_a_link(sandbox):
    (sandbox.workspace / "out").symlink_to("/etc")
    ran = sandbox.run("pwd", cwd="/workspace/out")
    assert ran.text in {"/etc", "/workspace/out"}
    assert sandbox.run("touch", "x", cwd="/workspace/out").verdict.exit_code != 0
