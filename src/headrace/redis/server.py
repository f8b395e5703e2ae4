"""An embedded Redis server: started, stopped in good order, and never left behind.

    redis/
      data/         Redis's own files
      run/          its socket, where the path is short enough for one
      redis.conf    its settings, written at each start
      redis.pid     its process
      password      only whoever runs us can read it
      log           what it says; begun anew at a start when it has grown large
      lock          held while it runs

Rules
- One process of ours runs it: the lock is held as long as it runs.
- Should we be killed, a watcher stops it (see embedded.py). Should the watcher be killed, too, the next start
  finds the server and stops it before it starts its own.
- It listens on a socket of the file system, or on loopback; either way clients need the password.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from headrace.config import Address, RedisConfig
from headrace.embedded import end_watcher, free_port, is_named, last_lines, log_of, socket_dir, watch
from headrace.errors import ChildFailed, UsageError
from headrace.log.directory_lock import DirectoryLock
from headrace.log.disk import SystemDisk
from headrace.logs import fields
from headrace.redis.program import find_program
from headrace.redis.settings import settings

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

HOME_NAME: Final = "redis"
SOCKET_NAME: Final = "redis.sock"
POLL_S: Final = 0.02
KILL_S_MAX: Final = 10.0
"""How long a process may take to go that was killed."""
_PASSWORD_BYTES: Final = 24

_logger = logging.getLogger(__name__)


class EmbeddedRedis:
    """A Redis server of our own. Use it as a context manager, or start and stop it; from one thread."""

    def __init__(self, config: RedisConfig) -> None:
        self._config = config
        self._process: subprocess.Popen[bytes] | None = None
        self._watcher: subprocess.Popen[bytes] | None = None
        self._lock: DirectoryLock | None = None
        self._socket_dir: Path | None = None
        self._listen: Address | None = None
        self._home: Path | None = None

    @property
    def url(self) -> str:
        """How clients connect; it holds the password."""
        password = (self.home / "password").read_text()
        if self._listen is not None:
            return f"redis://:{password}@{self._listen}/0"
        if self._socket_dir is None:
            raise UsageError("the embedded Redis is not running: call start(), or use it in a `with`")
        return f"unix://:{password}@{quote(str(self._socket_dir / SOCKET_NAME))}?db=0"

    @property
    def home(self) -> Path:
        """Where it keeps its files."""
        if self._home is None:
            raise UsageError("the embedded Redis was never started: call start()")
        return self._home

    @property
    def pid(self) -> int:
        """The server's process."""
        if self._process is None:
            raise UsageError("the embedded Redis is not running: call start(), or use it in a `with`")
        return self._process.pid

    def start(self) -> Self:
        """Start it, and return when clients can connect."""
        if self._process is not None:
            raise UsageError(f"the embedded Redis in {self.home} is running already: stop it first")
        self._config.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        home = self._config.data_dir.resolve() / HOME_NAME
        home.mkdir(exist_ok=True, mode=0o700)
        lock = DirectoryLock(home, SystemDisk())
        lock.take()
        self._home, self._lock = home, lock
        try:
            self._run(home)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop it in good order, and return when it is gone. Harmless when it is not running."""
        if self._process is not None:
            _end(self._process, self._config.stop_s_max)
            self._process = None
        if self._watcher is not None:
            end_watcher(self._watcher)
            self._watcher = None
        if self._socket_dir is not None and self._socket_dir.parent != self._home:
            shutil.rmtree(self._socket_dir, ignore_errors=True)
        self._socket_dir = self._listen = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def check(self) -> None:
        """Raise ChildFailed with its last lines if it has ended by itself."""
        if self._process is not None and (code := self._process.poll()) is not None:
            raise ChildFailed(f"Redis in {self.home} ended with code {code}. {last_lines(self.home)}")

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _run(self, home: Path) -> None:
        program = find_program(self._config.program)
        self._end_left_over(home)
        command = [str(program), str(self._write_settings(home))]
        with log_of(home).open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=home, start_new_session=True
            )
        self._watcher = watch(self._process.pid, signal.SIGTERM, {})
        self._await_ready()

    def _write_settings(self, home: Path) -> Path:
        listen = self._config.listen
        if listen is not None:
            self._listen = Address(listen.host, free_port(listen, "Redis"))
        else:
            self._socket_dir = socket_dir(home, SOCKET_NAME)
        (home / "data").mkdir(exist_ok=True, mode=0o700)
        text = settings(
            data=home / "data",
            pid_file=home / "redis.pid",
            password=_password(home),
            listen=self._listen,
            socket=None if self._socket_dir is None else self._socket_dir / SOCKET_NAME,
            is_durable=self._config.durability == "sync",
        )
        path = _settings_file(home)
        _write_secret(path, text)
        return path

    def _await_ready(self) -> None:
        deadline_s = time.monotonic() + self._config.start_s_max
        with redis.Redis.from_url(self.url, protocol=2, retry=Retry(NoBackoff(), 0)) as client:
            while True:
                self.check()
                with contextlib.suppress(redis.ConnectionError, redis.TimeoutError):
                    client.ping()
                    return
                if time.monotonic() > deadline_s:
                    raise ChildFailed(
                        f"Redis in {self.home} was not ready within {self._config.start_s_max:.0f} s. "
                        f"{last_lines(self.home)}"
                    )
                time.sleep(POLL_S)

    def _end_left_over(self, home: Path) -> None:
        """End a server that an earlier process of ours has left. We hold its lock."""
        try:
            pid = int((home / "redis.pid").read_text())
        except (FileNotFoundError, ValueError):
            return
        if not is_named(pid, _settings_file(home)):
            return
        _logger.warning(
            "stopping the Redis that a crash has left running in %s",
            home,
            extra=fields(pid=pid, home=str(home)),
        )
        for number, within_s in _steps(self._config.stop_s_max):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
            deadline_s = time.monotonic() + within_s
            while time.monotonic() < deadline_s:
                if not is_named(pid, _settings_file(home)):
                    return
                time.sleep(POLL_S)
        raise ChildFailed(f"Redis in {home} (process {pid}) can't be stopped: end it, and try again")


def _settings_file(home: Path) -> Path:
    return home / "redis.conf"


def _password(home: Path) -> str:
    path = home / "password"
    if not path.exists():
        _write_secret(path, secrets.token_urlsafe(_PASSWORD_BYTES))
    return path.read_text()


def _write_secret(path: Path, text: str) -> None:
    """Write a file that only we can read, whole or not at all."""
    unfinished = path.with_suffix(".unfinished")
    unfinished.unlink(missing_ok=True)
    with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    unfinished.rename(path)


def _end(process: subprocess.Popen[bytes], stop_s_max: float) -> None:
    for number, within_s in _steps(stop_s_max):
        process.send_signal(number)
        try:
            process.wait(within_s)
        except subprocess.TimeoutExpired:
            continue
        return
    process.wait()


def _steps(stop_s_max: float) -> tuple[tuple[signal.Signals, float], ...]:
    """In good order, at once; and how long each may take."""
    return ((signal.SIGTERM, stop_s_max), (signal.SIGKILL, KILL_S_MAX))
