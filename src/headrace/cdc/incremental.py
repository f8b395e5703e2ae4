"""Reads chunks of tables beside the stream, and writes their watermarks into the database's log.

One thread reads, one chunk at a time; the capture takes a chunk when its watermark comes by in the stream.
See watermark.py for why that is right. No table is written to for this: watermarks are logical messages,
which every role may write.

A table is locked before a chunk's view is taken, and its columns are looked at only then: one that is
rewritten in between would be empty to the view, and be taken for read to its end.
"""

from __future__ import annotations

import json
import logging
import secrets
import threading
import time
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Final

from headrace.cdc.cancelling import cancel
from headrace.cdc.chunks import Chunk, Key, boundary_query, rows_per_chunk
from headrace.cdc.connection import Connection, connect, emit_message, explained
from headrace.cdc.database_catalog import DatabaseCatalog, PublishedTable
from headrace.cdc.snapshot import ChunkRows, copied, lock_tables
from headrace.cdc.watermark import RecentTransactions, View
from headrace.errors import StoreUnavailable

WATERMARK: Final = "headrace.watermark"
"""The prefix of watermarks among logical messages."""
SETTLE_S_MAX: Final = 2.0
"""How long to wait for all transactions that are open: after a restart it is not known which of them are in
the log, and are published, already."""
UNSEEN_S_MAX: Final = 10.0
"""How long transactions that are published may be unseen before that is told."""
_SETTLE_PAUSE_S: Final = 0.005
_SETTLE_PAUSE_S_MAX: Final = 0.25
_CLOSE_PAUSE_S: Final = 0.1

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    table: PublishedTable
    where: str | None
    after: Key | None
    published: RecentTransactions | None
    """Of the first chunk of a table: what was published before the table's changes were noted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadChunk:
    """A chunk, and what the transaction that read it saw."""

    chunk: ChunkRows
    view: View


class ChunkReader:
    """Reads chunks on a thread of its own. `ask` and `take` belong to the thread that owns it."""

    def __init__(self, dsn: str, name: str, chunk_rows_max: int) -> None:
        self._dsn = dsn
        self._name = name
        self._chunk_rows_max = chunk_rows_max
        self._token = secrets.token_hex(16)
        self._number = 0
        self._is_asked = False
        self._table: str | None = None
        self._closing = threading.Event()
        self._connection: Connection | None = None
        self._asked: SimpleQueue[_Asked | None] = SimpleQueue()
        self._read: dict[int, ReadChunk] = {}
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="headrace-chunks", daemon=True)
        self._thread.start()

    @property
    def is_asked(self) -> bool:
        """Whether a chunk is on its way."""
        return self._is_asked

    def ask(
        self, table: PublishedTable, where: str | None, after: Key | None, published: RecentTransactions
    ) -> None:
        """Have the next chunk of a table read."""
        assert not self._is_asked, "one chunk is read at a time"
        before = published.copy(time.time_ns()) if self._table != table.name else None
        self._table = table.name
        self._is_asked = True
        self._asked.put(_Asked(table=table, where=where, after=after, published=before))

    def take(self, content: bytes) -> ReadChunk | None:
        """The chunk whose watermark this is; None where it is another's, or of a run that has ended."""
        try:
            told = json.loads(content)
            number = told["chunk"] if told["token"] == self._token else None
        except (ValueError, KeyError, TypeError):
            return None
        read = self._read.pop(number, None) if isinstance(number, int) else None
        self._is_asked = self._is_asked and read is None
        return read

    def check(self) -> None:
        """Raise what has stopped the reader."""
        if self._failure is not None:
            raise self._failure

    def close(self) -> None:
        """End the thread, and what it reads or waits for."""
        self._closing.set()
        self._asked.put(None)
        self._thread.join(_CLOSE_PAUSE_S)
        while self._thread.is_alive():
            if self._connection is not None:
                cancel(self._connection)
            self._thread.join(_CLOSE_PAUSE_S)

    def _run(self) -> None:
        try:
            with connect(self._dsn) as connection:
                self._connection = connection
                while (asked := self._asked.get()) is not None and not self._closing.is_set():
                    with explained(self._dsn, f"the snapshot of {asked.table.name}"):
                        if asked.published is not None:
                            _settle(connection, asked.table.name, asked.published, self._closing)
                        self._read_chunk(connection, asked.table, asked.where, asked.after)
        except BaseException as failure:  # noqa: BLE001  # the owner raises it
            self._failure = failure

    def _read_chunk(
        self, connection: Connection, table: PublishedTable, where: str | None, after: Key | None
    ) -> None:
        with connection.transaction():
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            lock_tables(connection, [table])
            view = _view(connection)
            table = _looked_at_anew(connection, self._dsn, table)
            row_count = rows_per_chunk(table, self._chunk_rows_max)
            upto = connection.execute(boundary_query(table, where, after, row_count)).fetchone()
            rows = copied(connection, Chunk(table=table, where=where, after=after, upto=upto))
        self._number += 1
        self._read[self._number] = ReadChunk(chunk=ChunkRows(table=table, upto=upto, rows=rows), view=view)
        content = json.dumps({"capture": self._name, "token": self._token, "chunk": self._number})
        emit_message(connection, WATERMARK, content)


def _looked_at_anew(connection: Connection, dsn: str, table: PublishedTable) -> PublishedTable:
    found = DatabaseCatalog(connection, dsn).again(table)
    if found is None or not found.key:
        raise StoreUnavailable(
            f"{table.name} has lost its key, or was taken from the publication, before a chunk of it was "
            "read: it is looked for anew"
        )
    return found


def _settle(
    connection: Connection, name: str, published: RecentTransactions, closing: threading.Event
) -> None:
    """Wait until all transactions are seen that were published before the table's changes began to be noted.

    A transaction that waits for a synchronous standby is in the log, and on its topics, and nobody sees it:
    what is read before it is seen would be published after it.
    """
    started_s, pause_s, is_told = time.monotonic(), _SETTLE_PAUSE_S, False
    first = view = _view(connection)
    unseen = published.unseen_by(first)
    while unseen or view.xmin < first.xmax:
        waited_s = time.monotonic() - started_s
        if not unseen and waited_s > SETTLE_S_MAX:
            return
        if unseen and waited_s > UNSEEN_S_MAX and not is_told:
            is_told = True
            _logger.warning(
                "the snapshot of %s waits for %d transactions that are published and that the database does "
                "not show yet, such as %d: does a synchronous standby not answer?",
                name,
                len(unseen),
                min(unseen),
            )
        if closing.wait(pause_s):
            raise StoreUnavailable(f"the snapshot of {name} was ended before it began")
        pause_s = min(2 * pause_s, _SETTLE_PAUSE_S_MAX)
        view = _view(connection)
        unseen = frozenset(xid for xid in unseen if not view.sees(xid))


def _view(connection: Connection) -> View:
    row = connection.execute("SELECT pg_current_snapshot()::text").fetchone()
    assert row is not None
    return View.parse(row[0])
