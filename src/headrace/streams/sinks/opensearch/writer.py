"""Write batches to an index of OpenSearch or Elasticsearch: the driver's side.

The rows of a batch are spread over tasks by key, and each task writes its own (see task.py). When all are
through, the batch is entered into the ledger. Until then readers may see some of its rows.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar

from pyspark.sql import DataFrame

from headrace.errors import StoreUnavailable
from headrace.failpoints import Failpoint, hit
from headrace.search.fields import Columns
from headrace.search.server import Server, connected
from headrace.streams.sinks.context import WriteContext
from headrace.streams.sinks.index_rows import as_documents, index_columns
from headrace.streams.sinks.ledger import Batch, taken_over
from headrace.streams.sinks.lost import lost
from headrace.streams.sinks.opensearch import mapping, place
from headrace.streams.sinks.opensearch.ledger import Kept, ServedLedger
from headrace.streams.sinks.opensearch.task import RESULT, BulkTask
from headrace.streams.sinks.refused import forget_refused, refused_files
from headrace.streams.sinks.run_ledger import GONE, begun, is_written
from headrace.streams.sinks.table_rows import spread, table_rows
from headrace.streams.sinks.tasks import check_all_ran, failpoints_of_tasks, run_tasks, tried_again
from headrace.streams.stores import ServedIndex

T = TypeVar("T")

AGAIN_PAUSE_S: Final = 1.0
"""How long to wait after an error that may pass. A server that does not answer is waited for by itself."""
BEGIN_ATTEMPTS_MAX: Final = 5
"""How often to try to take an index over, where others try at the same time."""


class ServedWriter:
    """Writes batches of rows to an index."""

    def __init__(self, table: ServedIndex, context: WriteContext) -> None:
        self._table = table
        self._context = context
        self._ledger = ServedLedger(pipeline=context.pipeline, index=table.index)
        self._refused = refused_files(context.refused or context.checkpoint)
        self._writer = uuid.uuid4().hex
        self._mine: Kept | None = None
        """What the ledger said when this run began."""

    def write(self, rows: DataFrame, batch_id: int) -> int:
        """Write the rows, unless they were written before; return how many were written now."""
        table, pipeline = self._table, self._context.pipeline
        rows = table_rows(rows, table, pipeline=pipeline)
        batch = self._context.batch(batch_id, table.name, is_first=self._mine is None)
        hit("pipeline.batch")
        columns = index_columns(rows.schema, key=table.key, text=table.text, pipeline=pipeline)
        with connected(table.url) as server:
            if self._mine is None:
                self._mine = _tried(partial(self._begin, server, columns, batch))
                self._context.note_claim(table.name)
            row_count = 0
            if _tried(partial(self._is_written, server, batch, self._mine)):
                # What keeps state must be computed all the same, or there would be none for the next batch.
                rows.write.format("noop").mode("append").save()
            else:
                row_count = self._write(as_documents(rows, columns), batch, self._mine)
                _tried(partial(self._enter, server, batch, self._mine))
        hit("pipeline.written")
        return row_count

    def close(self) -> None:
        """Nothing is left open: connections last as long as a batch is written."""

    @property
    def _place(self) -> str:
        return f"the search index {self._table.index}"

    def _begin(self, server: Server, columns: Columns, batch: Batch) -> Kept:
        """Make what is missing, and shut out all earlier runs."""
        index = self._table.index
        mapping.check_names(columns, pipeline=batch.pipeline)
        self._ledger.make(server)
        if batch.has_claimed and place.find(server, index) is None:
            raise lost(batch.pipeline, self._place, "it is gone")
        generation = place.ensure(server, index, columns)
        place.refuse_changed(generation.columns, columns, index=index, pipeline=batch.pipeline)
        for _ in range(BEGIN_ATTEMPTS_MAX):
            seen = self._ledger.read(server)
            ledger = begun(seen.kept.ledger if seen else None, batch, place=self._place)
            if seen is not None and batch.has_claimed and seen.kept.uuid != generation.uuid:
                raise lost(batch.pipeline, self._place, "it is another than the one that was written")
            ledger = replace(ledger, run=self._ledger.next_run(server, above=ledger.run - 1))
            mine = Kept(ledger=ledger, generation=generation.name, uuid=generation.uuid, writer=self._writer)
            if self._ledger.write(server, mine, seen):
                return mine
        raise StoreUnavailable(
            f"pipeline {batch.pipeline} could not take over {self._place} in {BEGIN_ATTEMPTS_MAX} attempts, "
            "because others do so at the same time"
        )

    def _is_written(self, server: Server, batch: Batch, mine: Kept) -> bool:
        seen = self._ledger.read(server)
        ledger = None if seen is None else seen.kept.ledger
        return is_written(ledger, batch, mine.ledger.run, place=self._place)

    def _enter(self, server: Server, batch: Batch, mine: Kept) -> None:
        """Note down that the batch is written, unless another run has the index by now."""
        seen = self._ledger.read(server)
        if seen is None:
            raise lost(batch.pipeline, self._place, GONE)
        if seen.kept.ledger.run != mine.ledger.run:
            raise taken_over(batch.pipeline)
        after = replace(seen.kept, ledger=seen.kept.ledger.after(batch))
        if not self._ledger.write(server, after, seen):
            raise taken_over(batch.pipeline)

    def _write(self, documents: DataFrame, batch: Batch, mine: Kept) -> int:
        forget_refused(self._refused, batch.batch_id)
        with failpoints_of_tasks() as failpoints:
            shares = partial(self._shares, documents, batch, mine, failpoints)
            results = run_tasks(shares, after=StoreUnavailable, check=_pause)
        check_all_ran(batch.pipeline, (result["task"] for result in results), self._table.writers)
        return sum(result["row_count"] for result in results)

    def _shares(
        self, documents: DataFrame, batch: Batch, mine: Kept, failpoints: tuple[Failpoint, ...]
    ) -> DataFrame:
        """What the tasks answer, one row each. They run when it is asked for."""
        task = BulkTask(
            url=self._table.url,
            ledger=self._ledger,
            generation=mine.generation,
            run=mine.ledger.run,
            batch_id=batch.batch_id,
            key=self._table.key,
            columns=tuple(documents.columns),
            refused=self._refused,
            failpoints=failpoints,
        )
        return spread(documents, self._table, self._table.writers).mapInArrow(task.run_share, RESULT)


def _tried(work: Callable[[], T]) -> T:
    return tried_again(work, after=StoreUnavailable, check=_pause)


def _pause() -> None:
    time.sleep(AGAIN_PAUSE_S)
