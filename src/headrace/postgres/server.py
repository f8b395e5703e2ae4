"""An embedded PostgreSQL server: started, stopped in good order, and never left behind.

Rules
- One process of ours runs it: the lock beside its directory is held as long as it runs.
- Should we be killed, a watcher stops it (see embedded.py), which runs as the same account.
- Should the watcher be killed, too, the next start finds the server and stops it before it starts its own.
- It listens on a socket of the file system, or on loopback; either way clients need the password.

A fast shutdown (SIGINT) ends sessions and leaves a clean directory. It waits for captures to have received
all that was written; one that does not answer any more holds it up until `stop_s_max`, after which it is
stopped as a crash would (SIGQUIT), which loses nothing that was committed.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headrace.config import MIB, PostgresConfig
from headrace.embedded import end_watcher, free_port, last_lines, log_of, socket_dir, watch
from headrace.errors import ChildFailed, UsageError
from headrace.log.directory_lock import DirectoryLock
from headrace.log.disk import SystemDisk
from headrace.postgres import postmaster
from headrace.postgres.account import Account, account_for
from headrace.postgres.cluster import (
    DATABASE,
    USER,
    ensure_cluster,
    password_of,
    version_of,
    write_passfile,
)
from headrace.postgres.ending import end_left_over, end_process
from headrace.postgres.home import CLUSTER_NAME, HOME_NAME, home_of
from headrace.postgres.programs import find_programs, reachable

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

POLL_S: Final = 0.02
PORT_ON_SOCKETS: Final = 5432
"""Names the socket's file where no port is listened on."""


class EmbeddedPostgres:
    """A PostgreSQL server of our own. Use it as a context manager, or start and stop it; from one thread."""

    def __init__(self, config: PostgresConfig) -> None:
        self._config = config
        self._process: subprocess.Popen[bytes] | None = None
        self._watcher: subprocess.Popen[bytes] | None = None
        self._lock: DirectoryLock | None = None
        self._socket_dir: Path | None = None
        self._port = PORT_ON_SOCKETS
        self._home: Path | None = None

    @property
    def dsn(self) -> str:
        """How clients connect as the superuser; it holds the password."""
        host = self._config.listen.host if self._config.listen else self._socket_dir
        if self._home is None or host is None:
            raise UsageError("the embedded PostgreSQL is not running: call start(), or use it in a `with`")
        password = password_of(self._home)
        return f"host={host} port={self._port} dbname={DATABASE} user={USER} password={password}"

    @property
    def shown_dsn(self) -> str:
        """The same for people and for the command line: it names a file that has the password."""
        host = self._config.listen.host if self._config.listen else self._socket_dir
        passfile = write_passfile(self.home)
        return f"host={host} port={self._port} dbname={DATABASE} user={USER} passfile={quoted(passfile)}"

    @property
    def home(self) -> Path:
        """Where it keeps its files."""
        if self._home is None:
            raise UsageError("the embedded PostgreSQL was never started: call start()")
        return self._home

    @property
    def pid(self) -> int:
        """The server's process."""
        if self._process is None:
            raise UsageError("the embedded PostgreSQL is not running: call start(), or use it in a `with`")
        return self._process.pid

    def start(self) -> Self:
        """Start it, and return when clients can connect."""
        if self._process is not None:
            raise UsageError(f"the embedded PostgreSQL in {self.home} is running already: stop it first")
        config = self._config
        account = account_for(config.data_dir / HOME_NAME / CLUSTER_NAME)
        self._home = home = home_of(config.data_dir, account)
        account = account_for(home / CLUSTER_NAME)
        lock = DirectoryLock(home, SystemDisk())
        lock.take()
        self._lock = lock
        try:
            self._run(home, account)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop it in good order, and return when it is gone. Harmless when it is not running."""
        if self._process is not None:
            end_process(self._process, self._config.stop_s_max)
            self._process = None
        if self._watcher is not None:
            end_watcher(self._watcher)
            self._watcher = None
        if self._socket_dir is not None and self._socket_dir.parent != self._home:
            shutil.rmtree(self._socket_dir, ignore_errors=True)
        self._socket_dir = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def check(self) -> None:
        """Raise ChildFailed with its last lines if it has ended by itself."""
        if self._process is not None and (code := self._process.poll()) is not None:
            raise ChildFailed(f"PostgreSQL in {self.home} ended with code {code}. {last_lines(self.home)}")

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _run(self, home: Path, account: Account) -> None:
        config = self._config
        programs = reachable(find_programs(config.programs_dir, version_of(home)), account, home)
        cluster = ensure_cluster(home, programs, account, is_durable=config.durability == "sync")
        end_left_over(cluster, config.stop_s_max)
        self._port = free_port(config.listen, "PostgreSQL") if config.listen else PORT_ON_SOCKETS
        self._socket_dir = _socket_dir(home, account, self._port)
        command = [str(programs["postgres"]), "-D", str(cluster), *self._options(self._socket_dir)]
        with log_of(home).open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=cluster,
                start_new_session=True,
                **account.process_options,
            )
        self._watcher = watch(self._process.pid, signal.SIGINT, account.process_options)
        self._await_ready(cluster)

    def _options(self, sockets: Path) -> list[str]:
        config = self._config
        settings = {
            "wal_level": "logical",
            "max_wal_senders": "20",
            "max_replication_slots": "20",
            "max_slot_wal_keep_size": f"{config.slot_wal_bytes_max // MIB}MB",
            "listen_addresses": config.listen.host if config.listen else "",
            "port": str(self._port),
            "unix_socket_directories": str(sockets),
            "unix_socket_permissions": "0700",
            "shared_buffers": "64MB",
            "log_min_messages": "warning",
        }
        if config.durability == "os":
            settings |= {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off"}
        return [option for name, value in settings.items() for option in ("-c", f"{name}={value}")]

    def _await_ready(self, cluster: Path) -> None:
        deadline_s = time.monotonic() + self._config.start_s_max
        while True:
            self.check()
            told = postmaster.read(cluster)
            if told is not None and told.pid == self.pid and told.is_ready:
                return
            if time.monotonic() > deadline_s:
                raise ChildFailed(
                    f"PostgreSQL in {self.home} was not ready within {self._config.start_s_max:.0f} s. "
                    f"{last_lines(self.home)}"
                )
            time.sleep(POLL_S)


def quoted(value: Path | str) -> str:
    """A value of a DSN, which may have spaces."""
    text = str(value)
    if text and not set(text) & set(" '\\"):
        return text
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _socket_dir(home: Path, account: Account, port: int) -> Path:
    directory = socket_dir(home, f".s.PGSQL.{port}")
    account.own(directory)
    return directory
