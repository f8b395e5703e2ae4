"""Compute a pipeline's results again from the log, and compare them with what it wrote.

The part of the log is the one that the checkpoint says was processed: from where each source began, up to
the end of the last batch that is done. What was written is all of its topics, as committed readers see them,
or all of its table.

Where something is different, the computation is done once more without what could be to blame: without the
rows that came late, without the records that were dead letters then, or with what a batch that is not done
may have read. If that gives what was written, the cause is known.

When a window of ours ends depends on what was known when: which partitions there were, which of them were
idle, how late rows had been. That can't be computed again. The windows that must have ended in any case must
have been written; of the others, those that were written must be what they hold.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import KW_ONLY, dataclass, replace
from functools import reduce
from operator import or_
from typing import Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows
from pyspark.sql.types import DoubleType, FloatType, StructType

from headrace.config import StreamsConfig
from headrace.errors import PipelineError
from headrace.streams.admin import Cluster
from headrace.streams.arrival_order import ArrivalOrder, in_arrival_order, noted_lookups
from headrace.streams.batch_source import read_frames, read_records
from headrace.streams.checkpoint import checkpoint_path
from headrace.streams.circumstances import circumstances_of, remarks_of
from headrace.streams.comparison import (
    Circumstances,
    Comparison,
    Explanation,
    Kind,
    explain,
    judge,
    judge_left_off,
)
from headrace.streams.describe import columns_of, plan_of
from headrace.streams.failure import first_line
from headrace.streams.history import read_history
from headrace.streams.log_offsets import end_offsets, first_offsets
from headrace.streams.pipeline import Pipeline
from headrace.streams.plan import make_plan
from headrace.streams.plans.results import Results, results_of
from headrace.streams.processed import Processed, find_processed, source_ends
from headrace.streams.progress_log import Batch, has_batch
from headrace.streams.session import start_session, stop_session
from headrace.streams.sinks.records import DELETE_COLUMN
from headrace.streams.spans import Span
from headrace.streams.table_ends import read_table_ends
from headrace.streams.tallies import Tallies, compare, counts_of, with_written
from headrace.streams.topic import METADATA_COLUMN, Topic
from headrace.streams.unended import unended
from headrace.streams.workspace import workspace
from headrace.streams.written import Written, read_written

BY_ARRIVAL: Final = "by arrival order: the table's row was another when the event was joined"
MISSING: Final[frozenset[Kind]] = frozenset({"missing", "changed"})
ADDED: Final[frozenset[Kind]] = frozenset({"unexpected", "duplicate", "changed"})

OnStep = Callable[[str], None]
Alter = Callable[[Topic, DataFrame], DataFrame]


def verify(
    pipeline: Pipeline[Any],
    config: StreamsConfig,
    *,
    others: Sequence[Pipeline[Any]] = (),
    on_step: OnStep = lambda _line: None,
) -> Comparison:
    """Compute again and compare. `others` are pipelines that may write the same topics. Changes nothing."""
    plan = make_plan([pipeline])
    if not has_batch(checkpoint_path(config, pipeline.name)):
        raise PipelineError(
            f"pipeline {pipeline.name} has no checkpoint in {config.checkpoints_dir}, so that nobody knows "
            "what it has processed: run it first, or name another --data"
        )
    with ExitStack() as held:
        work_dir = held.enter_context(workspace(config.data_dir))
        on_step("starting Spark")
        session = start_session(config, slots=os.cpu_count() or 1, work_dir=work_dir)
        held.callback(stop_session, session)
        return verify_in(
            session, pipeline, plan.sources[pipeline.name], config, others=others, on_step=on_step
        )


def verify_in(
    session: SparkSession,
    pipeline: Pipeline[Any],
    sources: Mapping[str, Topic],
    config: StreamsConfig,
    *,
    others: Sequence[Pipeline[Any]] = (),
    on_step: OnStep = lambda _line: None,
) -> Comparison:
    """The same in a session that runs already."""
    verification = _Verification(
        session=session, pipeline=pipeline, sources=sources, config=config, on_step=on_step
    )
    return verification.run([other for other in others if other.name != pipeline.name])


@dataclass(frozen=True, slots=True, kw_only=True)
class Recomputed:
    """What a store should hold and what it holds, as records of one form: `key` and `value` in JSON."""

    expected: DataFrame
    written: DataFrame
    schema: StructType
    """Of the pipeline's rows."""


