"""The tables of a journal, made when it is first opened.

Whoever opens a journal looks for its tables. Where they are missing, they are made in one transaction, under
a lock: of several that open it at once, one makes them. Where they are there, nothing is changed, so that
a role without the right to make tables can use them.
"""

from __future__ import annotations

import hashlib
import re
from importlib.resources import files
from typing import Final

from headrace.errors import ConfigError, EventsError
from headrace.events.postgres.connections import Connection

SCHEMA_NAME: Final = re.compile(r"[a-z_][a-z0-9_]{0,47}")
VERSION: Final = 1
"""Of the tables."""


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
    """Make the tables, if they are not there."""
    if _version(connection, schema) == VERSION:
        return
    # The lock is taken before the transaction: within one, what others have made meanwhile may stay unseen.
    connection.execute(filled("SELECT pg_advisory_lock(@lock@)", schema))
    try:
        with connection.transaction():
            if _version(connection, schema) is None:
                _make(connection, schema)
    finally:
        connection.execute(filled("SELECT pg_advisory_unlock(@lock@)", schema))


def _make(connection: Connection, schema: str) -> None:
    connection.execute(filled("CREATE SCHEMA IF NOT EXISTS @schema@", schema))
    text = files("headrace.events.postgres").joinpath("schema.sql").read_text(encoding="utf-8")
    connection.execute(filled(text, schema))
    connection.execute(filled(f"CREATE TABLE @schema@.layout AS SELECT {VERSION} AS version", schema))


def _version(connection: Connection, schema: str) -> int | None:
    (table,) = connection.execute("SELECT to_regclass(%s)", (f"{schema}.layout",)).fetchone() or (None,)
    if table is None:
        return None
    row = connection.execute(filled("SELECT version FROM @schema@.layout", schema)).fetchone()
    version = row[0] if row else None
    if version != VERSION:
        raise EventsError(
            f"the tables in schema {schema} are of layout {version}, and this program knows {VERSION}: "
            "use the version of Headrace that made them"
        )
    return VERSION
