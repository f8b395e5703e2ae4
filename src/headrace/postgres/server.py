"""An embedded PostgreSQL server: started, stopped in good order, and never left behind.

Rules
- One process of ours runs it: the lock beside its directory is held as long as it runs.
- Should we be killed, a watcher stops it: a shell that reads a pipe whose other end is ours, which closes
  with us, however we go. It runs as the same account, in a session of its own.
- Should the watcher be killed, too, the next start finds the server and stops it before it starts its own.
- It listens on a socket of the file system, or on loopback; either way clients need the password.

A fast shutdown (SIGINT) ends sessions and leaves a clean directory. It waits for captures to have received
all that was written; one that does not answer any more holds it up until `stop_s_max`, after which it is
stopped as a crash would (SIGQUIT), which loses nothing that was committed.
"""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from headrace.config import MIB, Address, PostgresConfig
from headrace.errors import ChildFailed, ConfigError, UsageError
from headrace.log.directory_lock import DirectoryLock
from headrace.log.disk import SystemDisk
from headrace.postgres import postmaster
from headrace.postgres.account import Account, account_for
from headrace.postgres.cluster import DATABASE, USER, ensure_cluster, password_of, version_of
from headrace.postgres.ending import end_left_over, end_process
from headrace.postgres.home import CLUSTER_NAME, HOME_NAME, home_of
from headrace.postgres.programs import find_programs, reachable

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

LOG_BYTES_MAX: Final = 16 * MIB
LAST_LINES_SHOWN: Final = 8
POLL_S: Final = 0.02
SOCKET_PATH_BYTES_MAX: Final = 103
"""What the shortest limit of a system, and the zero at the end, leave for the path of a socket."""
PORT_ON_SOCKETS: Final = 5432
"""Names the socket's file where no port is listened on."""
_WATCH: Final = 'read -r _; kill -INT "$1"'
"""Ends when the pipe is closed, and stops the server then."""


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
            _end_watcher(self._watcher)
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
            raise ChildFailed(f"PostgreSQL in {self.home} ended with code {code}. {self._last_lines()}")

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
        self._port = _free_port(config.listen) if config.listen else PORT_ON_SOCKETS
        self._socket_dir = _socket_dir(home, account, self._port)
        command = [str(programs["postgres"]), "-D", str(cluster), *self._options(self._socket_dir)]
        with _log_of(home).open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=cluster,
                start_new_session=True,
                **account.process_options,
            )
        self._watcher = _watch(self._process.pid, account)
        self._await_ready(cluster)

    def _options(self, socket_dir: Path) -> list[str]:
        config = self._config
        settings = {
            "wal_level": "logical",
            "max_wal_senders": "20",
            "max_replication_slots": "20",
            "max_slot_wal_keep_size": f"{config.slot_wal_bytes_max // MIB}MB",
            "listen_addresses": config.listen.host if config.listen else "",
            "port": str(self._port),
            "unix_socket_directories": str(socket_dir),
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
                    f"{self._last_lines()}"
                )
            time.sleep(POLL_S)

    def _last_lines(self) -> str:
        lines = _log_of(self.home).read_text(errors="replace").splitlines()[-LAST_LINES_SHOWN:]
        return "Its last lines were:\n" + "\n".join(f"  {line}" for line in lines)


def _log_of(home: Path) -> Path:
    path = home / "log"
    if path.exists() and path.stat().st_size > LOG_BYTES_MAX:
        path.replace(home / "log.old")
    path.touch(mode=0o600)
    return path


def _free_port(listen: Address) -> int:
    """The port that is wanted, or a free one; refused here, where the reason can be told."""
    family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((listen.host, listen.port))
        except OSError as error:
            raise ConfigError(
                f"PostgreSQL can't listen on {listen}: {error.strerror}. Choose another; 0 finds a free one"
            ) from error
        return int(probe.getsockname()[1])


def _socket_dir(home: Path, account: Account, port: int) -> Path:
    directory = home / "run"
    if len(f"{directory}/.s.PGSQL.{port}".encode()) > SOCKET_PATH_BYTES_MAX:
        directory = Path(tempfile.mkdtemp(prefix="headrace-pg-"))
    directory.mkdir(mode=0o700, exist_ok=True)
    account.own(directory)
    return directory


def _watch(pid: int, account: Account) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ["/bin/sh", "-c", _WATCH, "sh", str(pid)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
        **account.process_options,
    )


def _end_watcher(watcher: subprocess.Popen[bytes]) -> None:
    """The server is gone and its number may be another's: the watcher must not signal it."""
    watcher.send_signal(signal.SIGKILL)
    watcher.wait()
    assert watcher.stdin is not None
    watcher.stdin.close()
