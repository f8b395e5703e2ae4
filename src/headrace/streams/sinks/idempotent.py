"""A function of a user's own that writes batches to a database, made to write each once.

    @hr.idempotent("orders-to-shop", connect=lambda: psycopg.connect(dsn))
    def write_orders(rows, batch_id, connection):
        ...

    orders.writeStream.foreachBatch(write_orders).option("checkpointLocation", ...).start()

The function writes in a transaction that is begun for it, and that also notes down the batch's id, in the
table `headrace_batches` (see ledger_table.py). So a batch that Spark runs again, after a crash between the
write and its checkpoint, is found there and skipped.

The statements are those that all databases understand, with their values written out, because each driver of
Python's database interface marks parameters in its own way. The values can't hold a quote.
"""

# ruff: noqa: S608 - for the reason above; _literal lets nothing through that could end a literal.

from __future__ import annotations

import functools
import re
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from headrace.config import TOPIC_NAME
from headrace.errors import PipelineError
from headrace.streams.sinks.ledger import Batch, Entry, Verdict, decide, entry_after
from headrace.streams.sinks.ledger_table import LEDGER_COLUMNS, LEDGER_TABLE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

QUERY_ID_PROPERTY: Final = "sql.streaming.queryId"
NO_QUERY: Final = "-"
"""The id of rows that come from no streaming query, as in a test."""
_NO_DIGEST: Final = "-"
_PLAIN: Final = re.compile(r"[A-Za-z0-9._-]{1,300}")


class Cursor(Protocol):
    """What is used of a cursor of Python's database interface (PEP 249)."""

    rowcount: int

    def execute(self, statement: str, /) -> object:
        """Run a statement."""

    def fetchone(self) -> Any:
        """A row, or None."""

    def close(self) -> None:
        """Let go of it."""


class Connection(Protocol):
    """What is used of a connection of Python's database interface (PEP 249)."""

    def cursor(self) -> Any:
        """Make a cursor."""

    def commit(self) -> None:
        """End the transaction: it counts."""

    def rollback(self) -> None:
        """End the transaction: it never was."""

    def close(self) -> None:
        """Let go of it."""


C = TypeVar("C", bound=Connection)
Write = Callable[["DataFrame", int, C], None]
"""A user's function: rows, the batch's id, and a connection in whose transaction to write."""


def idempotent(
    name: str, *, connect: Callable[[], C]
) -> Callable[[Write[C]], Callable[[DataFrame, int], None]]:
    """Make a function for Spark's foreachBatch write each batch once.

    `name` tells it from others that write to the same database. `connect` makes a connection to it, which is
    closed after the batch. The function must write by that connection only and must not commit: that is done
    when it returns; if it raises, all is rolled back and the batch fails.
    """
    if not TOPIC_NAME.fullmatch(name):
        raise PipelineError(
            f"{name!r} can't name a function: use 1 to 249 of the characters a-z A-Z 0-9 . _ -"
        )

    def decorate(write: Write[C]) -> Callable[[DataFrame, int], None]:
        return functools.wraps(write)(_Idempotent(name, connect, write))

    return decorate


class _Idempotent:
    """What Spark calls for each batch. Safe to share between threads: they take turns."""

    def __init__(self, name: str, connect: Callable[[], Any], write: Write[Any]) -> None:
        self._name = name
        self._connect = connect
        self._write = write
        self._lock = threading.Lock()

    def __call__(self, rows: DataFrame, batch_id: int) -> None:
        """Write a batch, unless it is written already."""
        with self._lock, closing(self._connect()) as connection:
            _refuse_autocommit(self._name, connection)
            # Each query has entries of its own, so that several can use one function.
            batch = Batch(
                pipeline=self._name,
                query_id=query_id_of(rows),
                batch_id=batch_id,
                digest=_NO_DIGEST,
                is_first=True,
            )
            try:
                self._write_once(rows, batch, connection)
            except BaseException:
                connection.rollback()
                raise

    def _write_once(self, rows: DataFrame, batch: Batch, connection: Connection) -> None:
        ledger = _Ledger(connection, batch)
        if decide(ledger.locked_entry(), batch, 1) is Verdict.SKIP:
            connection.rollback()
            return
        self._write(rows, batch.batch_id, connection)
        ledger.put(entry_after(batch, 1))
        connection.commit()