def recomputed(
    session: SparkSession,
    pipeline: Pipeline[Any],
    sources: Mapping[str, Topic],
    config: StreamsConfig,
    *,
    on_step: OnStep,
    held: ExitStack,
) -> Recomputed:
    """Compute a store's rows again from what was processed. The pipeline must not run."""
    verification = _Verification(
        session=session, pipeline=pipeline, sources=sources, config=config, on_step=on_step
    )
    return verification.recomputed(held)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Verification:
    session: SparkSession
    pipeline: Pipeline[Any]
    sources: Mapping[str, Topic]
    config: StreamsConfig
    on_step: OnStep

    def run(self, others: Sequence[Pipeline[Any]]) -> Comparison:
        with ExitStack() as held:
            return self._run(others, held)

    def _run(self, others: Sequence[Pipeline[Any]], held: ExitStack) -> Comparison:
        # In this order: all that the checkpoint tells of has been written by the time the results are looked
        # at, and all that is written by then was made of records that are there by the time the sources' end
        # is asked for.
        processed = find_processed(self.config, self.pipeline.name, self.sources)
        with noted_lookups() as lookups:
            rows, results = self._rows(processed.spans)
        arrival = self._arrival(processed) if lookups else None
        written = read_written(self.session, self.pipeline, self.config, rows.schema, held)
        opened = {} if processed.is_settled else processed.opened(source_ends(self.config, self.sources))
        self._refuse_uncertain(results, written)
        self.on_step(f"computing again from {processed.offset_count:,} offsets of the log")
        computed, results = self._as_records(written, rows, results)
        tallies = compare(computed, written.records, results)
        if results.is_windowed and tallies.has("unexpected"):
            self.on_step("computing windows that had not to end yet")
            ended = self.compute(written, processed.spans, ended=True)
            tallies = compare(
                with_written(computed, ended, written.records, results), written.records, results
            )
        history = read_history(self.config, self.pipeline.name)
        circumstances = replace(
            circumstances_of(self.pipeline, history, results, others),
            results_deleted=written.deleted(),
            in_progress=results.way != "rows" and _is_longer(opened, processed.spans),
            deletes_results=results.way == "latest" and DELETE_COLUMN in rows.columns,
            arrival_unknown=_arrival_unknown(arrival, lookups),
        )
        search = _Search(
            self,
            written=written,
            processed=processed,
            opened=opened,
            known=circumstances,
            arrival=arrival,
        )
        explanations = search.explanations(tallies, results) if tallies.different else []
        left_off = judge_left_off(tallies.left_off, circumstances)
        if tallies.left_off and search.is_by_arrival(results):
            left_off = {"expected": sum(tallies.left_off.values())}
        return Comparison(
            way=results.way,
            computed_count=tallies.computed_count,
            written_count=tallies.written_count,
            differences=tuple(judge(tallies.different, explanations, circumstances)),
            left_off=left_off,
            remarks=(*remarks_of(history, results, processed), *written.remarks(rows, results)),
        )

    def recomputed(self, held: ExitStack) -> Recomputed:
        processed = find_processed(self.config, self.pipeline.name, self.sources, is_locked=True)
        if not processed.is_settled:
            raise PipelineError(
                f"the last batch of pipeline {self.pipeline.name} is not finished: run the pipeline until it "
                "is, and stop it"
            )
        rows, results = self._rows(processed.spans)
        written = read_written(self.session, self.pipeline, self.config, rows.schema, held)
        self._refuse_uncertain(results, written)
        self.on_step(f"computing again from {processed.offset_count:,} offsets of the log")
        expected, _ = self._as_records(written, rows, results)
        columns = [field for field in rows.schema.fields if field.name != METADATA_COLUMN]
        return Recomputed(expected=expected, written=written.records, schema=StructType(columns))

    def _arrival(self, processed: Processed) -> ArrivalOrder:
        topics = [name for topic in self.sources.values() for name in topic.names]
        ends = read_table_ends(checkpoint_path(self.config, self.pipeline.name), topics)
        return ArrivalOrder.of(processed.log, processed.batches, ends)

    def compute(
        self,
        written: Written,
        spans: Mapping[str, Span],
        alter: Alter = lambda _topic, rows: rows,
        *,
        ended: bool = False,
    ) -> DataFrame:
        """The records that the pipeline makes of these parts of the log; `ended` as if nothing came after."""
        records, _ = self._as_records(written, *self._rows(spans, alter, ended=ended))
        return records

    def _rows(
        self,
        spans: Mapping[str, Span],
        alter: Alter = lambda _topic, rows: rows,
        *,
        ended: bool = False,
    ) -> tuple[DataFrame, Results]:
        frames = {
            parameter: alter(self.sources[parameter], frame)
            for parameter, frame in read_frames(self.session, self.sources, spans, self.config).items()
        }
        with self._explained(), nullcontext() if ended else unended():
            rows = self.pipeline.build(frames)
            marks = {field.name: field.metadata for field in rows.schema.fields}
            results = results_of(plan_of(rows), columns_of(frames), marks)
        return rows, replace(results, approximate=_floats(rows) if results.way != "rows" else ())

    def _as_records(self, written: Written, rows: DataFrame, results: Results) -> tuple[DataFrame, Results]:
        with self._explained():
            return written.computed(rows, results)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except AnalysisException as error:
            raise PipelineError(
                f"pipeline {self.pipeline.name} can't be computed in batch: {first_line(error)}"
            ) from error

    def _refuse_uncertain(self, results: Results, written: Written) -> None:
        keys = {*written.keys, *results.identity}
        by_key = {cause for name in keys for cause in results.uncertain.get(name, ())}
        causes = sorted(results.uncertain_rows | by_key)
        if causes:
            raise PipelineError(
                f"pipeline {self.pipeline.name} can't be verified: which rows it writes, or their keys, is "
                f"decided by {' and '.join(causes)} and can't be computed a second time"
            )


