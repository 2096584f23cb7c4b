"""A private RabbitMQ server: own directory, ports, password, Erlang cookie and name server; loopback only."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import signal
import subprocess
from pathlib import Path

from tests.services.account import free_port, give, make_private, new_password, server_account
from tests.services.certificates import Certificates
from tests.services.need import missing
from tests.services.process import NotReady, Process

#: Not the wrapper on PATH, which wants to be root or the account of the system's own server.
PROGRAM = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
ERLANG = Path("/usr/lib/erlang/bin")
USER = "sandloom"
START_SECONDS = 480.0


class RabbitServer:
    """``directory`` may hold the data of an earlier start, which is then used again with its ports and password."""

    def __init__(self, directory: Path) -> None:
        if not PROGRAM.exists():
            missing("RabbitMQ server (package rabbitmq-server)")
        self.directory = directory
        self.certificates = Certificates.of(directory)
        self._account = server_account("rabbitmq")
        self._names: Process | None = None
        self._process: Process | None = None
        self._numbers = itertools.count(1)
        self._hosts = ["t0"]
        make_private(directory, self._account)
        self.certificates.make(self._account)
        self._state = directory / "ports.json"
        if not self._state.exists():
            self._choose(new_password())
        self._read()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.running

    def start(self) -> None:
        """Returns when it accepts connections; a running server is left alone."""
        if self.running:
            return
        for attempt in range(5):
            try:
                self._start()
            except NotReady as error:
                self.stop()
                if attempt == 4 or not re.search("eaddrinuse|address already in use|in use by another", str(error)):
                    raise
                self._choose(self.password)
                self._read()
            else:
                return

    def stop(self) -> None:
        """Orderly shutdown, durable queues kept."""
        for process in (self._process, self._names):
            if process is not None:
                process.stop(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL; what was not on the disk is lost."""
        if self._process is not None:
            self._process.kill()
            self._process.stop()
        if self._names is not None:
            self._names.stop()

    def restart(self, empty: bool = False) -> None:
        """``empty``: comes back without queues and messages, as after the loss of its disk; users and virtual hosts
        are part of its configuration."""
        if empty:
            self.kill()
            shutil.rmtree(self.directory / "mnesia", ignore_errors=True)
        else:
            self.stop()
        self.start()

    def url(self, host: str = "t0") -> str:
        """``host``: a virtual host."""
        return f"amqp://{USER}:{self.password}@127.0.0.1:{self.port}/{host}"

    def tls_url(self, host: str = "t0") -> str:
        """Without the certificate authority, which a client must be told."""
        return f"amqps://{USER}:{self.password}@127.0.0.1:{self.tls_port}/{host}"

    def new_url(self) -> str:
        """The URL of a virtual host that nobody was given before; the server must run."""
        return self.url(self.new_host())

    def new_host(self) -> str:
        host = f"t{next(self._numbers)}"
        self._hosts.append(host)
        self._write_definitions()
        user, name = f'<<"{USER}">>', f'<<"{host}">>'
        self._call(
            f"ok = rabbit_vhost:add({name}, {user}), "
            f'rabbit_auth_backend_internal:set_permissions({user}, {name}, <<".*">>, <<".*">>, <<".*">>, {user}).'
        )
        return host

    def queues(self, host: str) -> set[str]:
        """Names of all queues of a virtual host."""
        found = self._call(f'[binary_to_atom(Name) || {{_, _, _, Name}} <- rabbit_amqqueue:list_names(<<"{host}">>)].')
        return set(re.findall(r"[\w.@-]+", found.partition(",")[2]))

    def _start(self) -> None:
        self._write_definitions()
        if self._names is None or not self._names.running:
            # Started here, and not by the first node, so that it ends with the server.
            self._names = self._run([ERLANG / "epmd"], "epmd.log")
        process = self._run([PROGRAM], "rabbitmq.log")
        self._process = process
        process.wait_for_output("Server startup complete", timeout_seconds=START_SECONDS)

    def _run(self, argv: list[Path], log: str) -> Process:
        log_path = self.directory / log
        return Process(argv, log_path=log_path, env=self._environment(), cwd=self.directory, account=self._account)

    def _call(self, expressions: str) -> str:
        """Erlang expressions, evaluated inside the server; returns ``{ok, result}``."""
        account = self._account
        done = subprocess.run(
            [ERLANG / "erl_call", "-n", self._node, "-e"], input=f"{expressions}\n",
            env=self._environment(), cwd=self.directory, user=account.uid, group=account.gid,
            extra_groups=None if account.uid is None else [], capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{expressions}: {done.stdout}{done.stderr}"
        assert done.stdout.startswith("{ok,"), f"{expressions}: {done.stdout}"
        return done.stdout

    @property
    def _node(self) -> str:
        return f"sandloom-{self.port}@localhost"

    def _environment(self) -> dict[str, str]:
        inside = {
            "RABBITMQ_NODENAME": self._node,
            "RABBITMQ_DIST_PORT": str(self._dist_port),
            "RABBITMQ_MNESIA_BASE": f"{self.directory}/mnesia",
            "RABBITMQ_LOG_BASE": f"{self.directory}/log",
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_CONFIG_FILE": f"{self.directory}/rabbitmq.conf",
            "RABBITMQ_ADVANCED_CONFIG_FILE": f"{self.directory}/advanced.config",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{self.directory}/enabled_plugins",
            # The system's own would win over these.
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1} +S 2:2",
            # So that the script becomes the server, which is then what is stopped and killed.
            "RUNNING_UNDER_SYSTEMD": "true",
        }
        return {
            "PATH": f"{ERLANG}:/usr/bin:/bin",
            "HOME": str(self.directory),
            "LANG": "C.UTF-8",
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self._names_port),
            "ERL_CRASH_DUMP": "/dev/null",
            **inside,
        }

    def _choose(self, password: str) -> None:
        state = {"password": password, "ports": [free_port() for _ in range(4)]}
        self._write("ports.json", json.dumps(state))

    def _read(self) -> None:
        state = json.loads(self._state.read_text())
        self.password = state["password"]
        self.port, self.tls_port, self._dist_port, self._names_port = state["ports"]
        tls = self.certificates
        lines = [
            f"listeners.tcp.1 = 127.0.0.1:{self.port}",
            f"listeners.ssl.1 = 127.0.0.1:{self.tls_port}",
            f"ssl_options.cacertfile = {tls.ca}",
            f"ssl_options.certfile = {tls.certificate}",
            f"ssl_options.keyfile = {tls.key}",
            "ssl_options.verify = verify_none",
            f"load_definitions = {self.directory}/definitions.json",
            "disk_free_limit.absolute = 50MB",
            "log.console = true",
            "log.file = false",
        ]
        self._write("rabbitmq.conf", "\n".join(lines) + "\n")
        self._write("enabled_plugins", "[].\n")
        cookie = self.directory / ".erlang.cookie"
        if not cookie.exists():
            self._write(cookie.name, new_password())
            cookie.chmod(0o400)

    def _write_definitions(self) -> None:
        rights = {"user": USER, "configure": ".*", "write": ".*", "read": ".*"}
        definitions = {
            "users": [{"name": USER, "password": self.password, "tags": ["administrator"]}],
            "vhosts": [{"name": host} for host in self._hosts],
            "permissions": [{"vhost": host, **rights} for host in self._hosts],
        }
        self._write("definitions.json", json.dumps(definitions))

    def _write(self, name: str, text: str) -> None:
        path = self.directory / name
        path.touch(mode=0o600)
        path.write_text(text)
        give(path, self._account)
