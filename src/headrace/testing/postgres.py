"""A PostgreSQL for tests: one server for all of them, a database of its own for each.

The fixture `headrace_postgres` gives a `TestDatabase`. The server has logical replication, does not wait
for the disk, and is gone with the process that started it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from headrace.config import PostgresConfig
from headrace.postgres import EmbeddedPostgres

_NUMBERS: Final = count()


@contextmanager
def postgres_server(**settings: Any) -> Iterator[EmbeddedPostgres]:
    """A server in a temporary directory; `settings` are those of PostgresConfig."""
    # Below a directory that everybody can enter: PostgreSQL does not run as root.
    directory = Path(tempfile.mkdtemp(prefix="headrace-pg-"))
    try:
        with EmbeddedPostgres(PostgresConfig(data_dir=directory, durability="os", **settings)) as server:
            yield server
    finally:
        shutil.rmtree(directory)


class TestDatabase:
    """An empty database. `dsn` is how to connect to it as its owner, who may do everything."""

    __test__ = False
    """Not a class of tests, whatever pytest may think of the name."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn

    def connect(self) -> psycopg.Connection[tuple[Any, ...]]:
        """A connection on which every statement is a transaction, unless `transaction()` says otherwise."""
        return psycopg.connect(self.dsn, autocommit=True)

    def execute(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Run one statement, or several without values, on a connection of its own; return what it gives."""
        with self.connect() as connection:
            cursor = connection.execute(statement.encode(), values or None)
            return cursor.fetchall() if cursor.description else []


@contextmanager
def fresh_database(server: EmbeddedPostgres) -> Iterator[TestDatabase]:
    """A new database, dropped afterwards with its replication slots."""
    name = f"test_{os.getpid()}_{next(_NUMBERS)}"
    with psycopg.connect(server.dsn, autocommit=True) as owner:
        owner.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0").format(sql.Identifier(name)))
        try:
            yield TestDatabase(make_conninfo(server.dsn, dbname=name))
        finally:
            _end_slots(owner, name)
            owner.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


def _end_slots(owner: psycopg.Connection[tuple[Any, ...]], database: str) -> None:
    """A slot is in use until its reader has noticed that it was ended."""
    owner.execute(
        "SELECT pg_terminate_backend(active_pid, 10000) FROM pg_replication_slots "
        "WHERE database = %s AND active",
        (database,),
    )
    owner.execute(
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots "
        "WHERE database = %s AND NOT active",
        (database,),
    )
