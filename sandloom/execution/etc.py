"""``/etc`` as commands see it: an allow-listed copy made once per worker, and a small identity per uid.

A copy and not binds: one mount instead of twenty per command. Only what every user of the host may read is copied, so a
private key below ``/etc/ssl`` stays out even when the worker is root.
"""

from __future__ import annotations

import fnmatch
import os
import shutil
import stat
from collections.abc import Iterable
from pathlib import Path

from sandloom.execution.environment import PATH, USER_NAME
from sandloom.execution.spec import Network

IDENTITY_FILES = ("passwd", "group", "hosts", "hostname")

_ALLOWED = (
    "alternatives", "bash.bashrc", "ca-certificates", "chromium", "chromium.d", "crypto-policies", "debian_version",
    "fonts", "gai.conf", "groff", "host.conf", "inputrc", "java-*", "ld.so.cache", "ld.so.conf", "ld.so.conf.d",
    "localtime", "lsb-release", "magic", "magic.mime", "manpath.config", "maven", "mime.types", "networks",
    "os-release", "perl", "pki", "protocols", "python3", "python3.*", "rpc", "services", "shells", "ssl", "terminfo",
    "timezone", "vim",
)  # fmt: skip

_NSSWITCH = """\
passwd: files
group: files
shadow: files
hosts: files dns
networks: files
protocols: files
services: files
rpc: files
"""

# The usual profile sets PATH anew; here a login shell keeps the one of the command.
_PROFILE = f"""\
: "${{PATH:={PATH}}}"
export PATH
if [ -n "${{BASH_VERSION-}}" ] && [ -n "${{PS1-}}" ] && [ -r /etc/bash.bashrc ]; then
  . /etc/bash.bashrc
fi
"""


def build_etc(target: Path, *, host_etc: Path = Path("/etc"), extra: Iterable[str] = ()) -> None:
    """Make ``target`` anew. ``extra``: further paths relative to ``/etc``. Raises ``OSError``."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(mode=0o755, parents=True)
    for name in sorted(os.listdir(host_etc)):
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in _ALLOWED):
            _copy(host_etc / name, target / name)
    for relative in extra:
        destination = target / relative
        for parent in reversed(destination.relative_to(target).parents[:-1]):
            (target / parent).mkdir(exist_ok=True)
            (target / parent).chmod(0o755)
        _copy(host_etc / relative, destination)
    _write(target / "nsswitch.conf", _NSSWITCH)
    _write(target / "profile", _PROFILE)
    _write(target / "resolv.conf", "# no resolver: this sandbox has no network\n")
    _link(target / "mtab", "/proc/self/mounts")
    for name in IDENTITY_FILES:
        _link(target / name, f"/run/identity/{name}")
    target.chmod(0o755)


def resolv_conf(network: Network, path: str = "/etc/resolv.conf") -> str | None:
    """The host file to show as ``/etc/resolv.conf``; ``None`` where there is no network or no readable file."""
    real = os.path.realpath(path)
    if network is not Network.HOST or not os.path.isfile(real) or not os.stat(real).st_mode & stat.S_IROTH:
        return None
    return real


def identity_dir(base: Path, uid: int, gid: int, hostname: str) -> Path:
    """The directory with passwd, group, hosts and hostname for ``uid``; made when it is not there. Idempotent."""
    target = base / f"{uid}-{gid}-{hostname}"
    if target.is_dir():
        return target
    base.mkdir(parents=True, exist_ok=True)
    base.chmod(0o755)
    draft = base / f".{target.name}.{os.getpid()}.{os.urandom(4).hex()}"
    draft.mkdir()
    for name, text in _identity(uid, gid, hostname).items():
        _write(draft / name, text)
    draft.chmod(0o755)
    try:
        draft.rename(target)
    except OSError:
        # Another thread was faster; the content is the same.
        shutil.rmtree(draft)
        if not target.is_dir():
            raise
    return target


def forget_identities(base: Path, uid: int) -> None:
    """Remove the directories of ``uid``, in which nothing runs any more."""
    for found in base.glob(f"{uid}-*"):
        gone = base / f".{found.name}.{os.urandom(4).hex()}"
        found.rename(gone)
        shutil.rmtree(gone)


def _identity(uid: int, gid: int, hostname: str) -> dict[str, str]:
    shell = "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"
    users = {0: "root:x:0:0:root:/root:/usr/sbin/nologin", 65534: "nobody:x:65534:65534:nobody:/:/usr/sbin/nologin"}
    users[uid] = f"{USER_NAME}:x:{uid}:{gid}:{USER_NAME}:/home:{shell}"
    groups = {0: "root:x:0:", 65534: "nogroup:x:65534:"}
    groups[gid] = f"{USER_NAME}:x:{gid}:"
    return {
        "passwd": "\n".join(users.values()) + "\n",
        "group": "\n".join(groups.values()) + "\n",
        "hosts": f"127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n127.0.1.1 {hostname}\n",
        "hostname": f"{hostname}\n",
    }


def _copy(source: Path, target: Path) -> None:
    """Copy what the world may read; links stay links, anything that is not a file or directory is left out."""
    try:
        info = source.lstat()
    except FileNotFoundError:
        return
    if stat.S_ISLNK(info.st_mode):
        _link(target, os.readlink(source))
    elif stat.S_ISDIR(info.st_mode) and info.st_mode & stat.S_IROTH and info.st_mode & stat.S_IXOTH:
        target.mkdir(exist_ok=True)
        for name in os.listdir(source):
            _copy(source / name, target / name)
        target.chmod(0o755)
    elif stat.S_ISREG(info.st_mode) and info.st_mode & stat.S_IROTH:
        shutil.copyfile(source, target)
        target.chmod(0o755 if info.st_mode & stat.S_IXOTH else 0o644)


def _write(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    path.write_text(text, encoding="utf-8")
    path.chmod(0o644)


def _link(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(text)
