"""Several sandboxes at once, in one thread.

SANDBOX_BASE_URL=http://127.0.0.1:8080 SANDBOX_INTERNAL_TOKEN=… .venv/bin/python examples/async_sdk.py
"""

from __future__ import annotations

import asyncio

from sandloom import AsyncClient


async def square(client: AsyncClient, number: int) -> str:
    """Computed in a sandbox of its own, which is released at the end of the block."""
    async with client.sandbox(scope="examples") as box:
        await box.files.write("/workspace/square.py", f"print({number} ** 2)")
        return (await box.run(["python3", "square.py"])).check().stdout.strip()


async def watch(client: AsyncClient) -> list[str]:
    """Lines of a command, as they appear."""
    async with client.sandbox(scope="examples") as box:
        command = "for n in 1 2 3; do echo line $n; sleep 0.1; done"
        return [event.text.strip() async for event in box.stream(command) if event.kind == "stdout"]


async def main() -> None:
    async with AsyncClient.from_env() as client, asyncio.TaskGroup() as tasks:
        squares = [tasks.create_task(square(client, number)) for number in range(1, 4)]
        lines = tasks.create_task(watch(client))
    print(f"squares: {[task.result() for task in squares]}")
    print(f"seen: {lines.result()}")


if __name__ == "__main__":
    asyncio.run(main())
