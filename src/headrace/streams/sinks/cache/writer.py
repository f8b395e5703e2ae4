"""Write batches to a hash of Redis, exactly once: the driver's side.

The driver opens a batch in the ledger, tasks on executors write their shares, and the driver closes it (see
state.py). A connection that is lost, because the server was restarted for example, is no reason to end: the
batch is opened and written once more, a few times.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

from headrace.errors import StoreUnavailable
from headrace.failpoints import Failpoint, hit
from headrace.streams.sinks import staged_files
from headrace.streams.sinks.cache.fields import field_column
from headrace.streams.sinks.cache.ledger import CacheLedger
from headrace.streams.sinks.cache.task import FIELD, RESULT, VALUE, CacheTask
from headrace.streams.sinks.cache.values import check_types, value_column
from headrace.streams.sinks.context import WriteContext
from headrace.streams.sinks.ledger import Batch
from headrace.streams.sinks.refused import forget_refused, refused_files
from headrace.streams.sinks.table_rows import table_rows
from headrace.streams.sinks.tasks import check_all_ran, failpoints_of_tasks, run_tasks, tried_again
from headrace.streams.stores import Cache

T = TypeVar("T")

AGAIN_PAUSE_S: Final = 1.0
"""How long to wait after an error that may pass. A server that does not answer is waited for by itself."""


class CacheWriter:
    """Writes batches of rows to a hash."""

    def __init__(self, cache: Cache, context: WriteContext) -> None:
        self._cache = cache
        self._context = context
        self._ledger = CacheLedger(cache=cache, pipeline=context.pipeline)
        self._refused = refused_files(context.refused or context.checkpoint)
        self._run: int | None = None

    def write(self, rows: DataFrame, batch_id: int) -> int:
        """Write the rows, unless they were written before; return how many were written now."""
        rows = table_rows(rows, self._cache, pipeline=self._context.pipeline)
        batch = self._context.batch(batch_id, self._cache.name, is_first=self._run is None)
        hit("pipeline.batch")
        if self._run is None:
            check_types(rows.schema, pipeline=self._context.pipeline)
            self._run = _tried(partial(self._ledger.begin_run, batch))
            self._context.note_claim(self._cache.name)
        row_count = 0
        if _tried(partial(self._ledger.open_batch, batch, self._run)):
            row_count = self._write(rows, batch, self._run)
        else:
            # What keeps state must be computed all the same, or there would be none for the next batch.
            rows.write.format("noop").mode("append").save()
        hit("pipeline.written")
        return row_count

    def close(self) -> None:
        """Nothing is left open: the next run shuts this one out."""

    def _write(self, rows: DataFrame, batch: Batch, run: int) -> int:
        def open_again() -> None:
            _pause()
            self._ledger.open_batch(batch, run)

        forget_refused(self._refused, batch.batch_id)
        with failpoints_of_tasks(staged_files.FAILPOINTS) as failpoints:
            results = run_tasks(
                partial(self._shares, rows, batch, run, failpoints), after=StoreUnavailable, check=open_again
            )
        check_all_ran(batch.pipeline, (result["task"] for result in results), self._cache.writers)
        if not _tried(partial(self._ledger.close_batch, batch, run)):
            raise StoreUnavailable(
                f"{self._ledger.place} was restarted, or replaced by another server, while batch "
                f"{batch.batch_id} of pipeline {batch.pipeline} was written: it has to be written again"
            )
        hit("pipeline.task.committed")
        return sum(result["row_count"] for result in results)

    def _shares(
        self, rows: DataFrame, batch: Batch, run: int, failpoints: tuple[Failpoint, ...]
    ) -> DataFrame:
        """What the tasks answer, one row each. They run when it is asked for."""
        task = CacheTask(
            cache=self._cache,
            pipeline=batch.pipeline,
            run_number=run,
            batch_id=batch.batch_id,
            refused=self._refused,
            failpoints=failpoints,
        )
        pairs = rows.select(field_column(rows, self._cache.key).alias(FIELD), value_column(rows).alias(VALUE))
        return pairs.repartition(self._cache.writers, F.xxhash64(FIELD)).mapInArrow(task.run, RESULT)


def _tried(work: Callable[[], T]) -> T:
    return tried_again(work, after=StoreUnavailable, check=_pause)


def _pause() -> None:
    time.sleep(AGAIN_PAUSE_S)