@dataclass(frozen=True, slots=True)
class _Search:
    """Looks for what accounts for differences, by computing from other input."""

    verification: _Verification
    _: KW_ONLY
    written: Written
    processed: Processed
    opened: Mapping[str, Span]
    known: Circumstances
    arrival: ArrivalOrder | None
    """In which order rows came, where that matters."""

    def explanations(self, tallies: Tallies, results: Results) -> list[Explanation]:
        """What could be found out."""
        found = []
        kinds = {each.kind for each in tallies.different}
        spans, on_step = self.processed.spans, self.verification.on_step
        if self.arrival is not None:
            on_step("joining again in the order in which rows came")
            with in_arrival_order(self.arrival):
                found.append(self._explain(tallies, results, spans, kinds=ADDED | MISSING, cause=BY_ARRIVAL))
        added = ADDED | MISSING if self.known.deletes_results else ADDED
        if kinds & added and _is_longer(self.opened, spans):
            on_step("looking for results of a batch that is not finished")
            cause = "of records that came after the last finished batch"
            found.append(self._explain(tallies, results, self.opened, kinds=added, cause=cause))
        late = _late_rows(self.processed, self.verification.sources) if self.known.drops_late_rows else {}
        if kinds & MISSING and late:
            on_step("looking for rows that came late")
            cause = "rows of it came behind the watermark, and were left out"
            alter = _without(late)
            found.append(self._explain(tallies, results, spans, kinds=MISSING, cause=cause, alter=alter))
        dead = self._dead_letters() if kinds & MISSING else None
        if dead is not None:
            on_step("looking for records that were dead letters")
            cause = "its record is among the dead letters: it could not be decoded when it was processed"
            alter = _leave_out(dead)
            found.append(self._explain(tallies, results, spans, kinds=MISSING, cause=cause, alter=alter))
        return found

    def is_by_arrival(self, results: Results) -> bool:
        """Whether the order in which rows came accounts for everything."""
        if self.arrival is None:
            return False
        with in_arrival_order(self.arrival):
            computed = self.verification.compute(self.written, self.processed.spans)
            return not compare(computed, self.written.records, results).different

    def _explain(
        self,
        tallies: Tallies,
        results: Results,
        spans: Mapping[str, Span],
        *,
        kinds: frozenset[Kind],
        cause: str,
        alter: Alter = lambda _topic, rows: rows,
    ) -> Explanation:
        computed = self.verification.compute(self.written, spans, alter)
        return explain(
            tallies.different,
            counts_of(computed, tallies.different, results),
            by_key=results.way == "latest",
            cause=cause,
            kinds=kinds,
            judgement="expected",
        )

    def _dead_letters(self) -> DataFrame | None:
        """The places of the records that are dead letters; None if there are none."""
        session, config = self.verification.session, self.verification.config
        sources = self.verification.sources.values()
        cluster = Cluster(config)
        counts = cluster.partition_counts()
        topics = {f"{name}.dead-letters" for topic in sources for name in topic.names} & counts.keys()
        places = [(topic, partition) for topic in topics for partition in range(counts[topic])]
        span = Span(starts=first_offsets(cluster, places), ends=end_offsets(cluster, places))
        if not span.offset_count:
            return None
        letters = read_records(session, span, config)
        return letters.select(
            _told("topic").alias("topic"),
            _told("partition").cast("int").alias("partition"),
            _told("offset").cast("bigint").alias("offset"),
        ).distinct()


