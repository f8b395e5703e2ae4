"""Snapshots that go on beside the stream: which chunk is read next, and which of its rows are published.

A snapshot that was asked for and can't be made, by a condition that the database does not understand, say, is
given up with a warning, and the stream goes on. One that belongs to the beginning stops the capture, since
rows would be missing that nobody asks for again; unless the table is gone, and its rows with it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from headrace.cdc.beginning import find_table
from headrace.cdc.envelope import SnapshotPoint
from headrace.cdc.incremental import ChunkReader, ReadChunk
from headrace.cdc.messages import Relation
from headrace.cdc.record import Record
from headrace.cdc.watermark import ChangedKeys, RecentTransactions
from headrace.errors import HeadraceError
from headrace.logs import fields

if TYPE_CHECKING:
    from headrace.cdc.beginning import Parts
    from headrace.cdc.settings import EventSettings
    from headrace.cdc.state import CaptureState, TableSnapshot
    from headrace.cdc.writer import ChangeWriter


_logger = logging.getLogger(__name__)


class SideSnapshots:
    """Has chunks read as long as the state names tables. Belongs to the capture's thread."""

    def __init__(self, parts: Parts, settings: EventSettings) -> None:
        self._parts = parts
        self._settings = settings
        self._reader: ChunkReader | None = None
        self._changed = ChangedKeys()
        self._recent = RecentTransactions()
        self._described: dict[int, Relation] = {}

    @property
    def is_watching(self) -> bool:
        """Whether changes have to be noted."""
        return self._changed.topic is not None

    def described(self, relation: Relation) -> None:
        """The stream has described a table: rows of the stream that follow are like this."""
        self._described[relation.oid] = relation

    def begun(self, xid: int, now_ns: int) -> None:
        """A transaction is about to be published."""
        self._recent.add(xid, now_ns)

    def note(self, xid: int, records: Iterable[Record]) -> None:
        """A transaction has made these records."""
        topic = self._changed.topic
        for record in records:
            if record.topic == topic:
                self._changed.note(xid, record.key)

    def go_on(self, state: CaptureState) -> CaptureState:
        """Have the next chunk read, if the state wants one and none is on its way.

        Returns the state, without tables whose snapshot was given up.
        """
        while state.tables:
            try:
                self._read_next(state.tables[0])
            except HeadraceError as error:
                self._check_given_up(state.tables[0], error)
                # The reader has ended with what it was asked for.
                self.close()
                state = state.without_first_table()
            else:
                return state
        self._changed.watch(None)
        # The next reader first waits for what is not noted now.
        self.close()
        return state

    def _check_given_up(self, asked: TableSnapshot, error: HeadraceError) -> None:
        """Warn of a snapshot that is given up because of an error; raise one that has to stop the capture."""
        parts = self._parts
        is_gone = (asked.schema, asked.table) not in parts.catalog.all_tables()
        if error.retriable or not (asked.is_requested or is_gone):
            raise error
        name = parts.config.name
        _logger.warning(
            "capture %s goes on without the snapshot of %s, of which %d rows are published: %s",
            name,
            asked.name,
            asked.row_count,
            f"there is no such table any more ({error})" if is_gone else error,
            extra=fields(capture=name, table=asked.name),
        )

    def _read_next(self, asked: TableSnapshot) -> None:
        # Before the chunk is read, so that nothing is changed in between that is not noted.
        self._changed.watch(self._settings.topic_of(asked.schema, asked.table))
        if self._reader is None:
            config = self._parts.config
            self._reader = ChunkReader(config.dsn, config.name, config.chunk_rows_max)
        self._reader.check()
        if not self._reader.is_asked:
            table = find_table(self._parts.catalog, self._parts.config.publication, asked)
            self._reader.ask(table, asked.where, asked.after, self._recent)

    def take(self, content: bytes) -> ReadChunk | None:
        """The chunk whose watermark came by, if it is ours."""
        return None if self._reader is None else self._reader.take(content)

    def records(self, writer: ChangeWriter, read: ReadChunk, now_ns: int) -> list[Record]:
        """The rows of a chunk that no later change has overtaken."""
        overtaken = self._changed.overtaken(read.view)
        relation = read.chunk.table.relation
        point = SnapshotPoint(
            marker="incremental", at_ns=now_ns, lsn=None, last_commit_lsn=writer.last_commit_lsn
        )
        writer.know(relation)
        made = [writer.snapshot_row(relation.oid, list(row), point, now_ns) for row in read.chunk.rows]
        # Rows of the stream may still be as they were before, or after, a change of the table.
        if relation.oid in self._described:
            writer.know(self._described[relation.oid])
        return [record for record in made if record is not None and record.key not in overtaken]

    def close(self) -> None:
        """End the reader."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None
