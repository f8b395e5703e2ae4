"""Run a query on and on, and hand over what it gives, batch by batch.

| query | each batch hands over |
|---|---|
| each row by itself | the new rows |
| GROUP BY, and all groups are wanted | all groups (Spark's `complete`) |
| GROUP BY else, windows too | the groups that have changed (`update`) |
| of one topic of changes | the rows of keys that have changed; `_delete` is true where one is gone |

Nothing is written, so a query that is started again begins anew. The records that are no rows are counted by
a query beside, as pipelines take their dead letters.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace.errors import FaultError, SqlError
from headrace.streams.failure import first_line
from headrace.streams.formats import refused
from headrace.streams.log_offsets import find_span
from headrace.streams.source import Reader, read_records_stream
from headrace.streams.spans import OPEN, Bound
from headrace.streams.sql.analysis import analyse, can_stream, without_hidden
from headrace.streams.sql.bounded import Refused
from headrace.streams.sql.catalog import Catalog
from headrace.streams.sql.definitions import Table, View
from headrace.streams.sql.frames import stream_frame, timeless
from headrace.streams.sql.results import iterate
from headrace.streams.sql.sentences import streaming_sentence
from headrace.streams.sql.shapes import shape_of
from headrace.streams.sql.view_rows import view_rows
from headrace.streams.topic import OF_CHANGES

REFUSED_EVERY: Final = "2 seconds"
_WATCH_EVERY_S: Final = 0.25
_NAME: Final = "headrace-sql"

Gives = Literal["rows", "groups", "changed groups", "keys"]
"""What each batch is."""
OnBatch = Callable[[Iterable[str]], None]
"""Is given the rows of a batch, as JSON."""


@dataclass(slots=True, kw_only=True)
class Live:
    """A query that runs until it is stopped. Belongs to one thread, but for `stop`."""

    session: SparkSession
    catalog: Catalog
    sql: str
    work_dir: Path
    all_groups: bool = False
    """Whether each batch of a GROUP BY is to be all groups."""
    begin: Bound = OPEN
    key: tuple[str, ...] = ()
    """Of a topic of changes: the columns that tell the rows apart, once it is planned."""
    _read: dict[str, Table] = field(default_factory=dict)
    _error: BaseException | None = None

    def plan(self) -> tuple[DataFrame, Gives]:
        """The stream, and what its batches are."""
        made = analyse(self.session, self.sql, self._find)
        if not made.isStreaming:
            raise SqlError("this query reads no topic, so that nothing can change: leave LIVE out")
        of_changes = [table for table in self._read.values() if table.topic.format in OF_CHANGES]
        if of_changes:
            return self._of_changes(), "keys"
        refusal = can_stream(made, "Append")
        if refusal is None:
            return without_hidden(made, self.sql), "rows"
        gives: Gives = "groups" if self.all_groups else "changed groups"
        refusal = can_stream(made, "Complete" if self.all_groups else "Update")
        if refusal is not None:
            raise SqlError(f"this can't be computed live: {refusal}")
        return without_hidden(made, self.sql), gives

    def run(
        self,
        rows: DataFrame,
        gives: Gives,
        on_batch: OnBatch,
        stop: threading.Event,
        on_refused: Callable[[Refused], None] = lambda _refused: None,
    ) -> None:
        """Hand over each batch until `stop` is set."""
        mode = {"rows": "append", "groups": "complete"}.get(gives, "update")
        queries: list[StreamingQuery] = []
        try:
            queries.append(self._start("result", rows, mode, lambda batch: on_batch(iterate(batch, None))))
            for number, table in enumerate(self._read.values()):
                if not table.is_dead_letters:
                    queries.append(self._start_refused(f"refused-{number}", table, on_refused))
            self._watch(queries, stop)
        except AnalysisException as error:
            raise SqlError(f"this can't be computed live: {streaming_sentence(error)}") from error
        finally:
            for query in queries:
                query.stop()

    def _watch(self, queries: Sequence[StreamingQuery], stop: threading.Event) -> None:
        while not stop.wait(_WATCH_EVERY_S):
            for query in queries:
                failed: StreamingQueryException | None = query.exception()
                if failed is not None:
                    raise self._error or FaultError(f"the query failed: {first_line(failed)}") from failed
        if self._error is not None:
            raise self._error

    def _start(
        self,
        name: str,
        rows: DataFrame,
        mode: str,
        act: Callable[[DataFrame], None],
        every: str = "0 seconds",
    ) -> StreamingQuery:
        def on_batch(batch: DataFrame, _batch_id: int) -> None:
            try:
                act(batch)
            except BaseException as error:
                self._error = error
                raise

        return (
            rows.writeStream.queryName(f"{_NAME}-{name}")
            .option("checkpointLocation", f"file://{self.work_dir.absolute() / name}")
            .outputMode(mode)
            .foreachBatch(on_batch)
            .trigger(processingTime=every)
            .start()
        )

    def _start_refused(
        self, name: str, table: Table, on_refused: Callable[[Refused], None]
    ) -> StreamingQuery:
        letters = refused(read_records_stream(self.session, table.topic, self._reader(table)), table.topic)

        def count(batch: DataFrame) -> None:
            found = batch.select("cause").collect()
            if found:
                on_refused(Refused(table=table.name, count=len(found), cause=min(row[0] for row in found)))

        return self._start(name, letters, "append", count, REFUSED_EVERY)

    def _of_changes(self) -> DataFrame:
        """By the same means as a view of the query."""
        view = View(name="this query", query=self.sql, tables=tuple(self._read.values()))
        self.key = shape_of(view).key
        frames = {table.name: self._frame(table) for table in view.tables}
        return view_rows(view, frames)

    def _find(self, name: str) -> DataFrame:
        table = self.catalog.find(name)
        self._read[table.name] = table
        return self._frame(table)

    def _frame(self, table: Table) -> DataFrame:
        # Spark would leave out what comes late, and hold windows back until they have ended.
        return timeless(stream_frame(self.session, table, self._reader(table)), table)

    def _reader(self, table: Table) -> Reader:
        config = self.catalog.config
        span = find_span(config, table.topic.names, begin=self.begin, finish=OPEN)
        starts: dict[str, dict[int, int]] = {}
        if not self.begin.is_open:
            for (topic, partition), offset in span.starts.items():
                starts.setdefault(topic, {})[partition] = offset
        return Reader(name=_NAME, config=config, starts=starts)
