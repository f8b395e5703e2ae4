"""A real RabbitMQ, to compare ourselves with: one node, from Debian's package.

    with RabbitMQ() as rabbitmq:
        pika.URLParameters(rabbitmq.url)

It has a name, ports, a data directory and a port mapper (epmd) of its own, so that it disturbs no other, and
listens on this machine only. Where the package is missing, SetupError says so, for a test to be skipped with
that line. Its data and its log lie in a temporary directory that goes when it is stopped. It ends with us,
even when we are killed, where the system has `setpriv`.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from headrace.errors import ChildFailed, SetupError

PROGRAM: Final = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
START_S_MAX: Final = 180.0
START_ATTEMPTS: Final = 3
"""The ports are free when they are chosen; somebody else may be quicker."""
GREETING: Final = b"AMQP\x00\x00\x09\x01"


class RabbitMQ:
    """One RabbitMQ node, from `start` to `stop`; both belong to one thread."""

    def __init__(self, *, settings: Sequence[str] = ()) -> None:
        """Settings are lines of rabbitmq.conf."""
        self._settings = tuple(settings)
        self._processes: list[subprocess.Popen[bytes]] = []
        self._home: Path | None = None
        self.port = 0

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"amqp://guest:guest@127.0.0.1:{self.port}/"

    @property
    def pid(self) -> int:
        """The process that runs the server."""
        return self._processes[-1].pid

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Return when it serves. Raises SetupError where it can't be had."""
        epmd = shutil.which("epmd")
        if not PROGRAM.is_file() or epmd is None:
            raise SetupError("RabbitMQ is not installed: `apt-get install rabbitmq-server`")
        for attempt in range(START_ATTEMPTS):
            try:
                self._start_once(epmd)
            except ChildFailed:
                self.stop()
                if attempt + 1 == START_ATTEMPTS:
                    raise
            else:
                return

    def stop(self) -> None:
        """Stop the node and its port mapper, and remove its data. Harmless when it isn't running."""
        for process in reversed(self._processes):
            process.kill()
            process.wait()
        self._processes.clear()
        if self._home is not None:
            # What Erlang's helper processes still write goes as well.
            shutil.rmtree(self._home, ignore_errors=True)
            self._home = None

    def _start_once(self, epmd: str) -> None:
        self._home = Path(tempfile.mkdtemp(prefix="rabbitmq-"))
        self.port, distribution_port, mapper_port = _free_ports(3)
        (self._home / "rabbitmq.conf").write_text("".join(f"{line}\n" for line in self._settings))
        (self._home / "enabled_plugins").write_text("[].\n")
        self._run([epmd, "-port", str(mapper_port), "-address", "127.0.0.1"], dict(os.environ))
        _wait_for(lambda: _accepts(mapper_port), self._processes, self._home)
        self._run([str(PROGRAM)], self._environment(self._home, distribution_port, mapper_port))
        _wait_for(lambda: _speaks_amqp(self.port), self._processes, self._home)

    def _run(self, command: list[str], environment: dict[str, str]) -> None:
        assert self._home is not None
        with (self._home / "output.log").open("ab") as output:
            self._processes.append(
                subprocess.Popen(
                    [*_ending_with_us(), *command],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=environment,
                )
            )

    def _environment(self, home: Path, distribution_port: int, mapper_port: int) -> dict[str, str]:
        return {
            **os.environ,
            "HOME": str(home),
            "ERL_EPMD_PORT": str(mapper_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            # The script becomes the server instead of starting one.
            "RUNNING_UNDER_SYSTEMD": "true",
            "RABBITMQ_NODENAME": f"headrace-{secrets.token_hex(4)}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(distribution_port),
            "RABBITMQ_CONFIG_FILE": str(home / "rabbitmq"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(home / "data"),
            "RABBITMQ_LOG_BASE": str(home / "logs"),
            "RABBITMQ_PID_FILE": str(home / "pid"),
            "RABBITMQ_CONF_ENV_FILE": str(home / "rabbitmq-env.conf"),
            # Idle schedulers would take the processor from what is measured or tested.
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+sbwt none +sbwtdcpu none +sbwtdio none "
            "-kernel inet_dist_use_interface {127,0,0,1}",
        }


def _wait_for(condition: Callable[[], bool], processes: list[subprocess.Popen[bytes]], home: Path) -> None:
    end = time.monotonic() + START_S_MAX
    while not condition():
        ended = [process for process in processes if process.poll() is not None]
        if ended or time.monotonic() > end:
            output = (home / "output.log").read_text(errors="replace")[-1000:]
            raise ChildFailed(f"RabbitMQ did not start: {output.strip() or '(it said nothing)'}")
        time.sleep(0.05)


def _accepts(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False


def _speaks_amqp(port: int) -> bool:
    """Whether connection.start comes: the port is open before the node is ready."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=10) as client:
            client.sendall(GREETING)
            return client.recv(1) == b"\x01"
    except OSError:
        return False


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _ending_with_us() -> list[str]:
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL", "--"] if setpriv else []
