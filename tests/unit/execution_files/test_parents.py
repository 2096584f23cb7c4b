"""A path whose parent is not there says so, whatever was to be done at it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sandloom.execution.file_faults import FaultKind, FileFault
from sandloom.execution.files import SandboxFiles
from tests.unit.execution_files.archives import archive

Call = Callable[[SandboxFiles, str], object]
CALLS: dict[str, Call] = {
    "write": lambda files, path: files.write(path, b""),
    "mkdir": lambda files, path: files.mkdir(path),
    "move": lambda files, path: files.move("/workspace/other", path),
    "extract": lambda files, path: files.trees.extract(path, [archive([("a", b"x")])]),
    "stat": lambda files, path: files.stat(path),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("parent", ["/workspace/there/no", "/workspace/there/no/deeper"])
def test_the_first_directory_that_is_missing_is_named(
    files: SandboxFiles, walking: None, call: Call, parent: str
) -> None:
    files.mkdir("/workspace/there")
    files.mkdir("/workspace/other")
    with pytest.raises(FileFault) as caught:
        call(files, f"{parent}/leaf")
    assert caught.value.kind is FaultKind.NOT_FOUND
    assert caught.value.extra == {"missing_parent": "/workspace/there/no"}
    assert caught.value.detail.startswith(f"{parent}/leaf has no parent: /workspace/there/no does not exist")
    assert "mkdir with parents=true" in caught.value.detail


def test_a_missing_leaf_is_itself_what_is_missing(files: SandboxFiles, walking: None) -> None:
    with pytest.raises(FileFault) as caught:
        files.stat("/workspace/leaf")
    assert (caught.value.detail, caught.value.extra) == ("/workspace/leaf does not exist", {})