def _told(name: str) -> Column:
    """What a dead letter says of its record. The record may have had a header of that name: ours is last."""
    found = F.filter("headers", lambda header: header["key"] == f"headrace.{name}")
    return F.try_element_at(found, F.lit(-1))["value"].cast("string")


def _arrival_unknown(arrival: ArrivalOrder | None, lookups: Sequence[bool]) -> str | None:
    """Why the order in which rows came is not known in full."""
    if arrival is None:
        return None
    if not all(lookups):
        return "where rows of the join came from is not known"
    return None if arrival.is_whole else "the checkpoint does not tell of the first batches any more"


def _is_longer(spans: Mapping[str, Span], than: Mapping[str, Span]) -> bool:
    return any(span.offset_count > than[parameter].offset_count for parameter, span in spans.items())


def _leave_out(places: DataFrame) -> Alter:
    def alter(_topic: Topic, rows: DataFrame) -> DataFrame:
        same = [
            rows[METADATA_COLUMN][name].eqNullSafe(places[name]) for name in ("topic", "partition", "offset")
        ]
        return rows.join(F.broadcast(places), same, "left_anti")

    return alter


def _floats(rows: DataFrame) -> tuple[str, ...]:
    """Columns whose last digits depend on the order in which an aggregate met its rows."""
    return tuple(
        each.name for each in rows.schema.fields if isinstance(each.dataType, DoubleType | FloatType)
    )


def _without(late: Mapping[str, Column]) -> Alter:
    def alter(topic: Topic, rows: DataFrame) -> DataFrame:
        return rows.where(~F.coalesce(late[topic.name], F.lit(False))) if topic.name in late else rows

    return alter


def _late_rows(processed: Processed, sources: Mapping[str, Topic]) -> dict[str, Column]:
    """By topic: whether a row was behind the watermark when its batch was run, as far as that is known."""
    late = {}
    for topic in sources.values():
        if topic.event_time is None or topic.watermark is None:
            continue
        batches = [
            is_late
            for batch in processed.batches
            if (is_late := _is_late(processed, batch, topic)) is not None
        ]
        if batches:
            late[topic.name] = reduce(or_, batches)
    return late


def _is_late(processed: Processed, batch: Batch, topic: Topic) -> Column | None:
    """Spark leaves out of a batch what is behind the watermark of the batch before it."""
    starts = processed.log.start_of(batch)
    before = [each.watermark_ms for each in processed.log.batches if each.number == batch.number - 1]
    if starts is None or not before or before[0] <= 0:
        return None
    begins = {place: offset for source in starts for place, offset in source.items()}
    origin, offset = F.col(f"{METADATA_COLUMN}.topic"), F.col(f"{METADATA_COLUMN}.offset")
    number = F.col(f"{METADATA_COLUMN}.partition")
    parts = [
        (origin == name)
        & (number == partition)
        & (offset >= begins.get((name, partition), 0))
        & (offset < end)
        for source in batch.ends
        for (name, partition), end in source.items()
        if name in topic.names
    ]
    if not parts:
        return None
    watermark = F.timestamp_millis(F.lit(before[0]))
    return reduce(or_, parts) & (F.col(str(topic.event_time)) < watermark)
