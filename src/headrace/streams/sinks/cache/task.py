"""What a task on an executor does with its share of a batch: write it to Redis, by calls of a script.

The script looks into the ledger each time, and leaves everything alone if another run, or another batch, is
at work by now (see state.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from headrace.errors import PipelineFailed, StoreUnavailable
from headrace.failpoints import Failpoint, hit
from headrace.streams.side_files import SideFiles
from headrace.streams.sinks.cache.calls import WRITE, Row, arguments, calls, refusal
from headrace.streams.sinks.cache.connection import connected, described
from headrace.streams.sinks.cache.state import ledger_key, note_key
from headrace.streams.sinks.ledger import taken_over
from headrace.streams.sinks.lost import lost
from headrace.streams.sinks.refused import Refusals
from headrace.streams.sinks.staged_files import last_of_each_key
from headrace.streams.sinks.tasks import armed, task_number
from headrace.streams.stores import Cache

RESULT: Final = "task int, row_count bigint"
"""What a task answers with: one row."""
FIELD: Final = "field"
VALUE: Final = "value"


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheTask:
    """How each task of a batch writes its share. Travels to the executors."""

    cache: Cache
    pipeline: str
    run_number: int
    batch_id: int
    refused: SideFiles | None
    """Where rows go that can't be written."""
    failpoints: tuple[Failpoint, ...] = ()

    def run(self, shares: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the share: `field`, and `value`, which is null for a row that is to go."""
        task = task_number()
        tables = [pa.Table.from_batches([share]) for share in shares if share.num_rows]
        row_count = 0
        if tables:
            rows = last_of_each_key(pa.concat_tables(tables), (FIELD,))
            self._check(rows)
            with armed(self.failpoints):
                hit("pipeline.task.begun")
                self._write(task, rows)
                hit("pipeline.task.produced")
            row_count = rows.num_rows
        yield pa.RecordBatch.from_pydict(
            {"task": pa.array([task], pa.int32()), "row_count": pa.array([row_count], pa.int64())}
        )

    def _check(self, rows: pa.Table) -> None:
        if rows.column(FIELD).null_count:
            raise PipelineFailed(
                f"pipeline {self.pipeline} returns a row with a null in its key, "
                f"({', '.join(self.cache.key)}), for the cache {self.cache.name}: leave such rows out, or "
                "give them a value"
            )

    def _write(self, task: int, rows: pa.Table) -> None:
        # The same part, whoever writes the share: its file is written anew, with the same rows.
        refusals = Refusals(files=self.refused, batch_id=self.batch_id, part=str(task))
        name = self.cache.hash_name
        keys = [name, ledger_key(name, self.pipeline), note_key(name)]
        with connected(self.cache.url, f"writing to the cache {self.cache.name}") as client:
            write = client.register_script(WRITE)
            for call in calls(_taken(rows, refusals)):
                found = write(keys=keys, args=arguments(self.run_number, self.batch_id, call))
                self._refuse_closed(*found)
        refusals.flush()

    def _refuse_closed(self, run: Any, batch: Any) -> None:
        """Raise where nothing was written, because of this run and this batch in the ledger."""
        if (run, batch) == (b"%d" % self.run_number, b"%d" % self.batch_id):
            return
        place = f"the cache {self.cache.name} on {described(self.cache.url)}"
        if run is None:
            raise lost(self.pipeline, place, "nothing is there of what was written before")
        if int(run) > self.run_number:
            raise taken_over(self.pipeline)
        if int(run) < self.run_number:
            raise lost(self.pipeline, place, f"it knows of run {int(run)} only")
        raise StoreUnavailable(
            f"batch {self.batch_id} of pipeline {self.pipeline} is not open any more in {place}: it was "
            "written by somebody else, or the server has lost the last changes"
        )


def _taken(rows: pa.Table, refusals: Refusals) -> Iterator[Row]:
    """The rows that Redis takes."""
    for share in rows.to_batches():
        columns = (share.column(name).cast(pa.binary()).to_pylist() for name in (FIELD, VALUE))
        for row in zip(*columns, strict=True):
            cause = refusal(row)
            if cause is None:
                yield row
            elif row[1] is not None:
                # A row that is to go is not there, if its field is too long to be.
                refusals.add(row[0].decode(), row[1].decode(), cause)
