"""The small /etc of sandboxes."""

from __future__ import annotations

import os

import pytest

from sandloom.execution import etc
from sandloom.execution.spec import Network


@pytest.fixture
def host(tmp_path):
    base = tmp_path / "host"
    (base / "ssl" / "private").mkdir(parents=True)
    (base / "ssl" / "certs").mkdir()
    (base / "ssl" / "certs" / "ca.pem").write_text("ca")
    (base / "ssl" / "private" / "key.pem").write_text("key")
    (base / "ssl" / "private").chmod(0o700)
    (base / "ssl" / "secret.key").write_text("key")
    (base / "ssl" / "secret.key").chmod(0o600)
    for name in ("shadow", "passwd", "hosts", "ld.so.cache", "services", "npmrc"):
        (base / name).write_text(name)
    (base / "localtime").symlink_to("/usr/share/zoneinfo/UTC")
    os.mkfifo(base / "magic")
    return base


def test_only_what_is_allowed_and_readable_by_all_is_copied(host, tmp_path):
    etc.build_etc(tmp_path / "etc", host_etc=host)
    made = {str(path.relative_to(tmp_path / "etc")) for path in (tmp_path / "etc").rglob("*")}
    assert {"ld.so.cache", "services", "ssl/certs/ca.pem", "localtime", "profile", "nsswitch.conf"} <= made
    assert not {"shadow", "npmrc", "magic", "ssl/private", "ssl/secret.key"} & made
    assert os.readlink(tmp_path / "etc" / "localtime") == "/usr/share/zoneinfo/UTC"
    assert os.readlink(tmp_path / "etc" / "passwd") == "/run/identity/passwd"


def test_more_can_be_added_and_making_it_again_starts_afresh(host, tmp_path):
    etc.build_etc(tmp_path / "etc", host_etc=host, extra=["npmrc", "not/there"])
    assert (tmp_path / "etc" / "npmrc").read_text() == "npmrc"
    etc.build_etc(tmp_path / "etc", host_etc=host)
    assert not (tmp_path / "etc" / "npmrc").exists()


def test_an_identity_names_its_uid_and_is_made_once(tmp_path):
    first = etc.identity_dir(tmp_path, 20001, 20002, "box")
    assert "sandbox:x:20001:20002:" in (first / "passwd").read_text()
    assert "sandbox:x:20002:" in (first / "group").read_text()
    assert "127.0.1.1 box" in (first / "hosts").read_text()
    inode = first.stat().st_ino
    assert etc.identity_dir(tmp_path, 20001, 20002, "box").stat().st_ino == inode
    assert sorted(os.listdir(tmp_path)) == [first.name]


def test_identities_are_forgotten_by_uid(tmp_path):
    for uid in (20001, 20002, 2000):
        etc.identity_dir(tmp_path, uid, uid, "box")
    etc.forget_identities(tmp_path, 20001)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["2000-2000-box", "20002-20002-box"]


def test_the_resolver_is_the_hosts_only_on_the_hosts_network(tmp_path):
    conf = tmp_path / "resolv.conf"
    conf.write_text("nameserver 192.0.2.1\n")
    assert etc.resolv_conf(Network.HOST, str(conf)) == str(conf)
    assert etc.resolv_conf(Network.ISOLATED, str(conf)) is None
    conf.chmod(0o600)
    assert etc.resolv_conf(Network.HOST, str(conf)) is None
    assert etc.resolv_conf(Network.HOST, str(tmp_path / "missing")) is None
