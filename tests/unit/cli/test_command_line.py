"""The command as a process: exit codes, one-line errors, and what it prints."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import sandloom

ROOT = Path(sandloom.__file__).parents[1]
SECRET = "s3cret-value"


def run(*words: str, cwd: Path, root: Path = ROOT, **settings: str) -> subprocess.CompletedProcess[str]:
    """``sandloom`` with these settings only."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("SANDBOX_", "BLOBSTORE_"))}
    environ |= {f"SANDBOX_{name}": value for name, value in settings.items()}
    environ |= {"PYTHONPATH": str(root), "HOME": str(cwd)}
    return subprocess.run(
        [sys.executable, "-m", "sandloom", *words], cwd=cwd, env=environ, capture_output=True, text=True, check=False
    )


def test_the_version_is_the_package_s(tmp_path: Path) -> None:
    assert sandloom.__version__ in run("--version", cwd=tmp_path).stdout


@pytest.mark.parametrize("command", ["up", "api", "worker", "beat", "flower"])
def test_bad_settings_end_a_server_with_2_and_one_line(tmp_path: Path, command: str) -> None:
    done = run(command, cwd=tmp_path, PORT=SECRET, BROKER_URL="redis://127.0.0.1:1")
    assert done.returncode == 2
    assert done.stderr.startswith("sandloom: SANDBOX_SETTINGS_INVALID: SANDBOX_PORT")
    assert len(done.stderr.splitlines()) == 1
    assert SECRET not in done.stderr


@pytest.mark.parametrize("command", ["api", "worker", "beat", "flower"])
def test_a_process_of_a_fleet_without_a_broker_says_so(tmp_path: Path, command: str) -> None:
    done = run(command, cwd=tmp_path)
    assert done.returncode == 2
    assert "SANDBOX_BROKER_URL" in done.stderr


def test_an_egress_policy_stops_the_start_by_its_code(tmp_path: Path) -> None:
    done = run("up", cwd=tmp_path, EGRESS_ALLOWED_HOSTS="example.org")
    assert done.returncode == 2
    assert done.stderr.startswith("sandloom: SANDBOX_EGRESS_POLICY_UNSUPPORTED: ")


def test_a_budget_that_nobody_enforces_stops_the_start(tmp_path: Path) -> None:
    done = run("worker", cwd=tmp_path, BUDGET_PIDS="64", RESOURCE_CONTROL="off", BROKER_URL="redis://127.0.0.1:1")
    assert done.returncode == 2
    assert "SANDBOX_BUDGET_PIDS" in done.stderr


def test_prod_without_secrets_stops_the_start(tmp_path: Path) -> None:
    done = run("up", cwd=tmp_path, ENVIRONMENT="prod")
    assert done.returncode == 2
    assert "SANDBOX_INTERNAL_TOKEN" in done.stderr
    assert "SANDBOX_SECRET_KEY" in done.stderr


