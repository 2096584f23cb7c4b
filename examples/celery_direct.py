"""Commands as Celery tasks, without REST in between: a group, a chord, a chain.

    SANDBOX_BROKER_URL=redis://… SANDBOX_INTERNAL_TOKEN=… .venv/bin/python examples/celery_direct.py

Needs the extra ``sandloom[fleet]``, which a checkout's ``.venv`` has, and a fleet, such as that of ``make fleet``: the
embedded service has its broker inside its own process.
"""

from __future__ import annotations

import os
import sys
import uuid

from celery import chain, chord, group

from sandloom import Fleet

PART = "import sys; number = int(sys.argv[1]); open(f'part-{number}', 'w').write(str(number**2)); print(number**2)"
TOTAL = "import glob; print(sum(int(open(name).read()) for name in glob.glob('part-*')))"
LONGEST_SECONDS = 120


def main() -> int:
    broker_url = os.environ.get("SANDBOX_BROKER_URL")
    token = os.environ.get("SANDBOX_API_KEY") or os.environ.get("SANDBOX_INTERNAL_TOKEN")
    if not broker_url or not token:
        needed = "SANDBOX_API_KEY or SANDBOX_INTERNAL_TOKEN" if broker_url else "SANDBOX_BROKER_URL, that of a fleet"
        print(f"celery_direct.py needs {needed}", file=sys.stderr)
        return 2
    fleet = Fleet(
        broker_url,
        api_key=token,
        result_backend=os.environ.get("SANDBOX_RESULT_BACKEND"),
        namespace=os.environ.get("SANDBOX_BROKER_NAMESPACE", "sandloom"),
    )
    box = fleet.sandbox(f"celery-{uuid.uuid4().hex[:8]}", scope="examples")
    box.files.write("/workspace/part.py", PART)
    box.files.write("/workspace/total.py", TOTAL)

    # Commands of one sandbox run side by side when each has a scope of its own.
    parts = [box.exec_signature(["python3", "part.py", str(n)], exec_scope=f"part-{n}") for n in (1, 2, 3)]
    records = group(parts, app=fleet.app).apply_async().get(timeout=LONGEST_SECONDS)
    print(f"group: {[record['stdout'].strip() for record in records]}")

    # A signature stands for one run however often it is sent, so another run needs new ones.
    parts = [box.exec_signature(["python3", "part.py", str(n)], exec_scope=f"part-{n}") for n in (4, 5, 6)]
    total = box.exec_signature(["python3", "total.py"])
    record = chord(parts, total, app=fleet.app).apply_async().get(timeout=LONGEST_SECONDS)
    print(f"chord: {record['stdout'].strip()}")

    commands = ("echo built > log", "echo tested >> log", "cat log")
    steps = [box.exec_signature(["sh", "-c", command]) for command in commands]
    record = chain(*steps, app=fleet.app).apply_async().get(timeout=LONGEST_SECONDS)
    print(f"chain: {record['stdout'].split()}")

    # Ended by its task's id; what runs beside it is not touched.
    slow = box.exec_signature(["sleep", "600"], exec_scope="slow").apply_async()
    fleet.app.control.revoke(slow.id, terminate=True)
    beside = box.run(["echo", "goes on"], exec_scope="beside")
    print(f"beside the revoked one: {beside.stdout.strip()}, released: {box.release()}")
    fleet.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
