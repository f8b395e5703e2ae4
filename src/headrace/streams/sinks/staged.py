"""Write batches to a store that one process changes, exactly once: the driver's side.

Tasks on executors write the rows to Parquet files, the last of each key in each; the driver then applies
these to the store, together with the ledger's entry of the batch, in one commit. So a batch that is run again
finds itself done.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from headrace.failpoints import hit
from headrace.streams.sinks import staged_files
from headrace.streams.sinks.context import WriteContext
from headrace.streams.sinks.ledger import Batch
from headrace.streams.sinks.run_directory import RunDirectory
from headrace.streams.sinks.table_rows import spread, table_rows
from headrace.streams.sinks.tasks import check_all_ran, failpoints_of_tasks, told
from headrace.streams.stores import Table


class Applier(Protocol):
    """What changes the store."""

    def settle(self, schema: StructType) -> pa.Schema:
        """Make the store for rows of this schema if it is missing; return the schema of the files."""

    def begin_run(self, batch: Batch) -> None:
        """Shut out all earlier runs, before the first batch of a new one."""

    def is_written(self, batch: Batch) -> bool:
        """Whether the batch is there. Raises where the run was replaced, or the batch can't be written."""

    def apply(self, batch: Batch, files: Sequence[Path]) -> None:
        """Write the files' rows and the ledger's entry, in one commit. There may be no files."""

    def close(self) -> None:
        """Let go of the store. Nothing is written any more."""


class StagedWriter:
    """Writes batches of rows to a store with a key."""

    def __init__(self, table: Table, context: WriteContext, applier: Applier, staging: Path) -> None:
        """`staging` is a directory for this pipeline alone, which the driver and all executors see."""
        self._table = table
        self._context = context
        self._applier = applier
        self._staging = RunDirectory(home=staging)
        self._schema: pa.Schema | None = None
        self._has_begun = False

    def write(self, rows: DataFrame, batch_id: int) -> int:
        """Write the rows, unless they were written before; return how many were written now."""
        rows = table_rows(rows, self._table, pipeline=self._context.pipeline)
        batch = self._context.batch(batch_id, self._table.name, is_first=not self._has_begun)
        hit("pipeline.batch")
        if self._schema is None:
            self._schema = self._applier.settle(rows.schema)
        if not self._has_begun:
            with self._staging.beginning():
                self._applier.begin_run(batch)
            self._context.note_claim(self._table.name)
            self._has_begun = True
        row_count = 0
        if self._applier.is_written(batch):
            # What keeps state must be computed all the same, or there would be none for the next batch.
            rows.write.format("noop").mode("append").save()
        else:
            row_count = self._write(rows, self._schema, batch)
        hit("pipeline.written")
        return row_count

    def close(self) -> None:
        """Let go of the store."""
        self._applier.close()

    def _write(self, rows: DataFrame, schema: pa.Schema, batch: Batch) -> int:
        self._staging.clear()
        with failpoints_of_tasks(staged_files.FAILPOINTS) as failpoints, told():
            task = staged_files.FileTask(
                pipeline=self._context.pipeline,
                table=self._table.name,
                directory=self._staging.path,
                schema=schema,
                key=self._table.key,
                failpoints=failpoints,
            )
            shares = spread(rows, self._table, self._table.writers)
            results = shares.mapInArrow(task.run, staged_files.RESULT).collect()
        check_all_ran(batch.pipeline, (result["task"] for result in results), self._table.writers)
        written = [result for result in results if result["file"] is not None]
        self._applier.apply(batch, [self._staging.path / result["file"] for result in written])
        hit("pipeline.task.committed")
        self._staging.remove()
        return sum(result["row_count"] for result in written)
