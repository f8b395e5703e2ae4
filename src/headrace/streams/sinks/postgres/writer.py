"""Write batches to a table of PostgreSQL, exactly once: the driver's side.

The rows of a batch are spread over a fixed number of tasks by key, or by all that they are. A retry therefore
gives each task the same rows, however the batch was cut before; what a task does with them is told in
task.py, and how it knows whether they were written in ledger.py.

How many tasks there are is decided at the first batch after a start, and holds until the next. A batch that
was begun with another number is finished with that one.

A connection that is lost, because the server was restarted for example, is no reason to end: the tasks that
were not through are run again, a few times.
"""

from __future__ import annotations

import time
import uuid
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from headrace.errors import StoreUnavailable
from headrace.failpoints import Failpoint, hit
from headrace.streams.sinks.context import WriteContext
from headrace.streams.sinks.ledger import Batch, begun_task_count, check_all
from headrace.streams.sinks.postgres.columns import as_text
from headrace.streams.sinks.postgres.connection import connect, explained
from headrace.streams.sinks.postgres.ledger import LOCK_S_MAX, TableLedger
from headrace.streams.sinks.postgres.table import ensure_table
from headrace.streams.sinks.postgres.task import RESULT, PostgresTask
from headrace.streams.sinks.records import DELETE_COLUMN
from headrace.streams.sinks.table_rows import spread, table_rows
from headrace.streams.sinks.tasks import check_all_ran, failpoints_of_tasks, run_tasks, tried_again
from headrace.streams.table import PostgresTable

AGAIN_PAUSE_S: Final = 1.0
"""How long to wait after an error that may pass. A server that does not answer is waited for by itself."""


class PostgresWriter:
    """Writes batches of rows to a table."""

    def __init__(
        self, table: PostgresTable, context: WriteContext, *, lock_s_max: float = LOCK_S_MAX
    ) -> None:
        self._table = table
        self._context = context
        self._ledger = TableLedger(
            schema_name=table.schema_name,
            pipeline=context.pipeline,
            target=table.name,
            lock_s_max=lock_s_max,
        )
        self._run_id = str(uuid.uuid4())
        self._task_count = table.writers
        self._is_first = True

    def write(self, rows: DataFrame, batch_id: int) -> int:
        """Write the rows, unless they were written before; return how many were written now."""
        rows = table_rows(rows, self._table, pipeline=self._context.pipeline)
        batch = self._context.batch(batch_id, self._table.name, is_first=self._is_first)
        hit("pipeline.batch")
        if batch.is_first:
            self._task_count = tried_again(
                partial(self._settle, rows.schema, batch), after=StoreUnavailable, check=_pause
            )
            self._context.note_claim(self._table.name)
        # Whose table it is, the run's own entry says; those of shares may be left over from others.
        row_count = self._run(as_text(rows), replace(batch, has_claimed=False))
        self._is_first = False
        hit("pipeline.written")
        return row_count

    def close(self) -> None:
        """Nothing is left open: the server rolls back what a lost connection has begun."""

    def _settle(self, schema: StructType, batch: Batch) -> int:
        """Into how many shares to spread the first batch, and all that follow it."""
        columns = StructType([field for field in schema.fields if field.name != DELETE_COLUMN])
        dsn = self._table.dsn
        with (
            explained(dsn, f"preparing the table {self._table.name}"),
            closing(connect(dsn)) as connection,
        ):
            ensure_table(connection, self._table, columns, pipeline=batch.pipeline)
            self._ledger.create(connection)
            connection.commit()
            entries = self._ledger.begin_run(connection, batch, self._run_id)
            task_count = begun_task_count(entries, batch) or self._table.writers
            check_all(entries, replace(batch, has_claimed=False), task_count)
            connection.commit()
        return task_count

    def _run(self, rows: DataFrame, batch: Batch) -> int:
        with failpoints_of_tasks() as failpoints:
            results = run_tasks(
                partial(self._shares, rows, batch, failpoints), after=StoreUnavailable, check=_pause
            )
        check_all_ran(batch.pipeline, (result["task"] for result in results), self._task_count)
        return sum(result["row_count"] for result in results)

    def _shares(self, rows: DataFrame, batch: Batch, failpoints: tuple[Failpoint, ...]) -> DataFrame:
        """What the tasks answer, one row each. They run when it is asked for."""
        task = PostgresTask(
            table=self._table,
            ledger=self._ledger,
            batch=batch,
            run_id=self._run_id,
            task_count=self._task_count,
            columns=tuple(rows.columns),
            failpoints=failpoints,
        )
        return spread(rows, self._table, self._task_count).mapInArrow(task.run, RESULT)


def _pause() -> None:
    time.sleep(AGAIN_PAUSE_S)
