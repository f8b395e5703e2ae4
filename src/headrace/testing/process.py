"""A broker in a process of its own, to be killed and started again, on the same port and the same data.

    with BrokerProcess(tmp_path) as broker:
        ...                                                  # clients use broker.bootstrap
        broker.kill()                                        # kill -9
        broker.start()                                       # clients find it again
        broker.stop()                                        # in good order
        broker.start(kill_at("log.appended", after=100))     # it kills itself at a failpoint
        broker.await_killed()

It does not outlive the process that started it, however that one ends.
"""

from __future__ import annotations

import base64
import os
import pickle
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headrace.config import Address, BrokerConfig
from headrace.errors import ChildFailed, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType
    from typing import Self

_ANY_PORT: Final = Address("127.0.0.1", 0)


class BrokerProcess:
    """A Kafka broker in a process of its own. Use it as a context manager, or start and stop it."""

    def __init__(self, data_dir: Path | str, *, config: BrokerConfig | None = None) -> None:
        """`config` replaces all settings but the data directory; without it, the port is a free one."""
        self._config = replace(config or BrokerConfig(listen=_ANY_PORT), data_dir=Path(data_dir))
        self._address: Address | None = None
        self._amqp_address: Address | None = None
        self._process: subprocess.Popen[str] | None = None

    @property
    def bootstrap(self) -> str:
        """What a Kafka client wants as `bootstrap.servers`; the same after every start."""
        return str(self.address)

    @property
    def address(self) -> Address:
        """Where the broker listens when it runs."""
        if self._address is None:
            raise UsageError("the broker was never started: call start(), or use it in a `with` statement")
        return self._address

    @property
    def amqp_url(self) -> str:
        """What a client of AMQP connects with, if the settings say that there are queues."""
        return f"amqp://guest:guest@{self.amqp_address}/"

    @property
    def amqp_address(self) -> Address:
        """Where the broker serves queues, if the settings say that there are any."""
        if self._amqp_address is None:
            raise UsageError("the broker was never started, or its settings have no `queues`")
        return self._amqp_address

    @property
    def pid(self) -> int:
        """The process."""
        return self._running().pid

    def start(self, environment: Mapping[str, str] | None = None) -> Self:
        """Start, and return when clients can connect; or when it has been killed at a failpoint before that.

        `environment` is added to this process's own: `kill_at` makes one.
        """
        if self._process is not None:
            raise UsageError(f"the broker at {self.bootstrap} is running already: stop or kill it first")
        config = self._config_to_start()
        process = subprocess.Popen(
            [sys.executable, "-m", "headrace.child", "-m", "headrace.testing.process", _to_text(config)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **(environment or {})},
        )
        assert process.stdout is not None
        line = process.stdout.readline()
        self._process = process
        if line.endswith("\n"):
            kafka, *amqp = line.split()
            self._address = Address.parse(kafka)
            self._amqp_address = Address.parse(amqp[0]) if amqp else None
        elif (code := self._end(None)) != -signal.SIGKILL:
            raise ChildFailed(f"the broker ended with code {code} before it was ready; it said why on stderr")
        return self

    def kill(self, number: int = signal.SIGKILL) -> int:
        """Send a signal, and return the exit code when it is gone: -9 for SIGKILL."""
        self._running().send_signal(number)
        return self._end(None)

    def await_killed(self, timeout_s: float = 60.0) -> None:
        """Return when it is gone; raise if it ended otherwise than by a kill, or did not end in time."""
        if self._process is None:
            return
        code = self._end(timeout_s)
        if code != -signal.SIGKILL:
            raise ChildFailed(f"the broker was not killed: it ended with code {code}")

    def stop(self) -> None:
        """Stop in good order. Harmless when it is not running."""
        if self._process is not None:
            self.kill(signal.SIGTERM)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _config_to_start(self) -> BrokerConfig:
        """The same ports as before, if there was a start before this one."""
        config = self._config
        if self._address is not None:
            config = replace(config, listen=self._address)
        if self._amqp_address is not None and config.queues is not None:
            config = replace(config, queues=replace(config.queues, listen=self._amqp_address))
        return config

    def _running(self) -> subprocess.Popen[str]:
        if self._process is None:
            raise UsageError("the broker is not running: call start()")
        return self._process

    def _end(self, timeout_s: float | None) -> int:
        process, self._process = self._running(), None
        try:
            return process.wait(timeout_s)
        except subprocess.TimeoutExpired as error:
            process.kill()
            process.wait()
            raise ChildFailed(f"the broker did not end within {timeout_s:.0f} s") from error
        finally:
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                pipe.close()


def _to_text(config: BrokerConfig) -> str:
    return base64.b64encode(pickle.dumps(config)).decode()


def _from_text(text: str) -> BrokerConfig:
    config = pickle.loads(base64.b64decode(text))  # noqa: S301  # our parent made it
    assert isinstance(config, BrokerConfig)
    return config


def _serve(text: str) -> None:
    from headrace.broker import run_broker  # noqa: PLC0415  # whoever starts one needs none of it

    run_broker(
        _from_text(text),
        lambda listening: print(listening.kafka, listening.amqp or "", flush=True),
    )


if __name__ == "__main__":
    _serve(sys.argv[1])
