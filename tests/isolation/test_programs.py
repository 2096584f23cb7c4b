"""What people run works with the filter and default limits on: each program for real, at every level.

``NEEDS_PROC`` are those that cannot do without /proc, which basic has not; docs/isolation.md names them.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sandloom.execution.runner import Runner
from sandloom.execution.spec import Limits, Reason
from tests.isolation.kit import Sandbox, plan_for
from tests.services.need import missing

pytestmark = [pytest.mark.bwrap, pytest.mark.slow]

NEEDS_PROC = ("gdb", "rustc", "cargo", "java", "chromium")


@pytest.fixture
def strong(level, report, state_dir, spawner):
    """With limits as a deployment has them by default."""
    assert report.plan is not None
    if report.plan.seccomp_file is None:
        pytest.skip("missing: a seccomp filter, see the probe")
    made = Sandbox(state_dir, plan_for(level, report.plan), Runner(spawner))
    made.template = replace(made.template, limits=Limits(), timeout_seconds=100)
    return made


def need(sandbox, *programs: str) -> None:
    """Each program is to be among what a sandbox sees."""
    for program in programs:
        if sandbox.run("/bin/sh", "-c", 'command -v "$1"', "sh", program).verdict.exit_code != 0:
            missing(f"{program}, where sandboxes see it: see scripts/install-test-programs")


def works(sandbox, script: str) -> str:
    ran = sandbox.shell(f"set -e; {script}")
    assert ran.verdict.exit_code == 0, ran
    return ran.text


def works_with_proc(sandbox, program: str, script: str) -> str | None:
    """What ``works`` gives; ``None`` at basic, where ``program`` is seen to fail as documented."""
    assert program in NEEDS_PROC
    if sandbox.template.plan.pid_namespace:
        return works(sandbox, script)
    ran = sandbox.shell(f"set -e; {script}")
    assert (ran.verdict.reason, ran.verdict.exit_code != 0) == (Reason.EXIT, True), ran
    return None


def write(sandbox, name: str, text: str) -> None:
    (sandbox.workspace / name).write_text(text)


def test_python_with_processes_threads_and_sockets(strong):
    need(strong, "python3")
    script = (
        "import multiprocessing, socket, subprocess, threading, asyncio\n"
        "if __name__ == '__main__':\n"
        "    for method in ('fork', 'spawn', 'forkserver'):\n"
        "        with multiprocessing.get_context(method).Pool(3) as pool: print(sum(pool.map(abs, range(-50, 0))))\n"
        "    a, b = socket.socketpair(); a.send(b'x'); print(b.recv(1))\n"
        "    print(subprocess.run(['true']).returncode, socket.if_nameindex()[0][1])\n"
        "    asyncio.run(asyncio.create_subprocess_exec('true'))\n"
    )
    write(strong, "many.py", script)
    assert works(strong, "python3 many.py").split() == ["1275"] * 3 + ["b'x'", "0", "lo"]


def test_numpy_with_processes(strong):
    if strong.python("import numpy").verdict.exit_code != 0:
        missing("numpy of the system's python3: see scripts/install-test-programs")
    script = (
        "import multiprocessing, numpy\n"
        "def trace(size): return int((numpy.ones((size, size)) @ numpy.ones((size, size))).trace())\n"
        "if __name__ == '__main__':\n"
        "    with multiprocessing.Pool(2) as pool: print(pool.map(trace, [10, 300]))\n"
    )
    write(strong, "n.py", script)
    assert works(strong, "python3 n.py") == "[100, 90000]"


def test_node_with_workers_and_children(strong):
    need(strong, "node")
    script = (
        "const {Worker} = require('worker_threads');\n"
        "const fs = require('fs');\n"
        "new Worker('require(\"worker_threads\").parentPort.postMessage(6 * 7)', {eval: true})"
        ".on('message', n => fs.promises.readFile(__filename).then(() => "
        "console.log(n, require('child_process').execSync('echo child').toString().trim())));\n"
    )
    write(strong, "many.js", script)
    assert works(strong, "node many.js") == "42 child"


def test_npm_runs_a_script(strong):
    need(strong, "npm")
    write(strong, "package.json", '{"name": "p", "version": "1.0.0", "scripts": {"hello": "node -p 6*7"}}')
    assert works(strong, "npm run --silent hello") == "42"


def test_git(strong):
    need(strong, "git")
    script = "git init -q r; cd r; git config user.email a@b; git config user.name n; echo 1 > f; git add f"
    assert (
        works(strong, f"{script}; git commit -qm one; git gc -q; git clone -q . ../c; git -C ../c log --format=%s")
        == "one"
    )


def test_a_c_program_built_traced_and_debugged(strong):
    need(strong, "cc")
    write(strong, "p.c", '#include <stdio.h>\nint main(void) { puts("built"); return 0; }\n')
    assert works(strong, "cc -g -o p p.c; ./p") == "built"


def test_strace_on_a_child(strong):
    need(strong, "strace")
    assert "execve" in works(strong, "strace -f -o trace sh -c 'true; /bin/true'; cat trace")


def test_gdb_on_a_child(strong):
    need(strong, "gdb", "cc")
    write(strong, "p.c", "int main(void) {\n  volatile int seen = 42;\n  seen += 0;\n  return 0;\n}\n")
    script = "cc -g -o p p.c; gdb -q -batch -ex 'break main' -ex run -ex next -ex 'print seen' ./p 2>&1"
    said = works_with_proc(strong, "gdb", script)
    if said is not None:
        assert "$1 = 42" in said
        assert "Error disabling address space randomization" not in said


def test_go_builds(strong):
    need(strong, "go")
    write(strong, "p.go", 'package main\nimport "fmt"\nfunc main() { fmt.Println("built") }\n')
    assert works(strong, "GOCACHE=/tmp/go go build -o p p.go; ./p") == "built"


def test_rust_builds(strong):
    need(strong, "rustc")
    write(strong, "p.rs", 'fn main() { println!("built"); }\n')
    assert works_with_proc(strong, "rustc", "rustc p.rs; ./p") in ("built", None)


def test_cargo_builds(strong):
    need(strong, "cargo")
    write(strong, "main.rs", 'fn main() { println!("built"); }\n')
    script = "cargo -q init --vcs none --name p p; cp main.rs p/src; cd p; cargo -q build --offline; target/debug/p"
    assert works_with_proc(strong, "cargo", script) in ("built", None)


def test_java_builds_and_runs(strong):
    need(strong, "javac")
    write(strong, "P.java", 'public class P { public static void main(String[] a) { System.out.println("built"); } }\n')
    assert works_with_proc(strong, "java", "javac P.java; java -XX:+UseSerialGC P") in ("built", None)


def test_postgresql(strong):
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not found:
        missing("PostgreSQL in /usr/lib")
    bin_dir = found[-1].parent
    script = (
        f"PATH={bin_dir}:$PATH; initdb -D data -A trust -U me > log 2>&1 || {{ cat log; exit 1; }}; "
        "pg_ctl -D data -w -o '-k /tmp -c listen_addresses=' -l log start > /dev/null || { cat log; exit 1; }; "
        "psql -h /tmp -U me -d postgres -Atc 'select 6 * 7'; pg_ctl -D data -m fast stop > /dev/null"
    )
    assert works(strong, script) == "42"


def test_chromium_without_its_own_sandbox(strong):
    need(strong, "chromium")
    write(strong, "p.html", "<script>document.title = 6 * 7</script>")
    options = "--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --user-data-dir=/tmp/c --dump-dom"
    page = works_with_proc(strong, "chromium", f"chromium {options} file:///workspace/p.html 2>&1")
    assert page is None or "<title>42" in page


def test_what_the_host_cannot_do_fails_politely(strong):
    """Tools that need what is refused end with a message of their own, not by a signal."""
    for script in ("unshare -r true", "mount -t tmpfs x /tmp", "dmesg", "nsenter -t 1 -m true", "setarch -X true"):
        ran = strong.shell(script)
        assert ran.verdict.signal is None
        assert ran.verdict.exit_code != 0
        assert ran.stderr


def test_the_filter_costs_a_call_next_to_nothing():
    """Counted in instructions of the program, not in time: the tree keeps the way to an allowed call short."""
    from sandloom.execution import seccomp

    program = seccomp.build()
    assert len(program) % 8 == 0
    assert len(program) // 8 < 600
