"""What a task on an executor does with its share of a batch: write it to a Parquet file.

The file counts once the driver commits it to the table's log. One that is never committed, because its task
ran twice or its driver died, holds no rows of the table; a full vacuum removes it.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.errors import PipelineFailed, StorageError
from headrace.failpoints import Failpoint, hit
from headrace.streams.sinks.tasks import armed, task_number

RESULT: Final = "task int, row_count bigint, file string, size_bytes bigint"
"""What a task answers with: one row. `file` is null where there were no rows."""
FAILPOINTS: Final = ("pipeline.task.begun", "pipeline.task.produced")
"""Those that lie in tasks here: the driver commits."""
_NUMBER: Final = "_headrace_number"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTask:
    """How each task of a batch writes its share. Travels to the executors."""

    pipeline: str
    table: str
    directory: Path
    schema: pa.Schema
    """The rows' columns, in their order."""
    key: tuple[str, ...]
    """Where there is one, the last row of each key is kept."""
    failpoints: tuple[Failpoint, ...] = ()

    def run(self, shares: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the share."""
        task = task_number()
        filled = (share for share in shares if share.num_rows)
        first = next(filled, None)
        path, row_count, size_bytes = None, 0, 0
        if first is not None:
            path = self.directory / f"headrace-{uuid.uuid4()}.parquet"
            with armed(self.failpoints):
                hit("pipeline.task.begun")
                row_count = self._write(path, chain([first], filled))
                size_bytes = path.stat().st_size
                hit("pipeline.task.produced")
        yield pa.RecordBatch.from_pydict(
            {
                "task": pa.array([task], pa.int32()),
                "row_count": pa.array([row_count], pa.int64()),
                "file": pa.array([None if path is None else path.name], pa.string()),
                "size_bytes": pa.array([size_bytes], pa.int64()),
            }
        )

    def _write(self, path: Path, shares: Iterable[pa.RecordBatch]) -> int:
        row_count = 0
        try:
            with path.open("xb") as file:
                with pq.ParquetWriter(file, self.schema, compression="zstd") as writer:
                    for rows in self._tables(shares):
                        writer.write_table(rows)
                        row_count += rows.num_rows
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise StorageError(
                f"pipeline {self.pipeline} can't write to the table {self.table}: {error}"
            ) from error
        return row_count

    def _tables(self, shares: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
        tables = (pa.Table.from_batches([share]).rename_columns(self.schema.names) for share in shares)
        if not self.key:
            yield from (table.cast(self.schema) for table in tables)
            return
        whole = pa.concat_tables(tables)
        for key in self.key:
            if whole.column(key).null_count:
                raise PipelineFailed(
                    f"pipeline {self.pipeline} returns a row whose key column {key} is null, for the table "
                    f"{self.table}: leave such rows out, or give them a value"
                )
        yield last_of_each_key(whole, self.key).cast(self.schema)


def last_of_each_key(rows: pa.Table, key: tuple[str, ...]) -> pa.Table:
    """The last row of each key, in the order of the rows."""
    numbers = pa.array(range(rows.num_rows), pa.int64())
    numbered = rows.select(key).append_column(_NUMBER, numbers)
    last = numbered.group_by(list(key)).aggregate([(_NUMBER, "max")])[f"{_NUMBER}_max"]
    return rows.take(last.take(pc.sort_indices(last)))
