"""Connections to PostgreSQL, and its errors in our own words.

A password is never told: what is said of a server is its host, port, database and user.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import psycopg
from psycopg.conninfo import conninfo_to_dict

from headrace.errors import ConfigError, FaultError, PipelineFailed, StoreUnavailable

CONNECT_S_MAX: Final = 30.0
"""How long to try to connect: a server that restarts has to be awaited."""
CONNECT_ATTEMPT_S_MAX: Final = 10
CONNECT_PAUSE_S: Final = 0.2
CONNECT_PAUSE_S_MAX: Final = 2.0

_SESSION: Final = "; ".join(
    f"SET {setting}"
    for setting in (
        # So that the server lets go of a transaction whose machine is gone within about a minute.
        "tcp_keepalives_idle = 30",
        "tcp_keepalives_interval = 10",
        "tcp_keepalives_count = 3",
        "datestyle = 'ISO'",
    )
)
"""Set when the connection is there: PgBouncer refuses a start-up parameter that holds settings."""
CREATE_S_MAX: Final = 30
"""How long another may take to create tables."""
_CREATION: Final = int.from_bytes(hashlib.sha256(b"headrace\0create").digest()[:8], signed=True)
_PASSING: Final = ("08", "40", "53", "55P03", "57P01", "57P02", "57P03")
"""SQLSTATEs, or their classes, of what may go well another time: lost connections, deadlocks, lack of
resources, locks, a server that stops or starts."""
_HOPELESS: Final = (
    "password authentication failed",
    "no password supplied",
    "does not exist",
    "no pg_hba.conf",
)
"""What a server says that will say the same the next time. A refused connection has no SQLSTATE to go by."""

Connection = psycopg.Connection[tuple[Any, ...]]


def connect(dsn: str, *, within_s: float = CONNECT_S_MAX) -> Connection:
    """Connect, again and again for a while where no server answers."""
    defaults: dict[str, Any] = {"connect_timeout": CONNECT_ATTEMPT_S_MAX, "application_name": "headrace"}
    attempt = defaults | _parameters(dsn)
    deadline_s, pause_s = time.monotonic() + within_s, CONNECT_PAUSE_S
    while True:
        try:
            return _connected(attempt)
        except psycopg.OperationalError as error:
            words = _words(dsn, error)
            if any(phrase in words for phrase in _HOPELESS):
                raise ConfigError(f"no connection to {described(dsn)}: {words}") from None
            if time.monotonic() + pause_s > deadline_s:
                raise StoreUnavailable(
                    f"no connection to {described(dsn)} within {within_s:.0f} s: {words}"
                ) from None
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, CONNECT_PAUSE_S_MAX)


def _connected(parameters: dict[str, Any]) -> Connection:
    # Statements are not prepared: behind PgBouncer the next transaction may have another server process.
    connection = psycopg.connect(**parameters, autocommit=True, prepare_threshold=None)
    try:
        connection.execute(_SESSION)
        connection.autocommit = False
    except BaseException:
        connection.close()
        raise
    return connection


def is_there(connection: Connection, schema_name: str, table_name: str) -> bool:
    """Whether there is such a table, or anything else of that name."""
    # Not `to_regclass`: within a transaction it may remember that there was none.
    found = connection.execute(
        "SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE n.nspname = %s AND c.relname = %s",
        (schema_name, table_name),
    )
    return found.fetchone() is not None


def lock_creation(connection: Connection) -> None:
    """Let nobody else of us create tables until the transaction ends: PostgreSQL itself fails one of two."""
    connection.execute(f"SET LOCAL lock_timeout = '{CREATE_S_MAX}s'")
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (_CREATION,))
    connection.execute("SET LOCAL lock_timeout = 0")


def described(dsn: str) -> str:
    """The server and the database, without the password."""
    parameters = _parameters(dsn)
    host, port = parameters.get("host") or "localhost", parameters.get("port") or 5432
    user = f"{parameters['user']}@" if parameters.get("user") else ""
    return f"PostgreSQL {user}{host}:{port}/{parameters.get('dbname') or parameters.get('user') or ''}"


@contextmanager
def explained(dsn: str, what: str) -> Iterator[None]:
    """Say what failed in our own words."""
    try:
        yield
    except psycopg.Error as error:
        raise _explained(dsn, what, error) from error


def _explained(dsn: str, what: str, error: psycopg.Error) -> FaultError:
    told = f"{what} failed on {described(dsn)}: {_words(dsn, error)}"
    state = error.sqlstate
    is_lost = state is None and isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    if is_lost or (state is not None and state.startswith(_PASSING)):
        return StoreUnavailable(told)
    return PipelineFailed(told)


def _words(dsn: str, error: psycopg.Error) -> str:
    """One line: the message, and where in the data it happened."""
    diagnosis = error.diag
    parts = [diagnosis.message_primary or str(error), diagnosis.message_detail, diagnosis.context]
    line = "; ".join(" ".join(part.split()) for part in parts if part)
    password = _parameters(dsn).get("password")
    return line.replace(str(password), "***") if password else line


def _parameters(dsn: str) -> dict[str, Any]:
    try:
        return dict(conninfo_to_dict(dsn))
    except psycopg.ProgrammingError:
        # Its message repeats what it could not read, which may be the password.
        raise ConfigError(
            "the dsn of a PostgreSQL table can't be read: write postgresql://user:password@host:5432/database"
        ) from None
