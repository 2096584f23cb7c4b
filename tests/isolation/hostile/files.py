"""Against the file tree: what is mounted, what may be written, and ways around names."""

from __future__ import annotations

import ctypes
import os
import stat
import subprocess

from .linux import MONITOR, call, in_child
from .program import Facts, Held, create, first_of, found, program, read_mark


@program("root")
def writes_to_the_system(facts: Facts) -> str | None:
    """Create a file in /, /usr, /etc, /run and /var."""
    places = ("/", "/usr", "/usr/bin", "/etc", "/run", "/var", "/run/identity")
    return first_of(places, lambda place: create(f"{place}/.hostile"))


@program("root")
def writes_to_dev(facts: Facts) -> str | None:
    """Create a file in /dev."""
    create("/dev/.hostile")
    return "a file"


@program("root")
def changes_a_device_node(facts: Facts) -> str | None:
    """Change the mode of /dev/full, which is the host's own node."""
    os.chmod("/dev/full", stat.S_IMODE(os.stat("/dev/full").st_mode))
    return "the mode was set"


@program("root")
def opens_the_machines_devices(facts: Facts) -> str | None:
    """Open the kernel's log, memory, disks and virtual machines below /dev."""
    names = ("kmsg", "mem", "vda", "sda", "kvm", "fuse", "net/tun", "loop-control", "console", "tty0")
    return first_of(names, lambda name: os.close(os.open(f"/dev/{name}", os.O_RDWR)))


@program("root")
def makes_a_device(facts: Facts) -> str | None:
    """Make a node of the kernel's memory."""
    path = "hostile-node"
    os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 1))
    os.unlink(path)
    return "a device node"


@program("user", planted=True)
def opens_a_device_left_in_its_files(facts: Facts) -> str | None:
    """Open a device node that somebody unpacked into the workspace."""
    with open(facts["planted_device"], "rb") as stream:
        return f"{len(stream.read(4))} bytes of a device"


@program("user", planted=True)
def runs_a_setuid_program(facts: Facts) -> str | None:
    """Run a setuid root program that somebody unpacked into the workspace."""
    uid = subprocess.run([facts["planted_setuid"], "-u"], capture_output=True, text=True, check=True).stdout.strip()
    return "root" if uid == "0" else None


@program("user", planted=True)
def runs_a_program_with_capabilities(facts: Facts) -> str | None:
    """Run a program with file capabilities that somebody unpacked into the workspace."""
    try:
        return "capabilities" if subprocess.call([facts["planted_capable"], "-c", _HAS_CAPABILITIES]) == 0 else None
    except PermissionError as error:
        raise Held("it does not start") from error


_HAS_CAPABILITIES = """
import ctypes, struct, sys
head, data = struct.pack("Ii", 0x20080522, 0), ctypes.create_string_buffer(24)
ctypes.CDLL(None).capget(head, data)
sys.exit(0 if struct.unpack("I", data.raw[:4])[0] else 1)
"""


@program("no control: nobody gains by it anywhere")
def makes_its_own_shell_setuid(facts: Facts) -> str | None:
    """Make a setuid copy of a program and see whose rights it gets."""
    with open("/usr/bin/id", "rb") as source, open("own-id", "wb") as target:
        target.write(source.read())
    os.chmod("own-id", 0o6755)
    uid = subprocess.run(["./own-id", "-u"], capture_output=True, text=True, check=True).stdout.strip()
    return f"uid {uid}" if int(uid) != os.getuid() else None


@program("root")
def reads_password_files(facts: Facts) -> str | None:
    """Read the host's shadow file and private keys."""
    names = ("shadow", "gshadow", "shadow-", "sudoers", "ssh/ssh_host_ed25519_key", "ssl/private/ssl-cert-snakeoil.key")
    return first_of(names, lambda name: os.close(os.open(f"/etc/{name}", os.O_RDONLY)))


@program("user")
def reads_what_the_host_says_of_itself(facts: Facts) -> str | None:
    """Read files of /etc that name the host, its users and its disks."""
    with open("/etc/passwd") as stream:
        if len(stream.readlines()) > 3:
            return "the host's users"
    return first_of(("fstab", "machine-id", "crontab"), lambda name: os.stat(f"/etc/{name}"))


