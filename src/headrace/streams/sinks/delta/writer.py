"""Write batches to a Delta table, exactly once: the driver's side.

Tasks on executors write the rows to Parquet files. Of a table without a key, these become files of the table
by one commit; with a key, one commit merges them into it. Either carries the batch's id as an application
transaction (see log.py), so that a batch that is run again finds itself done.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from json import dumps

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.transaction import AddAction, CommitProperties
from pyspark.sql import DataFrame, Row
from pyspark.sql.types import StructType

from headrace.failpoints import Failpoint, hit
from headrace.streams.sinks import staged_files
from headrace.streams.sinks.context import WriteContext
from headrace.streams.sinks.delta import merge
from headrace.streams.sinks.delta.log import TableLog, append
from headrace.streams.sinks.delta.schema import arrow_schema
from headrace.streams.sinks.ledger import Batch
from headrace.streams.sinks.records import DELETE_COLUMN
from headrace.streams.sinks.run_directory import RunDirectory
from headrace.streams.sinks.table_rows import spread, table_rows, unnamed
from headrace.streams.sinks.tasks import check_all_ran, failpoints_of_tasks, told
from headrace.streams.table import DeltaTable as Target


class DeltaWriter:
    """Writes batches of rows to a table."""

    def __init__(self, target: Target, context: WriteContext) -> None:
        self._target = target
        self._context = context
        self._log = TableLog(path=target.path, pipeline=context.pipeline)
        self._staging = RunDirectory(home=merge.staging_of(target.path, context.pipeline))
        self._run: int | None = None
        self._schema: pa.Schema | None = None

    def write(self, rows: DataFrame, batch_id: int) -> int:
        """Write the rows, unless they were written before; return how many were written now."""
        rows = table_rows(rows, self._target, pipeline=self._context.pipeline)
        batch = self._context.batch(batch_id, self._target.name, is_first=self._run is None)
        hit("pipeline.batch")
        schema = self._settle(rows.schema)
        if self._run is None:
            with self._staging.beginning():
                self._run = self._log.begin_run(batch)
            self._context.note_claim(self._target.name)
        is_written = self._log.is_written(batch, self._run)
        if is_written:
            # What keeps state must be computed all the same, or there would be none for the next batch.
            rows.write.format("noop").mode("append").save()
        row_count = 0 if is_written else self._write(rows, schema, batch, self._run)
        hit("pipeline.written")
        return row_count

    def close(self) -> None:
        """Nothing is left open: files that were not committed are not part of the table."""

    def _settle(self, schema: StructType) -> pa.Schema:
        """The schema of the files, once the table is there and fits."""
        if self._schema is not None:
            return self._schema
        columns = StructType([field for field in schema.fields if field.name != DELETE_COLUMN])
        found = self._log.ensure_table(arrow_schema(columns, pipeline=self._context.pipeline))
        fields = [found.field(name) for name in columns.names]
        if DELETE_COLUMN in schema.names:
            fields.append(pa.field(DELETE_COLUMN, pa.bool_()))
        self._schema = pa.schema(fields)
        return self._schema

    def _write(self, rows: DataFrame, schema: pa.Schema, batch: Batch, run: int) -> int:
        if self._target.key:
            self._staging.clear()
        with failpoints_of_tasks(staged_files.FAILPOINTS) as failpoints, told():
            results = self._shares(rows, schema, failpoints).collect()
        if self._target.key:
            check_all_ran(batch.pipeline, (result["task"] for result in results), self._target.writers)
        written = [result for result in results if result["file"] is not None]
        if written:
            self._log.commit(batch, run, partial(self._commit, written))
            hit("pipeline.task.committed")
        return sum(result["row_count"] for result in written)

    def _shares(self, rows: DataFrame, schema: pa.Schema, failpoints: tuple[Failpoint, ...]) -> DataFrame:
        """What the tasks answer, one row each. They run when it is asked for."""
        target = self._target
        task = staged_files.FileTask(
            pipeline=self._context.pipeline,
            table=target.name,
            directory=self._staging.path if target.key else target.path,
            schema=schema,
            key=target.key,
            failpoints=failpoints,
        )
        # One commit takes all files: without a key it does not matter which row is in which.
        shares = (
            spread(rows, target, target.writers) if target.key else unnamed(rows).coalesce(target.writers)
        )
        return shares.mapInArrow(task.run, staged_files.RESULT)

    def _commit(self, written: Sequence[Row], table: DeltaTable, properties: CommitProperties) -> None:
        if self._target.key:
            staged = [self._staging.path / result["file"] for result in written]
            merge.merge(table, properties, staged, self._target.key)
            self._staging.remove()
        else:
            append(table, properties, [_add(result) for result in written])


def _add(result: Row) -> AddAction:
    return AddAction(
        path=result["file"],
        size=result["size_bytes"],
        partition_values={},
        modification_time=time.time_ns() // 1_000_000,
        data_change=True,
        stats=dumps({"numRecords": result["row_count"]}),
    )
