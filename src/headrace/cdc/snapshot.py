"""The initial snapshot: all rows as they were at the moment from which the slot has all changes.

The slot is made first, and exports the database's state of that very moment. Several connections read that
state side by side, chunk by chunk; chunks are handed on in the order of their tables and keys, whoever read
them, and no further ahead than there are readers. The exported state can be taken up as long as the
connection that made the slot does nothing else, and is kept by those who took it up for as long as they are
there: after a crash it is gone, and the rest of the tables is read by watermarks (incremental.py).

A table that is rewritten (ALTER TABLE ... TYPE, TRUNCATE) is empty to whoever sees the database as it was
before. So tables are locked before they are read, which nobody waits for but who wants to alter them, and one
that was rewritten since the slot was made is told by its file: the capture begins anew then. Indexes are
locked as well, by all readers: a REINDEX that waits for one of them would be waited for by the next, and no
reader ends before all have.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

import psycopg
from psycopg import sql

from headrace.cdc.chunks import (
    Chunk,
    CopiedRow,
    Key,
    boundary_query,
    copy_query,
    lock_query,
    parse_rows,
    plan_query,
    rows_per_chunk,
)
from headrace.cdc.connection import Connection, connect, explained
from headrace.cdc.database_catalog import PublishedTable
from headrace.errors import StoreUnavailable

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

INDEX_LOCK_S_MAX: Final = 5
"""How long a reader waits for indexes that the first has locked already: whoever holds it up waits for that
one, and the capture begins anew."""
_REWRITTEN: Final = """
    SELECT c.oid::regclass::text FROM pg_class c
    WHERE (c.oid = %(oid)s::oid OR c.oid IN (SELECT relid FROM pg_partition_tree(%(oid)s::oid)))
      AND c.relfilenode <> coalesce(pg_relation_filenode(c.oid), 0)
"""
"""The table's row is as the snapshot sees it, what the function says is as it is now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkRows:
    """The rows of a chunk. `upto` is the key of its last row, None where it is the table's last chunk."""

    table: PublishedTable
    upto: Key | None
    rows: Sequence[CopiedRow] | Iterator[CopiedRow]
    """At once, or, of a table without a key, as they are taken."""


