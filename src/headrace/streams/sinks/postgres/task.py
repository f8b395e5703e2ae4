"""What a task on an executor does with its share of a batch: write it to PostgreSQL, in one transaction.

shut out others → read the ledger → write or skip
copy the rows → write the ledger's new entry → commit
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from io import BytesIO
from itertools import chain
from typing import Final

import pyarrow as pa
from psycopg import sql
from pyarrow import csv

from headrace.errors import PipelineFailed
from headrace.failpoints import Failpoint, hit
from headrace.streams.sinks.ledger import Batch, Verdict, decide, entry_after
from headrace.streams.sinks.postgres import statements
from headrace.streams.sinks.postgres.connection import Connection, connect, explained
from headrace.streams.sinks.postgres.ledger import TableLedger
from headrace.streams.sinks.records import DELETE_COLUMN
from headrace.streams.sinks.tasks import armed, task_number
from headrace.streams.table import PostgresTable

RESULT: Final = "task int, row_count bigint"
"""What a task answers with: one row. `row_count` is 0 where the share was written before."""
# Texts are quoted and nulls are not, so that PostgreSQL can tell an empty text from a null.
_CSV: Final = csv.WriteOptions(include_header=False, quoting_style="needed")


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresTask:
    """How each task of a batch writes its share. Travels to the executors."""

    table: PostgresTable
    ledger: TableLedger
    batch: Batch
    run_id: str
    task_count: int
    columns: tuple[str, ...]
    """The names of the rows' columns."""
    failpoints: tuple[Failpoint, ...] = ()

    def run(self, shares: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the share: record batches of the table's columns, and perhaps `_delete`."""
        task = task_number()
        with armed(self.failpoints), explained(self.table.dsn, f"writing to the table {self.table.name}"):
            row_count = self._write(task, shares)
        # Rows that are left unread would keep Spark from using this process again.
        for _ in shares:
            pass
        yield pa.RecordBatch.from_pydict(
            {"task": pa.array([task], pa.int32()), "row_count": pa.array([row_count], pa.int64())}
        )

    def _write(self, task: int, shares: Iterator[pa.RecordBatch]) -> int:
        filled = (share.rename_columns(self.columns) for share in shares if share.num_rows)
        first = next(filled, None)
        if first is None and not self.batch.is_first:
            return 0
        # Closing a connection with an open transaction rolls it back.
        with closing(connect(self.table.dsn)) as connection:
            entry = self.ledger.begin_share(connection, task, self.run_id)
            if decide(entry, self.batch, self.task_count) is Verdict.SKIP:
                return 0
            hit("pipeline.task.begun")
            row_count = 0 if first is None else self._copy(connection, chain([first], filled))
            self.ledger.end_share(connection, task, entry_after(self.batch, self.task_count))
            hit("pipeline.task.produced")
            connection.commit()
            hit("pipeline.task.committed")
        return row_count

    def _copy(self, connection: Connection, shares: Iterable[pa.RecordBatch]) -> int:
        columns = [name for name in self.columns if name != DELETE_COLUMN]
        if not self.table.key:
            return _send(connection, statements.copy_rows(self.table, columns), shares)
        connection.execute(statements.create_share(self.table, columns))
        numbered = _numbered(self._checked(shares))
        copy = statements.copy_share([*self.columns, statements.NUMBER_COLUMN])
        row_count = _send(connection, copy, numbered)
        if DELETE_COLUMN in self.columns:
            connection.execute(statements.delete_rows(self.table))
        connection.execute(statements.upsert_rows(self.table, columns))
        return row_count

    def _checked(self, shares: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for share in shares:
            for key in self.table.key:
                if share.column(key).null_count:
                    raise PipelineFailed(
                        f"pipeline {self.batch.pipeline} returns a row whose key column {key} is null, for "
                        f"the table {self.table.name}: leave such rows out, or give them a value"
                    )
            yield share


def _numbered(shares: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    start = 0
    for share in shares:
        numbers = pa.array(range(start, start + share.num_rows), pa.int64())
        start += share.num_rows
        yield share.append_column(statements.NUMBER_COLUMN, numbers)


def _send(connection: Connection, copy: sql.Composed, shares: Iterable[pa.RecordBatch]) -> int:
    row_count = 0
    with connection.cursor() as cursor, cursor.copy(copy) as receiver:
        for share in shares:
            receiver.write(as_csv(share))
            row_count += share.num_rows
    return row_count


def as_csv(share: pa.RecordBatch) -> bytes:
    """The rows as PostgreSQL reads them."""
    columns = [_in_utc(column) for column in share.columns]
    text = BytesIO()
    csv.write_csv(pa.RecordBatch.from_arrays(columns, names=share.schema.names), text, _CSV)
    return text.getvalue()


def _in_utc(column: pa.Array) -> pa.Array:
    """A time zone of old may be off by odd seconds, which text does not show."""
    is_zoned = pa.types.is_timestamp(column.type) and column.type.tz is not None
    return column.cast(pa.timestamp(column.type.unit, "UTC")) if is_zoned else column
