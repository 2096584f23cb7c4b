"""fsspec's own tests of a file system, and what they leave out."""

from __future__ import annotations

from collections.abc import Iterator

import fsspec
import pytest
from fsspec.tests import abstract

from sandloom.adapters.fsspec import SandloomFileSystem
from sandloom.sdk import Client, Sandbox


class Fixtures(abstract.AbstractFixtures):
    @pytest.fixture(scope="class")
    def shared(self, client: Client) -> Iterator[Sandbox]:
        with client.sandbox(scope="adapters") as box:
            yield box

    @pytest.fixture(scope="class")
    def fs(self) -> SandloomFileSystem:
        return SandloomFileSystem()

    @pytest.fixture
    def fs_path(self, shared: Sandbox) -> str:
        return f"{shared.id}/workspace"

    @pytest.fixture
    def fs_join(self):
        return lambda *parts: "/".join(parts)


class TestCopy(abstract.AbstractCopyTests, Fixtures):
    pass


class TestGet(abstract.AbstractGetTests, Fixtures):
    pass


class TestOpen(abstract.AbstractOpenTests, Fixtures):
    pass


class TestPipe(abstract.AbstractPipeTests, Fixtures):
    pass


class TestPut(abstract.AbstractPutTests, Fixtures):
    pass


@pytest.fixture
def url(box: Sandbox) -> str:
    return f"sandloom://{box.id}/workspace"


def test_a_url_is_enough_for_text_and_bytes(url: str, box: Sandbox) -> None:
    with fsspec.open(f"{url}/new/data.csv", "w") as file:
        file.write("a,b\n")
    with fsspec.open(f"{url}/new/data.csv", "a") as file:
        file.write("1,2\n")
    assert box.run("cat new/data.csv").stdout == "a,b\n1,2\n"
    with fsspec.open(f"{url}/new/data.csv", "rb") as file:
        assert (file.seek(4), file.read()) == (4, b"1,2\n")


def test_errors_are_those_of_python(url: str, box: Sandbox) -> None:
    fs = SandloomFileSystem()
    fs.makedirs(f"{url}/full/inner")
    fs.pipe(f"{url}/file", b"x")
    with pytest.raises(FileNotFoundError):
        fs.cat(f"{url}/nothing")
    with pytest.raises(IsADirectoryError):
        fs.open(f"{url}/full")
    with pytest.raises(NotADirectoryError):
        fs.ls(f"{url}/file/below")
    with pytest.raises(NotADirectoryError):
        fs.rmdir(f"{url}/file")
    with pytest.raises(OSError, match="entries"):
        fs.rmdir(f"{url}/full")
    with pytest.raises(FileExistsError):
        fs.mkdir(f"{url}/full")
    with pytest.raises(PermissionError):
        fs.pipe(f"sandloom://{box.id}/envs/x", b"")
    with pytest.raises(PermissionError):
        fs.rm("sandloom://", recursive=True)
    with pytest.raises(FileNotFoundError):
        fs.ls("sandloom://never-made/workspace")


def test_it_lists_sandboxes_and_what_they_show(url: str, box: Sandbox) -> None:
    fs = SandloomFileSystem()
    assert box.id in fs.ls("sandloom://", detail=False)
    assert fs.ls(box.id, detail=False) == [f"{box.id}/{root}" for root in ("workspace", "home", "envs")]
    fs.pipe({f"{url}/a": b"12", f"{url}/d/b": b""})
    assert fs.find(url) == [f"{box.id}/workspace/a", f"{box.id}/workspace/d/b"]
    entry = fs.info(f"{url}/a")
    assert (entry["size"], entry["type"], entry["mtime"]) == (2, "file", fs.modified(f"{url}/a"))


def test_a_move_is_a_rename_and_between_sandboxes_a_copy(url: str, box: Sandbox, client: Client) -> None:
    fs = SandloomFileSystem()
    fs.pipe({f"{url}/a": b"1", f"{url}/b": b"2"})
    fs.mv(f"{url}/a", f"{url}/b")
    assert box.run("ls; cat b").stdout == "b\n1"
    with client.sandbox(scope="adapters") as other:
        fs.mv(f"{url}/b", f"sandloom://{other.id}/workspace/c")
        assert other.files.read("/workspace/c") == b"1"
    assert box.run("ls").stdout == ""


def test_a_transaction_writes_everything_or_nothing(url: str, box: Sandbox) -> None:
    fs = SandloomFileSystem(skip_instance_cache=True)
    with fs.transaction:
        with fs.open(f"{url}/a", "wb") as file:
            file.write(b"1")
        assert not fs.exists(f"{url}/a")
    assert fs.cat(f"{url}/a") == b"1"
    fs.start_transaction()
    fs.pipe(f"{url}/b", b"1")
    with fs.open(f"{url}/c", "wb") as file:
        file.write(b"1")
    fs.transaction.complete(commit=False)
    assert not fs.exists(f"{url}/b")
    assert not fs.exists(f"{url}/c")


def test_a_sandbox_that_was_made_anew_is_an_error_once(client: Client) -> None:
    fs = SandloomFileSystem(skip_instance_cache=True)
    file = "sandloom://made-anew/workspace/a"
    with client.sandbox("made-anew", scope="adapters"):
        fs.pipe(file, b"first")
    with client.sandbox("made-anew", scope="adapters"):
        with pytest.raises(FileNotFoundError):
            fs.pipe(file, b"second")
        fs.pipe(file, b"second")
        assert fs.cat(file) == b"second"
