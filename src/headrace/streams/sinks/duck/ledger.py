"""The ledger of a table of DuckDB (see ledger_table.py), in the same file, and who may write.

    share_number    0    the last batch
                   -1    the run that may write: its number in `next_batch_id`, its id in `digest`
                   -2    the last swap: its id in `digest`

The number of a run is one more than that of the run before. A file that knows of an earlier run than the one
that writes it was restored from a backup; one that knows of a later run, or of another of the same number, is
written by somebody else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headrace.streams.sinks.duck.connection import Connection
from headrace.streams.sinks.duck.table import is_there
from headrace.streams.sinks.ledger import (
    NO_DIGEST,
    Batch,
    Entry,
    Verdict,
    claim_before,
    decide,
    entry_after,
    taken_over,
)
from headrace.streams.sinks.ledger_table import LEDGER_COLUMNS, LEDGER_TABLE
from headrace.streams.sinks.lost import lost, refuse_lost

_BATCH: Final = 0
_RUN: Final = -1
_SWAP: Final = -2

_CREATE: Final = f"CREATE TABLE IF NOT EXISTS {LEDGER_TABLE} {LEDGER_COLUMNS}"
_READ: Final = """
SELECT next_batch_id, query_id, share_count, digest FROM headrace_batches
WHERE pipeline = ? AND target = ? AND share_number = ?
"""
_WRITE: Final = """
INSERT INTO headrace_batches (pipeline, target, share_number, next_batch_id, query_id, share_count, digest)
VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (pipeline, target, share_number) DO UPDATE SET next_batch_id = EXCLUDED.next_batch_id,
    query_id = EXCLUDED.query_id, share_count = EXCLUDED.share_count, digest = EXCLUDED.digest
"""
_FORGET: Final = "DELETE FROM headrace_batches WHERE pipeline = ? AND target = ?"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run that may write."""

    number: int
    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLedger:
    """The entries of one pipeline and one table. Its methods work in the connection's open transaction."""

    pipeline: str
    target: str
    place: str
    """The table, in words."""

    def create(self, connection: Connection) -> None:
        """Create the ledger's table if it is missing."""
        connection.execute(_CREATE)

    def read(self, connection: Connection, share: int) -> Entry | None:
        """What is known of a share, of the run or of the last swap."""
        row = connection.execute(_READ, [self.pipeline, self.target, share]).fetchone()
        if row is None:
            return None
        next_batch_id, query_id, task_count, digest = row
        return Entry(next_batch_id=next_batch_id, query_id=query_id, task_count=task_count, digest=digest)

    def begin_run(self, connection: Connection, batch: Batch, run_id: str, *, has_table: bool) -> Run:
        """Shut out all earlier runs before the first batch of a new one. Commit it."""
        last, entry = self.read(connection, _RUN), self.read(connection, _BATCH)
        refuse_lost(entry, batch, self.place)
        if batch.has_claimed and not has_table:
            raise lost(self.pipeline, self.place, "there is no such table any more")
        # Who can't go on with this batch, or was replaced, does not take over, either.
        decide(entry, batch, 1)
        if entry is None or entry.query_id != batch.query_id:
            self._write(connection, _BATCH, claim_before(batch, 1))
        run = Run(number=1 if last is None else last.next_batch_id + 1, id=run_id)
        self._write_run(connection, run, batch.query_id)
        return run

    def is_written(self, connection: Connection, batch: Batch, run: Run) -> bool:
        """Whether the batch is there. Raises where the run was replaced, or the batch can't be written."""
        last = self.read(connection, _RUN) if is_there(connection, LEDGER_TABLE) else None
        if last is None or last.next_batch_id < run.number:
            raise lost(self.pipeline, self.place, f"it knows nothing of run {run.number}, which writes it")
        if (last.next_batch_id, last.digest) != (run.number, run.id):
            raise taken_over(self.pipeline)
        entry = self.read(connection, _BATCH)
        refuse_lost(entry, batch, self.place)
        return decide(entry, batch, 1) is Verdict.SKIP

    def write(self, connection: Connection, batch: Batch) -> None:
        """Note down that the batch is written. Commit it with the rows."""
        self._write(connection, _BATCH, entry_after(batch, 1))

    def swap_id(self, connection: Connection) -> str | None:
        """The last swap."""
        entry = self.read(connection, _SWAP)
        return None if entry is None else entry.digest

    def take(
        self, connection: Connection, staged: TableLedger, query_id: str, run_id: str, swap: str
    ) -> None:
        """Take the place of the staged table's ledger, and shut out whoever writes. Commit it."""
        runs = [entry for each in (self, staged) if (entry := each.read(connection, _RUN)) is not None]
        entry = staged.read(connection, _BATCH)
        if entry is None or entry.query_id != query_id:
            entry = _nothing(query_id)
        self._write(connection, _BATCH, entry)
        self._write(connection, _SWAP, Entry(next_batch_id=0, query_id=query_id, task_count=0, digest=swap))
        number = max((run.next_batch_id for run in runs), default=0) + 1
        self._write_run(connection, Run(number=number, id=run_id), query_id)
        connection.execute(_FORGET, [staged.pipeline, staged.target])

    def _write_run(self, connection: Connection, run: Run, query_id: str) -> None:
        entry = Entry(next_batch_id=run.number, query_id=query_id, task_count=0, digest=run.id)
        self._write(connection, _RUN, entry)

    def _write(self, connection: Connection, share: int, entry: Entry) -> None:
        values = [entry.next_batch_id, entry.query_id, entry.task_count, entry.digest]
        connection.execute(_WRITE, [self.pipeline, self.target, share, *values])


def _nothing(query_id: str) -> Entry:
    """What is known of a table into which nothing was written."""
    return Entry(next_batch_id=0, query_id=query_id, task_count=1, digest=NO_DIGEST)
