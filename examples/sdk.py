"""A sandbox from Python: files, commands, folders, errors.

    SANDBOX_BASE_URL=http://127.0.0.1:8080 SANDBOX_INTERNAL_TOKEN=… .venv/bin/python examples/sdk.py

Needs the package without extras; ``sandloom up`` in a checkout starts a service.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from sandloom import Client, SandloomError
from sandloom.errors import FileMissing

PROGRAM = """
import json, pathlib, sys
words = sys.stdin.read().split()
pathlib.Path("out").mkdir()
pathlib.Path("out/count.json").write_text(json.dumps({word: words.count(word) for word in sorted(set(words))}))
print(len(words), "words")
"""


def main() -> None:
    with Client.from_env() as client, client.sandbox(scope="examples") as box:
        box.files.write("/workspace/count.py", PROGRAM)
        result = box.run(["python3", "count.py"], stdin="to be or not to be", timeout=60)
        print(f"ran: {result.status}, stdout {result.stdout!r}")

        print(f"read: {box.files.read_text('/workspace/out/count.json')}")
        print(f"listed: {[entry.name for entry in box.files.list('/workspace')]}")

        with tempfile.TemporaryDirectory() as here:
            moved: list[int] = []
            tree = box.files.download_tree("/workspace/out", Path(here, "out"), progress=lambda n, _of: moved.append(n))
            print(f"downloaded: {tree.files} file, {'with' if moved else 'without'} progress")
            box.files.upload_tree(Path(here, "out"), "/workspace/again")
            print(f"uploaded: {box.run('ls again').stdout!r}")

        # A command that fails is a result; what the service refuses is an exception that says what to do.
        print(f"failed: exit code {box.run('exit 3').exit_code}")
        try:
            box.files.read("/workspace/nothing")
        except FileMissing as error:
            print(f"refused: {error.code}: {error}")

        server = box.start("sleep 600", scope="server")
        print(f"beside it: {box.run('echo still free', scope='work').stdout!r}")
        print(f"cancelled: {server.cancel()}, {server.wait().status}")


if __name__ == "__main__":
    try:
        main()
    except SandloomError as problem:
        raise SystemExit(f"{problem.code}: {problem}") from None
