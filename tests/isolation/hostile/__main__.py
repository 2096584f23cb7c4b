"""``python3 -m hostile NAME… < FACTS``: runs each program in a process of its own.

For each there is a line of JSON: its name, one of ``reached``, ``held`` and ``broken``, and a text.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import sys
import traceback

from .catalogue import PROGRAMS
from .linux import libc
from .program import Facts, Held

_TIMEOUT_SECONDS = 40


def main() -> None:
    facts = json.load(sys.stdin)
    for name in sys.argv[1:]:
        child = os.fork()
        if child == 0:
            signal.alarm(_TIMEOUT_SECONDS)
            if os.geteuid() == 0:
                # Only outside: what one program mounts is not to be seen by the next.
                libc.unshare(0x20000 | 0x4000000)
            try:
                os.write(1, b"\n" + json.dumps([name, *run(name, facts)]).encode() + b"\n")
            finally:
                os._exit(0)
        os.waitpid(child, 0)


def run(name: str, facts: Facts) -> tuple[str, str]:
    try:
        reached = PROGRAMS[name].attack(facts)
    except Held as held:
        return "held", str(held)
    except OSError as error:
        return "held", errno.errorcode.get(error.errno or 0, str(error))
    except BaseException:
        return "broken", traceback.format_exc()
    return ("held", "nothing was reached") if reached is None else ("reached", reached)


main()
