"""What the asynchronous client does in its own way; the synchronous one is made from it."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path

import pytest

import sandloom.sdk
from sandloom import AsyncClient, Client
from sandloom.cli.local_service import LocalService
from sandloom.errors import FileMissing, ValidationFailed
from sandloom.sdk.aio.client import AsyncClient as Description
from sandloom.sdk.aio.files import AsyncFiles
from sandloom.sdk.aio.process import AsyncProcess
from sandloom.sdk.aio.sandbox import AsyncSandbox

pytestmark = pytest.mark.bwrap
PAIRS = [
    (Description, sandloom.sdk.Client),
    (AsyncSandbox, sandloom.sdk.Sandbox),
    (AsyncFiles, sandloom.sdk.Files),
    (AsyncProcess, sandloom.sdk.Process),
]
BIG = bytes(range(256)) * 4096


@pytest.fixture
def client(service: LocalService) -> AsyncClient:
    return AsyncClient(service.url, service.token)


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair[1].__name__)
def test_both_have_the_same_calls(pair: tuple[type, type]) -> None:
    def calls(kind: type) -> dict[str, list[str]]:
        found = inspect.getmembers(kind, inspect.isfunction)
        return {name: list(inspect.signature(call).parameters) for name, call in found if not name.startswith("_")}

    assert calls(pair[0]) == calls(pair[1])


def test_commands_run_side_by_side_and_are_followed(client: AsyncClient) -> None:
    async def main() -> None:
        async with client, client.sandbox() as box:
            # Each waits for the other's file, so one after the other they would never end.
            waits = "touch {0}; until [ -e {1} ]; do sleep 0.02; done; echo {0}"
            first, second = await asyncio.gather(
                box.run(waits.format("a", "b"), scope="one", timeout=60),
                box.run(waits.format("b", "a"), scope="two", timeout=60),
            )
            assert (first.stdout, second.stdout) == ("a\n", "b\n")
            seen: list[str] = []
            done = await box.run("echo out; echo err >&2", on_stdout=seen.append, on_stderr=seen.append)
            assert (done.ok, sorted(seen)) == (True, ["err\n", "out\n"])
            kinds = [event.kind async for event in box.stream(["echo", "x"])]
            assert kinds == ["status", "status", "stdout", "status"]
            with pytest.raises(FileMissing, match="change the call"):
                await box.files.read("/workspace/nothing")
            with pytest.raises(ValidationFailed, match="argv"):
                await box.run([])
            copy = await box.fork()
            assert await copy.files.exists("/workspace/a")
            assert await copy.release() == "RELEASED"

    asyncio.run(main())


def test_files_and_folders_move_with_progress(client: AsyncClient, tmp_path: Path) -> None:
    async def main() -> None:
        (tmp_path / "tree" / "inner").mkdir(parents=True)
        (tmp_path / "tree" / "inner" / "big").write_bytes(BIG)
        moved: list[tuple[int, int | None]] = []

        def progress(done: int, of: int | None) -> None:
            moved.append((done, of))

        async with client, client.sandbox() as box:
            await box.files.upload(tmp_path / "tree/inner/big", "/workspace/up", mode=0o640, progress=progress)
            assert moved[-1] == (len(BIG), len(BIG))
            assert [done for done, _ in moved] == sorted(done for done, _ in moved)
            moved.clear()
            assert await box.files.download("/workspace/up", tmp_path / "down", progress=progress) == len(BIG)
            assert moved[-1] == (len(BIG), len(BIG))
            assert (await box.files.stat("/workspace/up")).mode == "0640"
            moved.clear()
            await box.files.upload_tree(tmp_path / "tree", "/workspace/tree", progress=progress)
            assert moved[-1][0] > len(BIG)
            moved.clear()
            back = await box.files.download_tree("/workspace/tree", tmp_path / "back", progress=progress)
            assert (back.files, moved[-1][0] > len(BIG)) == (1, True)
            assert [entry.name async for entry in box.files.iterate()] == ["tree", "up"]

    asyncio.run(main())
    assert (tmp_path / "down").read_bytes() == (tmp_path / "back" / "inner" / "big").read_bytes() == BIG


def test_a_cancelled_block_releases_its_sandbox_and_leaves_no_half_of_a_file(
    client: AsyncClient, service: LocalService, tmp_path: Path
) -> None:
    names: list[str] = []

    async def download() -> None:
        task = asyncio.current_task()
        assert task is not None

        def stop(_moved: int, _of: int | None) -> None:
            task.cancel()

        async with client, client.sandbox() as box:
            names.append(box.id)
            await box.run("head -c 64M /dev/zero > large", timeout=60)
            await box.files.download("/workspace/large", tmp_path / "large", progress=stop)

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(download())
    with Client(service.url, service.token) as other:
        assert other.attach(names[0]).route.status == "RELEASED"
    assert list(tmp_path.iterdir()) == []
