"""Connections to the database that is captured, and its errors in our own words.

A password is never told: what is said of a server is its host, port, database and user.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from headrace.cdc.values.converters import SESSION_SETTINGS
from headrace.errors import CaptureFailed, ConfigError, HeadraceError, StoreUnavailable

CONNECT_S_MAX: Final = 30.0
"""How long to try to connect: a server that restarts has to be awaited."""
CONNECT_ATTEMPT_S_MAX: Final = 10
CONNECT_PAUSE_S: Final = 0.2
CONNECT_PAUSE_S_MAX: Final = 2.0
VERSION_MIN: Final = 140000
_FLUSHED_SINCE: Final = 170000

_SESSION: Final = {
    **SESSION_SETTINGS,
    # Whatever the role or the database is set to: a snapshot takes as long as it takes.
    "statement_timeout": "0",
    "lock_timeout": "0",
    "idle_in_transaction_session_timeout": "0",
    # A query that policies would hide rows from is refused, where it would give the others in silence.
    "row_security": "off",
}
_PASSING: Final = ("08", "40", "53", "55006", "55P03", "57014", "57P01", "57P02", "57P03")
"""SQLSTATEs, or their classes, of what may go well another time: lost connections, deadlocks, lack of
resources, a slot or a lock that another holds, a statement that was cancelled, a server that stops or
starts."""
_HOPELESS: Final = (
    "password authentication failed",
    "no password supplied",
    "does not exist",
    "no pg_hba.conf",
    "must be superuser or replication role",
    "permission denied",
    "certificate verify failed",
    "does not match host name",
    "does not support SSL",
)
"""What a server says that will say the same the next time. A refused connection has no SQLSTATE to go by."""

Connection = psycopg.Connection[tuple[Any, ...]]


def connect(
    dsn: str,
    *,
    replication: bool = False,
    within_s: float = CONNECT_S_MAX,
    attempt_s_max: int = CONNECT_ATTEMPT_S_MAX,
) -> Connection:
    """Connect, again and again for a while where no server answers. Each statement is a transaction."""
    spaces = {ord(" "): "\\ "}
    options = " ".join(f"-c {name}={value.translate(spaces)}" for name, value in _SESSION.items())
    parameters: dict[str, Any] = {
        "connect_timeout": attempt_s_max,
        "application_name": "headrace capture",
        "keepalives_idle": 30,
        "keepalives_interval": 10,
        "keepalives_count": 3,
        **parameters_of(dsn),
        "options": f"{parameters_of(dsn).get('options', '')} {options}".strip(),
    }
    if replication:
        parameters["replication"] = "database"
    deadline_s, pause_s = time.monotonic() + within_s, CONNECT_PAUSE_S
    while True:
        try:
            return _checked(psycopg.connect(make_conninfo(**parameters), autocommit=True), dsn)
        except psycopg.OperationalError as error:
            words = words_of(dsn, error)
            if any(phrase in words for phrase in _HOPELESS):
                raise ConfigError(f"no connection to {described(dsn)}: {words}") from None
            if time.monotonic() + pause_s > deadline_s:
                raise StoreUnavailable(
                    f"no connection to {described(dsn)} within {within_s:.0f} s: {words}"
                ) from None
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, CONNECT_PAUSE_S_MAX)


def _checked(connection: Connection, dsn: str) -> Connection:
    version = connection.info.server_version
    if version < VERSION_MIN:
        connection.close()
        raise ConfigError(
            f"{described(dsn)} is PostgreSQL {version // 10000}: a capture needs {VERSION_MIN // 10000}+"
        )
    # Statements are not prepared: none is run often enough.
    connection.prepare_threshold = None
    return connection


def emit_message(connection: Connection, prefix: str, content: str) -> None:
    """Write a logical message into the database's log, in such a way that it does not wait there for
    others."""
    if connection.info.server_version >= _FLUSHED_SINCE:
        query = "SELECT pg_logical_emit_message(false, %s, %s, true)"
    else:
        # One outside of transactions would wait until somebody commits.
        query = "SELECT pg_logical_emit_message(true, %s, %s)"
    connection.execute(query, (prefix, content))


def described(dsn: str) -> str:
    """The server and the database, without the password."""
    parameters = parameters_of(dsn)
    host, port = parameters.get("host") or "localhost", parameters.get("port") or 5432
    user = f"{parameters['user']}@" if parameters.get("user") else ""
    return f"PostgreSQL {user}{host}:{port}/{parameters.get('dbname') or parameters.get('user') or ''}"


@contextmanager
def explained(dsn: str, what: str) -> Iterator[None]:
    """Say what failed in our own words."""
    try:
        yield
    except psycopg.Error as error:
        raise explanation(dsn, what, error) from error


def explanation(dsn: str, what: str, error: psycopg.Error) -> HeadraceError:
    """Our error for one of the database's: one that may pass, one of rights, or one that stops a capture."""
    told = f"{what} failed on {described(dsn)}: {words_of(dsn, error)}"
    state = error.sqlstate
    is_lost = state is None and isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
    if is_lost or (state is not None and state.startswith(_PASSING)):
        return StoreUnavailable(told)
    if state == "42501":
        return ConfigError(f"{told}. docs/how-to/change-capture.md has the SQL for a role with these rights")
    return CaptureFailed(told)


def words_of(dsn: str, error: psycopg.Error) -> str:
    """One line: the message, and where in the data it happened."""
    diagnosis = error.diag
    parts = [diagnosis.message_primary or str(error), diagnosis.message_detail, diagnosis.context]
    line = "; ".join(" ".join(part.split()) for part in parts if part)
    password = parameters_of(dsn).get("password")
    return line.replace(str(password), "***") if password else line


def parameters_of(dsn: str) -> dict[str, Any]:
    """What a DSN says, by name."""
    try:
        return dict(conninfo_to_dict(dsn))
    except psycopg.ProgrammingError:
        # Its message repeats what it could not read, which may be the password.
        raise ConfigError(
            "the dsn of a PostgreSQL can't be read: write postgresql://user:password@host:5432/database"
        ) from None