class ExportedSnapshot:
    """Reads tables as they were when the slot was made. Belongs to one thread, and has others that read."""

    def __init__(self, dsn: str, snapshot: str, *, reader_count: int, chunk_rows_max: int) -> None:
        """Take the exported state up; whoever exported it may go on afterwards."""
        self._dsn = dsn
        self._reader_count = reader_count
        self._chunk_rows_max = chunk_rows_max
        self._free: SimpleQueue[Connection] = SimpleQueue()
        self._connections: list[Connection] = []
        self._pool = ThreadPoolExecutor(reader_count, thread_name_prefix="headrace-snapshot")
        try:
            for _ in range(reader_count + 1):
                self._connections.append(self._taken_up(snapshot))
        except BaseException:
            self.close()
            raise
        self._planner, *readers = self._connections
        for reader in readers:
            self._free.put(reader)

    @property
    def connections(self) -> Sequence[Connection]:
        """Those that read, for who wants to cancel what they wait for."""
        return self._connections

    def lock(self, tables: Sequence[PublishedTable]) -> None:
        """Keep the tables as they are until the readers end; refuse one that was rewritten since the slot was
        made."""
        with explained(self._dsn, "locking the tables of the snapshot"):
            for connection in self._connections:
                # Whoever waits for the first lock is waited for by the others: for ever, if they did.
                is_first = connection is self._planner
                lock_tables(connection, tables, waits=is_first)
                _lock_indexes(connection, tables, wait_s_max=0 if is_first else INDEX_LOCK_S_MAX)
            for table in tables:
                found = self._planner.execute(_REWRITTEN, {"oid": table.relation.oid}).fetchone()
                if found is not None:
                    raise StoreUnavailable(
                        f"{found[0]} was rewritten, by ALTER TABLE or TRUNCATE, after the slot was made and "
                        "before its rows were read, so they can't be seen any more: the slot is made anew"
                    )

    def chunks(self, tables: Sequence[PublishedTable]) -> Iterator[ChunkRows]:
        """All rows of the tables, in the order of their keys."""
        ahead: deque[tuple[Chunk, Future[list[CopiedRow]]]] = deque()
        for table in tables:
            if not table.key:
                yield from self._in_order(ahead, leave=0)
                yield ChunkRows(table=table, upto=None, rows=self._streamed(table))
                continue
            for chunk in self._plan(table):
                ahead.append((chunk, self._pool.submit(self._read, chunk)))
                yield from self._in_order(ahead, leave=self._reader_count)
        yield from self._in_order(ahead, leave=0)

    def close(self) -> None:
        """End the readers."""
        for connection in self._connections:
            with suppress(psycopg.Error):
                connection.cancel_safe(timeout=1.0)
        self._pool.shutdown(cancel_futures=True)
        for connection in self._connections:
            connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _in_order(
        self, ahead: deque[tuple[Chunk, Future[list[CopiedRow]]]], *, leave: int
    ) -> Iterator[ChunkRows]:
        while len(ahead) > leave:
            chunk, rows = ahead.popleft()
            yield ChunkRows(table=chunk.table, upto=chunk.upto, rows=rows.result())

    def _plan(self, table: PublishedTable) -> Iterator[Chunk]:
        row_count = rows_per_chunk(table, self._chunk_rows_max)
        after: Key | None = None
        while True:
            with explained(self._dsn, f"the snapshot of {table.name}"):
                found = self._planner.execute(boundary_query(table, None, after, row_count)).fetchone()
            yield Chunk(table=table, where=None, after=after, upto=found)
            if found is None:
                return
            after = found

    def _read(self, chunk: Chunk) -> list[CopiedRow]:
        reader = self._free.get()
        try:
            with explained(self._dsn, f"the snapshot of {chunk.table.name}"):
                return copied(reader, chunk)
        finally:
            self._free.put(reader)

    def _streamed(self, table: PublishedTable) -> Iterator[CopiedRow]:
        with explained(self._dsn, f"the snapshot of {table.name}"):
            chunk = Chunk(table=table, where=None, after=None, upto=None)
            with self._planner.cursor() as cursor, cursor.copy(copy_query(chunk)) as copy:
                for block in copy:
                    yield from parse_rows(bytes(block))

    def _taken_up(self, snapshot: str) -> Connection:
        connection = connect(self._dsn)
        try:
            with explained(self._dsn, "taking up the snapshot of the slot"):
                connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                connection.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(snapshot)))
        except BaseException:
            connection.close()
            raise
        return connection


def lock_tables(connection: Connection, tables: Sequence[PublishedTable], *, waits: bool = True) -> None:
    """Keep tables as they are until the transaction ends. What is known of their columns may be outdated."""
    try:
        connection.execute(lock_query(tables, waits=waits))
    except psycopg.errors.UndefinedTable as error:
        names = ", ".join(table.name for table in tables)
        raise StoreUnavailable(
            f"one of {names} was dropped or renamed before it was read ({error.diag.message_primary}): what "
            "there is to read is looked for anew"
        ) from error


def _lock_indexes(connection: Connection, tables: Sequence[PublishedTable], *, wait_s_max: int) -> None:
    """Lock all indexes of tables until the transaction ends; 0: wait as long as it takes."""
    connection.execute(f"SET LOCAL lock_timeout = '{wait_s_max}s'".encode())
    for table in tables:
        connection.execute(plan_query(table))
    connection.execute("SET LOCAL lock_timeout = 0")


def copied(connection: Connection, chunk: Chunk) -> list[CopiedRow]:
    """The rows of a chunk."""
    rows: list[CopiedRow] = []
    with connection.cursor() as cursor, cursor.copy(copy_query(chunk)) as copy:
        for block in copy:
            rows += parse_rows(bytes(block))
    return rows
