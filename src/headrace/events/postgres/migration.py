"""The tables of a journal, made when it is first opened.

Whoever opens a journal looks for its tables. Where they are missing, they are made in one transaction, under
a lock: of several that open it at once, one makes them. Where they are there, nothing is changed, so that
a role without the right to make tables can use them; but where an older version of Headrace made them, what
is new is added, which its programs that still run don't notice.
"""

from __future__ import annotations

import hashlib
import re
from importlib.resources import files
from typing import Final

from psycopg.errors import InsufficientPrivilege

from headrace.errors import ConfigError, EventsError
from headrace.events.postgres.connections import Connection

SCHEMA_NAME: Final = re.compile(r"[a-z_][a-z0-9_]{0,47}")
VERSION: Final = 2
"""Of the tables and functions."""
UPGRADED_FROM: Final = 1
"""Has the same tables, and other functions."""


def filled(text: str, schema: str) -> bytes:
    """A query for the tables of one schema."""
    names = {
        "@schema@": schema,
        "@lock@": str(lock_of(schema)),
        "@forgetting@": str(lock_of(schema) + 1),
        "@listening@": str(lock_of(schema) + 2),
        "@channel@": f"'{channel_of(schema)}'",
    }
    for name, value in names.items():
        text = text.replace(name, value)
    return text.encode()


def lock_of(schema: str) -> int:
    """The number of the lock under which positions are given; the two numbers after it are locks, too."""
    return int.from_bytes(hashlib.sha256(f"headrace.events.{schema}".encode()).digest()[:7], "big") * 4


def channel_of(schema: str) -> str:
    """Where the database says that events have come."""
    return f"{schema}_appended"


def checked_schema(schema: str) -> str:
    """Return the name of a schema, or say what is wrong with it."""
    if not SCHEMA_NAME.fullmatch(schema):
        raise ConfigError(
            f"{schema!r} can't be the schema of an event store: use 1 to 48 of a-z 0-9 _, no digit first"
        )
    return schema


def migrate(connection: Connection, schema: str) -> None:
    """Make the tables, if they are not there, and bring those of an older version up to date."""
    if _version(connection, schema) == VERSION:
        return
    # The lock is taken before the transaction: within one, what others have made meanwhile may stay unseen.
    connection.execute(filled("SELECT pg_advisory_lock(@lock@)", schema))
    try:
        with connection.transaction():
            found = _version(connection, schema)
            if found is None:
                _make(connection, schema)
            elif found == UPGRADED_FROM:
                _upgrade(connection, schema)
    finally:
        connection.execute(filled("SELECT pg_advisory_unlock(@lock@)", schema))


def _make(connection: Connection, schema: str) -> None:
    connection.execute(filled("CREATE SCHEMA IF NOT EXISTS @schema@", schema))
    _run_file(connection, schema, "tables.sql")
    _run_file(connection, schema, "functions.sql")
    connection.execute(filled(f"CREATE TABLE @schema@.layout AS SELECT {VERSION} AS version", schema))


def _upgrade(connection: Connection, schema: str) -> None:
    try:
        _run_file(connection, schema, "functions.sql")
        connection.execute(filled("UPDATE @schema@.layout SET version = %s", schema), (VERSION,))
    except InsufficientPrivilege as error:
        raise EventsError(
            f"the tables in schema {schema} are of layout {UPGRADED_FROM}, and this program needs {VERSION}: "
            "open the store once as the role that owns them, which brings them up to date"
        ) from error


def _run_file(connection: Connection, schema: str, name: str) -> None:
    text = files("headrace.events.postgres").joinpath(name).read_text(encoding="utf-8")
    connection.execute(filled(text, schema))


def _version(connection: Connection, schema: str) -> int | None:
    (table,) = connection.execute("SELECT to_regclass(%s)", (f"{schema}.layout",)).fetchone() or (None,)
    if table is None:
        return None
    row = connection.execute(filled("SELECT version FROM @schema@.layout", schema)).fetchone()
    version: int | None = row[0] if row else None
    if version not in {UPGRADED_FROM, VERSION}:
        raise EventsError(
            f"the tables in schema {schema} are of layout {version}, and this program knows {VERSION}: "
            "use the version of Headrace that made them"
        )
    return version