def test_an_address_in_use_stops_the_start_by_its_variable(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = run("up", "--data-dir", str(tmp_path / "data"), cwd=tmp_path, PORT=port, LOG_LEVEL="error")
    assert done.returncode == 2
    assert done.stderr.startswith(
        f"sandloom: SANDBOX_SETTINGS_INVALID: SANDBOX_HOST, SANDBOX_PORT: 127.0.0.1, port {port}"
    )
    assert "--port" in done.stderr


def test_a_traceback_shows_with_debug_only(tmp_path: Path) -> None:
    assert "Traceback" not in run("config", "show", cwd=tmp_path, PORT="x").stderr
    assert "Traceback" in run("--debug", "config", "show", cwd=tmp_path, PORT="x").stderr


def test_an_unknown_command_is_bad_usage(tmp_path: Path) -> None:
    assert run("nonsense", cwd=tmp_path).returncode == 2


def test_a_reader_that_leaves_is_no_error(tmp_path: Path) -> None:
    command = f"{sys.executable} -m sandloom config list | head -1"
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(["sh", "-c", command], cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


def test_settings_show_where_they_came_from_and_no_secret(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("SANDBOX_ZONE=from-file\n")
    done = run(
        *("config", "list", "--json"),
        cwd=tmp_path,
        INTERNAL_TOKEN=SECRET,
        DATABASE_URL=f"postgresql://u:{SECRET}@h/d",
        WOKER_ID="x",
    )
    assert done.returncode == 0
    assert SECRET not in done.stdout + done.stderr
    shown = json.loads(done.stdout)
    by_name = {row["variable"]: row for row in shown["settings"]}
    assert by_name["SANDBOX_ZONE"] == {"variable": "SANDBOX_ZONE", "value": "from-file", "from": ".env"}
    assert by_name["SANDBOX_INTERNAL_TOKEN"]["value"] == "********"
    assert by_name["SANDBOX_DATABASE_URL"]["value"] == "postgresql+psycopg2://***@h/d"
    assert by_name["SANDBOX_PORT"]["from"] == "default"
    assert "SANDBOX_WORKER_ID" in shown["warnings"][0]


def test_single_settings_are_shown_by_either_name(tmp_path: Path) -> None:
    done = run("config", "show", "port", "SANDBOX_ZONE", cwd=tmp_path)
    assert [line.split()[0] for line in done.stdout.splitlines()[1:]] == ["SANDBOX_PORT", "SANDBOX_ZONE"]
    assert run("config", "show", "prot", cwd=tmp_path).returncode == 2


def test_a_schema_is_behind_until_it_is_brought_up_to_date(tmp_path: Path) -> None:
    file = tmp_path / "a b.db"
    url = f"sqlite:///{file}"
    file.write_bytes(b"")
    behind = run("db", "check", cwd=tmp_path, DATABASE_URL=url)
    assert behind.returncode == 3
    assert "SANDBOX_SCHEMA_BEHIND" in behind.stderr
    assert file.read_bytes() == b""
    assert run("db", "upgrade", cwd=tmp_path, DATABASE_URL=url).returncode == 0
    before = file.read_bytes()
    current = run("db", "check", "--json", cwd=tmp_path, DATABASE_URL=url)
    assert (current.returncode, json.loads(current.stdout)) == (0, {"missing": [], "extra": []})
    assert file.read_bytes() == before


@pytest.mark.parametrize("command", ["check", "fence"])
def test_a_database_that_is_not_there_is_said_and_not_made(tmp_path: Path, command: str) -> None:
    done = run("db", command, cwd=tmp_path, DATABASE_URL=f"sqlite:///{tmp_path}/x.db")
    assert done.returncode == 3
    assert done.stderr.startswith(f"sandloom: SANDBOX_SCHEMA_BEHIND: There is no database {tmp_path}/x.db yet")
    assert list(tmp_path.iterdir()) == []


def test_a_check_reads_what_a_service_that_was_killed_left_in_its_log(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    assert run("db", "upgrade", cwd=tmp_path, DATABASE_URL=url).returncode == 0
    change = "import os, sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('DROP TABLE tallies'); os._exit(0)"
    subprocess.run([sys.executable, "-c", change, str(tmp_path / "x.db")], check=True)
    before = {file.name: file.read_bytes() for file in tmp_path.glob("x.db*") if not file.name.endswith("-shm")}
    assert before["x.db-wal"]
    done = run("db", "check", cwd=tmp_path, DATABASE_URL=url)
    assert (done.returncode, "missing: tallies" in done.stdout) == (3, True)
    assert {name: (tmp_path / name).read_bytes() for name in before} == before


@pytest.mark.parametrize("dialect", ["postgresql", "mariadb", "sqlite"])
def test_the_schema_is_printed_as_sql(tmp_path: Path, dialect: str) -> None:
    done = run("db", "sql", "--dialect", dialect, cwd=tmp_path)
    assert done.returncode == 0
    assert "CREATE TABLE sandboxes" in done.stdout
    assert "alembic_version" not in done.stdout
    migrations = run("db", "sql", "--dialect", dialect, "--since", "base", cwd=tmp_path)
    if dialect == "sqlite":
        assert (migrations.returncode, "sandloom db upgrade" in migrations.stderr) == (2, True)
        return
    assert migrations.returncode == 0
    assert {"CREATE TABLE sandboxes", "CREATE TABLE alembic_version"} <= set(
        re.findall(r"CREATE TABLE \w+", migrations.stdout)
    )


def test_a_database_whose_driver_is_missing_says_so(tmp_path: Path) -> None:
    done = run("db", "check", cwd=tmp_path, DATABASE_URL=f"mysql+nosuchdriver://u:{SECRET}@h/d")
    assert done.returncode == 2
    assert done.stderr.startswith("sandloom: SANDBOX_DATABASE_DRIVER_MISSING: The driver of mysql+nosuchdriver://")
    assert "sandloom[mysql]" in done.stderr
    assert SECRET not in done.stderr


def test_a_fence_says_what_it_did(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/x.db"
    run("db", "upgrade", cwd=tmp_path, DATABASE_URL=url)
    done = run("db", "fence", cwd=tmp_path, DATABASE_URL=url)
    assert done.returncode == 0
    assert done.stdout.startswith("0 open commands ended, 0 sandboxes and 0 workers moved on")


@pytest.mark.parametrize("command", ["up", "demo", "api", "worker", "beat", "flower"])
def test_the_bare_wheel_says_what_it_lacks(tmp_path: Path, command: str) -> None:
    shutil.copytree(ROOT / "sandloom", tmp_path / "site" / "sandloom")
    done = run(command, cwd=tmp_path, root=tmp_path / "site")
    assert done.returncode == 2
    assert "needs a checkout or the image" in done.stderr


def test_a_client_command_without_a_token_says_what_to_set(tmp_path: Path) -> None:
    done = run("ps", cwd=tmp_path, DATA_DIR=str(tmp_path))
    assert done.returncode == 1
    assert "SANDBOX_API_KEY" in done.stderr


def test_a_client_command_without_a_service_names_the_address(tmp_path: Path) -> None:
    done = run("ps", cwd=tmp_path, BASE_URL="http://127.0.0.1:1", INTERNAL_TOKEN=SECRET)
    assert done.returncode == 1
    assert done.stderr.startswith("sandloom: SERVICE_UNAVAILABLE: http://127.0.0.1:1")
    assert "'sandloom up'" in done.stderr
    assert SECRET not in done.stderr


def test_a_setting_of_a_client_that_cannot_work_is_named_and_no_token_shown(tmp_path: Path) -> None:
    done = run("ps", cwd=tmp_path, API_KEY=f"{SECRET}\nmore")
    assert done.returncode == 2
    assert done.stderr.startswith("sandloom: SANDBOX_SETTINGS_INVALID: ")
    assert "SANDBOX_API_KEY" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert SECRET not in done.stderr


def test_what_is_no_place_says_how_one_is_written(tmp_path: Path) -> None:
    done = run("cat", "box1:../x", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (
        2,
        "sandloom: box1:../x: a path in a sandbox is written ID:/workspace/…\n",
    )


@pytest.mark.parametrize(
    ("module", "code"),
    [
        ("click", "import runpy; runpy.run_module('sandloom', run_name='__main__')"),
        ("httpx", "from sandloom.cli import main; main()"),
        ("httpx", "from sandloom.cli import doctor_main; doctor_main()"),
    ],
)
def test_an_interrupt_while_modules_load_ends_quietly_with_130(tmp_path: Path, module: str, code: str) -> None:
    (tmp_path / f"{module}.py").write_text("raise KeyboardInterrupt")
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "")
