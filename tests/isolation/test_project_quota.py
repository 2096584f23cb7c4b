"""Disk budgets by project quota, on a file system made for the test; a kernel may know projects without quotas."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandloom.execution import project_quota
from sandloom.execution.disk_quota import QuotaDisk, open_proved
from sandloom.execution.file_faults import FaultKind, FileFault
from sandloom.execution.files import SandboxFiles
from sandloom.execution.openat import SCAN_FLAGS
from sandloom.execution.probe import ProbeReport, ProbeRequest
from sandloom.execution.process import Spawner
from sandloom.execution.project_quota import ProjectQuota
from sandloom.execution.runner import Runner
from sandloom.execution.spec import BudgetsUnavailable, Reason
from sandloom.execution.trash import Trash
from tests.isolation.kit import Sandbox, probe_uid
from tests.services.account import passable_directory, remove_tree

pytestmark = [pytest.mark.bwrap, pytest.mark.root]

MIB = 1 << 20
#: FS_IOC_FSSETXATTR with project 0.
ESCAPE = """
import fcntl, os, struct
fd = os.open('/workspace', os.O_RDONLY)
try:
    fcntl.ioctl(fd, 0x401C5820, struct.pack('=5I8x', 0, 0, 0, 0, 0))
    print('escaped')
except OSError as error:
    print(error.strerror)
"""


@pytest.fixture(scope="module")
def mounted() -> Iterator[Callable[..., Path]]:
    """Mounts a new file system: ``mounted("prjquota")``, or without an option."""
    base = passable_directory("sandloom-quota")
    made: list[Path] = []

    def mount(*options: str) -> Path:
        number = len(list(base.iterdir()))
        image, place = base / f"image{number}", base / f"mount{number}"
        place.mkdir()
        problems = []
        for make in (
            ["mkfs.xfs", "-q", "-f"],
            ["mkfs.ext4", "-q", "-F", "-O", "project,quota", "-E", "quotatype=prjquota"],
        ):
            try:
                with image.open("wb") as stream:
                    stream.truncate(512 * MIB)
                run([*make, str(image)])
                run(["mount", "-o", ",".join(["loop", *options]), str(image), str(place)])
            except (OSError, subprocess.CalledProcessError) as error:
                problems.append(str(error))
                continue
            made.append(place)
            place.chmod(0o711)
            return place
        pytest.skip(f"missing: a file system with {', '.join(options) or 'projects'}: {problems}")

    yield mount
    for place in made:
        run(["umount", "-l", str(place)])
    remove_tree(base)


def run(words: list[str]) -> None:
    subprocess.run(words, check=True, capture_output=True)


@pytest.fixture(scope="module")
def with_ids(mounted: Callable[..., Path]) -> Path:
    return mounted()


def project_at(path: Path) -> int:
    fd = os.open(path, SCAN_FLAGS if path.is_dir() else os.O_RDONLY)
    try:
        return project_quota.project_at(fd)
    finally:
        os.close(fd)


def test_all_that_is_there_and_all_that_is_made_belongs_to_the_project(with_ids, report, spawner):
    sandbox = Sandbox(with_ids, report.plan, Runner(spawner))
    script = "mkdir -p a/b; echo x > a/b/old; mkfifo pipe; ln -s /etc/passwd link; chmod 0 a"
    assert sandbox.shell(script).verdict.exit_code == 0
    project = project_quota.project_of(sandbox.uid)
    for _ in range(2):
        project_quota.assign(sandbox.template.home_dirs.all, project)
    assert sandbox.shell("chmod 700 a; echo x > a/b/new; mkdir -p a/c").verdict.exit_code == 0
    found = [sandbox.workspace, *(sandbox.workspace / name for name in ("a", "a/b", "a/b/old", "a/b/new", "a/c"))]
    assert {project_at(path) for path in found} == {project}


def test_a_command_cannot_leave_its_project(with_ids, report, spawner):
    sandbox = Sandbox(with_ids, report.plan, Runner(spawner))
    project_quota.assign(sandbox.template.home_dirs.all, project_quota.project_of(sandbox.uid))
    assert sandbox.python(ESCAPE).text in ("Invalid argument", "Operation not permitted")


def test_without_quotas_it_says_what_to_mount(with_ids, report, spawner):
    with pytest.raises(BudgetsUnavailable, match="mount ext4 or xfs with prjquota"):
        ProjectQuota(str(with_ids))
    with pytest.raises(BudgetsUnavailable, match="prjquota"):
        open_proved(ProbeRequest(with_ids, probe_uid(), probe_uid()), report.plan, spawner)


def test_projects_are_those_of_uids():
    projects = {project_quota.project_of(uid) for uid in (1, 20_000, 59_999, 4_294_967_293)}
    assert len(projects) == 4
    assert all(0 < project < 0xFFFF_FFFF for project in projects)


@pytest.fixture
def quota_disk(mounted: Callable[..., Path], report: ProbeReport, spawner: Spawner) -> Iterator[tuple[QuotaDisk, Path]]:
    place = mounted("prjquota")
    assert report.plan is not None
    disk = open_proved(ProbeRequest(place, probe_uid(), probe_uid()), report.plan, spawner)
    yield disk, place
    disk.close()


def test_the_kernel_holds_the_budget_and_the_verdict_names_it(quota_disk, report, spawner):
    disk, place = quota_disk
    sandbox = Sandbox(place, report.plan, Runner(spawner, None, disk), budgets={"disk_bytes": 4 * MIB, "inodes": 50})
    template = sandbox.template
    room = disk.room(template.group, template.home_dirs, template.budgets, template.uid)
    verdict = sandbox.shell("head -c 9M /dev/zero > big").verdict
    assert (verdict.reason, verdict.exit_code) == (Reason.DISK, 1)
    assert f"disk budget of {4 * MIB} bytes reached" in verdict.detail
    assert (sandbox.workspace / "big").stat().st_size <= 4 * MIB
    (place / ".trash").mkdir(exist_ok=True)
    files = SandboxFiles(template.home_dirs, template.uid, template.gid, Trash(str(place / ".trash")), room=room)
    with pytest.raises(FileFault) as refused:
        files.write("/workspace/more", bytes(MIB))
    assert refused.value.kind is FaultKind.DISK_FULL
    assert sandbox.shell("rm big").verdict.exit_code == 0
    assert sandbox.shell("for n in $(seq 60); do : > f$n || exit 3; done").verdict.reason is Reason.DISK
