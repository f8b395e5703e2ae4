"""The tables of a journal, made when it is first opened, and the functions that append to them.

Whoever opens a journal looks for its tables. Where they are missing, they are made in one transaction, under
a lock: of several that open it at once, one makes them. Where they are there, they are left as they are, so
that a role without the right to make tables can use them.

Functions of an older version are replaced by whoever may. Programs of that version don't notice: what they
call them with is still understood. Who may not replace them calls them as that version did.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from typing import Final

from headrace.errors import ConfigError, EventsError
from headrace.events.postgres.connections import Connection

SCHEMA_NAME: Final = re.compile(r"[a-z_][a-z0-9_]{0,47}")
VERSION: Final = 1
"""Of the tables."""
FUNCTIONS_VERSION: Final = 2
"""Of the functions: what functions.sql says of itself. The first one said nothing."""

_FUNCTIONS_TOLD: Final = re.compile(r"functions of headrace, version (\d+)")
_FUNCTIONS_COMMENT: Final = """
    SELECT obj_description(p.oid, 'pg_proc'),
           current_setting('transaction_read_only') = 'off'
           AND pg_has_role(p.proowner, 'USAGE') AND has_schema_privilege(p.pronamespace, 'CREATE')
    FROM pg_proc AS p WHERE p.oid = to_regproc(%s)
"""


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


def migrate(connection: Connection, schema: str) -> int:
    """Make the tables, if they are not there, and replace older functions, if this role may.

    Returns the version of the functions that are there then.
    """
    if _version(connection, schema) is None:
        with _alone(connection, schema):
            if _version(connection, schema) is None:
                _make(connection, schema)
    found, may_replace = _functions(connection, schema)
    if found < FUNCTIONS_VERSION and may_replace:
        with _alone(connection, schema):
            # Another may have replaced them meanwhile, by even newer ones.
            if _functions(connection, schema)[0] < FUNCTIONS_VERSION:
                _run_file(connection, schema, "functions.sql")
        found, _ = _functions(connection, schema)
    return found


@contextmanager
def _alone(connection: Connection, schema: str) -> Iterator[None]:
    """A transaction while nobody else appends, or is here."""
    # The lock is taken before the transaction: within one, what others have made meanwhile may stay unseen.
    connection.execute(filled("SELECT pg_advisory_lock(@lock@)", schema))
    try:
        with connection.transaction():
            yield
    finally:
        connection.execute(filled("SELECT pg_advisory_unlock(@lock@)", schema))


def _make(connection: Connection, schema: str) -> None:
    connection.execute(filled("CREATE SCHEMA IF NOT EXISTS @schema@", schema))
    _run_file(connection, schema, "tables.sql")
    _run_file(connection, schema, "functions.sql")
    connection.execute(filled(f"CREATE TABLE @schema@.layout AS SELECT {VERSION} AS version", schema))


def _run_file(connection: Connection, schema: str, name: str) -> None:
    text = files("headrace.events.postgres").joinpath(name).read_text(encoding="utf-8")
    connection.execute(filled(text, schema))


def _functions(connection: Connection, schema: str) -> tuple[int, bool]:
    """Their version, and whether this role may replace them."""
    row = connection.execute(_FUNCTIONS_COMMENT, (f"{schema}.append_one",)).fetchone()
    if row is None:
        raise EventsError(f"schema {schema} has no function append_one: it is not whole; restore it")
    comment, may_replace = row
    # Who looks after the database may have put another comment there.
    told = _FUNCTIONS_TOLD.fullmatch(comment or "")
    return (int(told[1]) if told else 1), bool(may_replace)


def _version(connection: Connection, schema: str) -> int | None:
    (table,) = connection.execute("SELECT to_regclass(%s)", (f"{schema}.layout",)).fetchone() or (None,)
    if table is None:
        return None
    row = connection.execute(filled("SELECT version FROM @schema@.layout", schema)).fetchone()
    version = row[0] if row else None
    if version != VERSION:
        raise EventsError(
            f"the tables in schema {schema} are of layout {version}, and this program knows {VERSION}: "
            "use a version of Headrace that knows them"
        )
    return VERSION
