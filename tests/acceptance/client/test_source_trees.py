"""A source distribution of thousands of files: as a tar archive in, searched, changed, out again."""

from __future__ import annotations

import gzip
import io
import re
import sysconfig
import tarfile
from pathlib import Path

import pytest

from sandloom import Client
from tests.services.packages import download

pytestmark = [pytest.mark.bwrap, pytest.mark.long, pytest.mark.timeout(900)]

PATTERN = r"raise NotImplementedError\("


def source_distribution(directory: Path) -> bytes:
    """A tar archive: Django's source as PyPI has it, else what this Python has installed."""
    if not download(directory, "--no-binary", ":all:", "Django"):
        (path,) = directory.glob("*.tar.gz")
        return gzip.decompress(path.read_bytes())
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", dereference=True) as archive:
        for name in ("stdlib", "purelib"):
            top = Path(sysconfig.get_path(name))
            for path in sorted(top.rglob("*.py"))[:1500]:
                archive.add(path, f"{name}/{path.relative_to(top)}", recursive=False)
    return packed.getvalue()


def contents(top: Path) -> dict[str, bytes]:
    return {str(path.relative_to(top)): path.read_bytes() for path in top.rglob("*") if path.is_file()}


def test_a_source_distribution_goes_in_is_searched_changed_and_comes_out(client: Client, tmp_path: Path) -> None:
    packed = source_distribution(tmp_path / "download")
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(tmp_path / "here")
    here = contents(tmp_path / "here")
    assert len(here) > 1000
    with client.sandbox() as box:
        pieces = (packed[at : at + 300_000] for at in range(0, len(packed), 300_000))
        assert box.files.upload_archive(pieces, "/workspace/source").files == len(here)

        wanted = {
            f"/workspace/source/{name}": len(re.findall(PATTERN.encode(), data))
            for name, data in here.items()
            if name.endswith(".py") and re.search(PATTERN.encode(), data)
        }
        found = box.files.grep(PATTERN, "/workspace/source", glob="**/*.py", max_matches=1000)
        seen = {match.path for match in found.matches}
        assert seen
        # A search ends after some seconds and says so, which a busy machine may need.
        assert seen < set(wanted) if found.truncated else seen == set(wanted)

        place, count = max(wanted.items(), key=lambda item: item[1])
        assert box.files.replace(place, "raise NotImplementedError(", "raise LookupError(") == count
        name = place.removeprefix("/workspace/source/")
        here[name] = here[name].replace(b"raise NotImplementedError(", b"raise LookupError(")

        unpacked = box.files.download_tree("/workspace/source", tmp_path / "back")
        assert (unpacked.files, unpacked.skipped) == (len(here), 0)
        assert contents(tmp_path / "back") == here