@program("root")
def reads_a_secret_of_the_worker(facts: Facts) -> str | None:
    """Read a file of the state directory by its path."""
    return read_mark(facts["host_file"])


@program("root")
def reads_another_sandbox(facts: Facts) -> str | None:
    """Read a file of another sandbox, one that everybody may read, by its path on the host."""
    return read_mark(facts["other_file"])


@program("root")
def follows_a_link_of_its_own(facts: Facts) -> str | None:
    """Link to a host file from the workspace and read through the link."""
    path = "hostile-link"
    os.symlink(facts["host_file"], path)
    try:
        return read_mark(path)
    finally:
        os.unlink(path)


@program("root")
def links_a_program_of_the_system(facts: Facts) -> str | None:
    """Hard-link a setuid program of the system, to keep it when it is replaced."""
    targets = ("/usr/bin/.hostile", os.path.abspath("hostile-su"), "/tmp/hostile-su")
    name = first_of(targets, lambda target: os.link("/usr/bin/su", target))
    os.unlink(name)
    return f"a link at {name}"


@program("root")
def walks_up_from_proc(facts: Facts) -> str | None:
    """Reach a host file through root and cwd of every process that /proc shows."""
    pids = ["self", "1", str(MONITOR), str(facts["host_pid"]), *filter(str.isdigit, os.listdir("/proc"))]
    ways = ("root", "root/..", "cwd/../../../../../..")
    return first_of([f"/proc/{pid}/{way}{facts['host_file']}" for pid in pids for way in ways], read_mark)


@program("root")
def walks_up_from_a_descriptor(facts: Facts) -> str | None:
    """Reach a host file from a directory descriptor that was left open."""

    def read(fd: int) -> None:
        leaf = os.open("../../../../.." + facts["host_file"], os.O_RDONLY, dir_fd=fd)
        found(os.read(leaf, 100).decode())

    return first_of(range(64), read)


@program("root")
def opens_files_by_handle(facts: Facts) -> str | None:
    """Open the root of the file system by its handle, around every directory permission (shocker)."""
    handle = ctypes.create_string_buffer(8 + 128)
    ctypes.c_uint.from_buffer(handle).value = 128
    mount_id = ctypes.c_int()
    call("name_to_handle_at", -100, b"/", handle, ctypes.byref(mount_id), 0)
    fd = os.open("/", os.O_RDONLY)
    os.close(call("open_by_handle_at", fd, handle, os.O_RDONLY))
    return "a file by its handle"


@program("root")
def overwrites_the_running_bwrap(facts: Facts) -> str | None:
    """Open the executable of its monitor and of itself for writing (as CVE-2019-5736 did)."""

    def write(path: str) -> None:
        try:
            os.close(os.open(path, os.O_WRONLY))
        except OSError as error:
            # It is running, but the permission was given: an attacker would wait.
            if error.strerror != os.strerror(26):
                raise

    paths = ["/proc/1/exe", f"/proc/{MONITOR}/exe", "/proc/self/exe", "/usr/bin/bwrap", facts["bwrap"]]
    return first_of(paths, lambda path: write(path))


@program("root")
def turns_the_system_writable(facts: Facts) -> str | None:
    """Remount /, /usr and /dev without read-only."""
    remount_bind = 32 | 4096

    def remount(path: bytes) -> None:
        call("mount", b"none", path, None, remount_bind, None)

    return first_of((b"/", b"/usr", b"/dev"), lambda path: remount(path))


@program("root")
def escapes_by_chroot(facts: Facts) -> str | None:
    """Change the root to a directory below and walk out of it (the classic escape)."""

    def escape() -> None:
        os.makedirs("hostile-root", exist_ok=True)
        os.chroot("hostile-root")

    in_child(escape)
    return "another root"


@program("root")
def unmounts_what_covers(facts: Facts) -> str | None:
    """Take away the mount that covers /proc, /tmp or /etc, to see what is below."""

    def unmount() -> None:
        first_of(facts["mounts"], lambda name: call("umount2", name.encode(), 2))

    in_child(unmount)
    return "what was below a mount"
