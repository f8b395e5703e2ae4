"""Connections that are lent and given back, and the database's errors in our own words.

A password is never told: what is said of a server is its host, port, database and user.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Condition, RLock
from types import TracebackType
from typing import Any, Final

import psycopg
from psycopg import adapt
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.types.string import ByteaBinaryLoader

from headrace.errors import ConfigError, EventsError, HeadraceError, StoreUnavailable
from headrace.events.postgres.busy_wait import BusyWait

CONNECTIONS_MAX: Final = 16
"""How many are open at once for reading and writing; who needs one more waits."""
CONNECT_S_MAX: Final = 10
IDLE_S_MAX: Final = 5.0
"""A connection that was idle for longer is asked whether it still is one, before it is relied on."""
WAIT_S_MAX: Final = 60.0

_PASSING: Final = ("08", "40", "53", "55P03", "57014", "57P01", "57P02", "57P03")
"""SQLSTATEs, or their classes, of what may go well another time."""
_SESSION: Final = "-c default_transaction_isolation=read\\ committed -c default_transaction_read_only=off"
"""The function that appends relies on it that each of its statements sees what was committed before."""


class Connection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that knows which calls are prepared on it (see prepared.py)."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.prepared: dict[bytes, bytes] = {}
        """Names of statements."""
        self.loaders = adapt.Transformer()
        self.busy_wait: BusyWait | None = None
        """How to wait for the answer of such a call, if not asleep."""


class Connections:
    """Lends connections. Safe to use from any thread."""

    def __init__(self, dsn: str, size_max: int = CONNECTIONS_MAX, *, busy_wait: bool = False) -> None:
        self.dsn = dsn
        self._busy_wait = busy_wait
        self._size_max = size_max
        # One that a thread may take twice: what is collected as garbage may be something lent.
        self._lock = RLock()
        self._freed = Condition(self._lock)
        self._idle: list[tuple[Connection, float]] = []
        self._lent_count = 0
        self._is_closed = False

    def lent(self, what: str) -> Lent:
        """A connection on which every statement is a transaction. `what` is said where it fails."""
        return Lent(self, what)

    def take(self, what: str) -> Connection:
        """A connection, which has to be given back."""
        connection, since_s = self._first(what)
        try:
            while connection is not None:
                if time.monotonic() - since_s < IDLE_S_MAX or _is_alive(connection):
                    return connection
                connection.close()
                with self._lock:
                    connection, since_s = self._next()
            return self._connect()
        except BaseException:
            self._free()
            raise

    def give_back(self, connection: Connection) -> None:
        """Let others have a connection, unless something is left open on it."""
        is_kept = False
        try:
            # Of one that is closed, it is not known.
            is_whole = connection.pgconn.transaction_status == psycopg.pq.TransactionStatus.IDLE
            with self._lock:
                if is_whole and not self._is_closed:
                    self._idle.append((connection, time.monotonic()))
                    is_kept = True
        finally:
            # In this order, so that there are never more than there may be.
            if not is_kept:
                connection.close()
            self._free()

    def close(self) -> None:
        """Close those that are idle; the others when they are given back."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
            self._freed.notify_all()
        for connection, _ in idle:
            connection.close()

    def _connect(self) -> Connection:
        connection = connect(self.dsn)
        if self._busy_wait:
            connection.busy_wait = BusyWait(connection.pgconn.socket)
        return connection

    def _first(self, what: str) -> tuple[Connection | None, float]:
        """The same as `_next`, which counts as lent then; waits until there may be one more."""
        with self._lock:
            if self._lent_count >= self._size_max and not self._freed.wait_for(
                lambda: self._is_closed or self._lent_count < self._size_max, WAIT_S_MAX
            ):
                raise StoreUnavailable(
                    f"{what}: no connection was free within {WAIT_S_MAX:.0f} s of {described(self.dsn)}"
                )
            found = self._next()
            self._lent_count += 1
            return found

    def _next(self) -> tuple[Connection | None, float]:
        """One that is idle, and since when; or none, so that one is to be opened. Called under the lock."""
        if self._is_closed:
            raise EventsError("the journal is closed: open another")
        return self._idle.pop() if self._idle else (None, 0.0)

    def _free(self) -> None:
        with self._lock:
            self._lent_count -= 1
            self._freed.notify()


class Lent:
    """Has a connection for as long as a block lasts. Not a generator: this is on the way of every append."""

    __slots__ = ("_connection", "_connections", "_what")

    def __init__(self, connections: Connections, what: str) -> None:
        self._connections = connections
        self._what = what
        self._connection: Connection | None = None

    def __enter__(self) -> Connection:
        self._connection = self._connections.take(self._what)
        return self._connection

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._give_back()
        if isinstance(error, psycopg.Error):
            raise explanation(self._connections.dsn, self._what, error) from error

    def __del__(self) -> None:
        """Who is interrupted at the wrong moment never gets to the end of the block, nor to its beginning."""
        if hasattr(self, "_connection"):
            self._give_back()

    def _give_back(self) -> None:
        if self._connection is not None:
            try:
                self._connections.give_back(self._connection)
            finally:
                self._connection = None


def connect(dsn: str) -> Connection:
    """Connect once. Who may try again is for the caller to say."""
    given = parameters_of(dsn)
    parameters: dict[str, Any] = {
        "connect_timeout": CONNECT_S_MAX,
        "application_name": "headrace events",
        **given,
        "client_encoding": "utf8",
        "options": f"{given.get('options', '')} {_SESSION}".strip(),
    }
    with explained(dsn, "connecting"):
        connection = Connection.connect(make_conninfo(**parameters), autocommit=True)
    connection.prepare_threshold = 2
    connection.adapters.register_loader("json", ByteaBinaryLoader)
    return connection


def _is_alive(connection: Connection) -> bool:
    try:
        connection.execute("SELECT 1")
    except psycopg.Error:
        return False
    return True


@contextmanager
def explained(dsn: str, what: str) -> Iterator[None]:
    """Say what failed in our own words."""
    try:
        yield
    except psycopg.Error as error:
        raise explanation(dsn, what, error) from error


def explanation(dsn: str, what: str, error: psycopg.Error) -> HeadraceError:
    """Our error for one of the database's: one that may pass, or one of rights or of values."""
    told = f"{what} failed on {described(dsn)}: {_words_of(dsn, error)}"
    state = error.sqlstate
    is_lost = state is None and isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    if is_lost or (state is not None and state.startswith(_PASSING)):
        return StoreUnavailable(told)
    return EventsError(told)


def _words_of(dsn: str, error: psycopg.Error) -> str:
    diagnosis = error.diag
    parts = [diagnosis.message_primary or str(error), diagnosis.message_detail]
    line = "; ".join(" ".join(part.split()) for part in parts if part)
    password = parameters_of(dsn).get("password")
    return line.replace(str(password), "***") if password else line


def described(dsn: str) -> str:
    """The server and the database, without the password."""
    parameters = parameters_of(dsn)
    host, port = parameters.get("host") or "localhost", parameters.get("port") or 5432
    user = f"{parameters['user']}@" if parameters.get("user") else ""
    return f"PostgreSQL {user}{host}:{port}/{parameters.get('dbname') or parameters.get('user') or ''}"


def parameters_of(dsn: str) -> dict[str, Any]:
    """What a DSN says, by name."""
    try:
        return dict(conninfo_to_dict(dsn))
    except psycopg.ProgrammingError:
        # Its message repeats what it could not read, which may be the password.
        raise ConfigError(
            "the dsn of a PostgreSQL can't be read: write postgresql://user:password@host:5432/database"
        ) from None
