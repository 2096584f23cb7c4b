"""A command that is followed while it runs, left, and taken up again by another client.

SANDBOX_BASE_URL=http://127.0.0.1:8080 SANDBOX_INTERNAL_TOKEN=… .venv/bin/python examples/streaming.py
"""

from __future__ import annotations

from sandloom import Client

COMMAND = "for n in 1 2 3 4; do echo line $n; echo warning $n >&2; sleep 0.2; done; exit 5"


def main() -> None:
    with Client.from_env() as client, client.sandbox(scope="examples") as box:
        process = box.start(COMMAND)
        last = 0
        for event in process.events():
            last = event.seq
            print(f"{event.seq} {event.kind} {event.text.strip() or event.data['status']}")
            if event.text.startswith("line 2"):
                break

        # The command runs on. Whoever knows sandbox and exec_id goes on after the last event that was seen; a lost
        # connection is taken up again in the same way, without the caller's doing.
        with Client.from_env() as other:
            again = other.attach(box.id).process(process.exec_id)
            for event in again.events(after=last):
                print(f"{event.seq} {event.kind} {event.text.strip() or event.data['status']}")
            result = again.poll()
        print(f"ended: {result.status}, exit code {result.exit_code}, stdout {result.stdout!r}")


if __name__ == "__main__":
    main()