class _Ledger:
    """The entry of one function and one query, in the connection's transaction."""

    def __init__(self, connection: Connection, batch: Batch) -> None:
        self._connection = connection
        self._name, self._target = _literal(batch.pipeline), _literal(batch.query_id)
        self._where = f"WHERE pipeline = {self._name} AND target = {self._target} AND share_number = 0"

    def locked_entry(self) -> Entry | None:
        """The entry. Nobody else can change it until the transaction ends; None where there is none yet."""
        self._ensure_table()
        with closing(self._connection.cursor()) as cursor:
            # An update that changes nothing: all databases lock the row for it.
            cursor.execute(f"UPDATE {LEDGER_TABLE} SET share_number = 0 {self._where}")
            cursor.execute(
                f"SELECT next_batch_id, query_id, share_count, digest FROM {LEDGER_TABLE} {self._where}"
            )
            row = cursor.fetchone()
        if row is None:
            return None
        next_batch_id, query_id, task_count, digest = row
        return Entry(next_batch_id=next_batch_id, query_id=query_id, task_count=task_count, digest=digest)

    def _ensure_table(self) -> None:
        """Create the table if it is missing. Who may not create one can have it made beforehand."""
        with closing(self._connection.cursor()) as cursor:
            try:
                cursor.execute(f"SELECT digest FROM {LEDGER_TABLE} WHERE 1 = 0")
                cursor.fetchone()
                is_there = True
            except Exception:  # noqa: BLE001 - each driver has errors of its own
                is_there = False
        # Also where it is there: else a database might show the ledger as it was before its row is locked.
        self._connection.rollback()
        if not is_there:
            self._create_table()

    def _create_table(self) -> None:
        with closing(self._connection.cursor()) as cursor:
            try:
                cursor.execute(f"CREATE TABLE {LEDGER_TABLE} {LEDGER_COLUMNS}")
                self._connection.commit()
            except Exception:  # noqa: BLE001 - as above; where it is still missing, the next statement fails
                self._connection.rollback()

    def put(self, entry: Entry) -> None:
        """Write the entry down. Of two that put the first one at the same time, one fails."""
        values = (
            f"next_batch_id = {entry.next_batch_id}, query_id = {_literal(entry.query_id)}, "
            f"share_count = {entry.task_count}, digest = {_literal(entry.digest)}"
        )
        with closing(self._connection.cursor()) as cursor:
            cursor.execute(f"UPDATE {LEDGER_TABLE} SET {values} {self._where}")
            if cursor.rowcount == 0:
                cursor.execute(
                    f"INSERT INTO {LEDGER_TABLE} (pipeline, target, share_number, share_count, query_id, "
                    f"next_batch_id, digest) VALUES ({self._name}, {self._target}, 0, {entry.task_count}, "
                    f"{_literal(entry.query_id)}, {entry.next_batch_id}, {_literal(entry.digest)})"
                )


def query_id_of(rows: DataFrame) -> str:
    """The id of the query whose batch the rows are: it lives as long as the query's checkpoint."""
    session = getattr(rows, "sparkSession", None)
    if session is None:
        return NO_QUERY
    return session.sparkContext.getLocalProperty(QUERY_ID_PROPERTY) or NO_QUERY


def _literal(value: str) -> str:
    assert _PLAIN.fullmatch(value), f"{value!r} is neither a checked name nor one of Spark's ids"
    return f"'{value}'"


def _refuse_autocommit(name: str, connection: Any) -> None:
    is_sqlite = isinstance(connection, sqlite3.Connection)
    if getattr(connection, "autocommit", False) is True or (
        is_sqlite and getattr(connection, "isolation_level", "") is None
    ):
        raise PipelineError(
            f"{name}: connect gives a connection that commits each statement by itself, so that a batch "
            "could be written in part: switch autocommit off"
        )
