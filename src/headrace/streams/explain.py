"""What a pipeline did with time: what `headrace explain` shows. Changes nothing.

The rows that came to each operator are computed once more from the log, in batch, by the pipeline's own
function; then the operator's own logic steps over them, cut into micro-batches as the checkpoint says they
were (see timeline/trace.py). Where the first of them is not the pipeline's first, the watermark is
taken from the state that the checkpoint keeps of the batch before.

Without a checkpoint, micro-batches of ASSUMED_BATCH_ROWS are assumed, in the order of the log.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

from headrace.config import StreamsConfig
from headrace.errors import ConfigError, PipelineError
from headrace.streams.admin import Cluster
from headrace.streams.batch_source import read_frames
from headrace.streams.buckets.operator import arrow_schema
from headrace.streams.buckets.sources import Longs, has_places
from headrace.streams.buckets.tables import OPERATOR_KEY, read_table
from headrace.streams.building import Building, Noted, build_stream, note_batch
from headrace.streams.checkpoint import checkpoint_path
from headrace.streams.describe import describe_rows
from headrace.streams.failure import first_line
from headrace.streams.history import read_history
from headrace.streams.keyed.fields import TIME
from headrace.streams.log_offsets import existing_places, find_span, first_offsets
from headrace.streams.pipeline import Pipeline
from headrace.streams.pipeline_words import pipeline_words, run_words
from headrace.streams.plan import make_plan
from headrace.streams.plans import Description
from headrace.streams.progress_log import ProgressLog, has_batch, read_progress_log
from headrace.streams.recognise import ARGUMENT_PREFIX
from headrace.streams.session import start_session, stop_session
from headrace.streams.source import Reader, read_stream
from headrace.streams.spans import OPEN, Bound, Span, missing_records
from headrace.streams.state import state_tables
from headrace.streams.timeline.cuts import (
    Cut,
    assumed_batches,
    batches_of,
    cuts_in,
    last_cuts,
    real_cuts,
    span_of,
)
from headrace.streams.timeline.operators import Traced, WindowLogic
from headrace.streams.timeline.timeline import Row, Timeline
from headrace.streams.timeline.trace import trace
from headrace.streams.topic import Topic
from headrace.streams.windows.results import WATERMARK
from headrace.streams.workspace import workspace

LIMIT: Final = 10_000
"""How many offsets of the log are looked at where nothing is said."""
BATCH_OFFSETS_MAX: Final = 200_000
"""A micro-batch with more is not looked at unless asked for: all of its rows come to this process."""
ASSUMED_BATCH_ROWS: Final = 100

OnStep = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Which part of the log is asked for. Whole micro-batches are shown that have something of it."""

    begin: Bound = OPEN
    finish: Bound = OPEN
    limit: int = LIMIT
    """How many offsets at most; without bounds, the last ones."""

    @property
    def is_all(self) -> bool:
        """Whether it has no bounds."""
        return self.begin.is_open and self.finish.is_open


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What a pipeline is, and what it did with time."""

    pipeline: str
    words: tuple[str, ...]
    timelines: tuple[Timeline, ...]
    notes: tuple[str, ...] = ()
    """What a reader must know."""

    def find(self, topic: str, partition: int, offset: int) -> list[tuple[Timeline, Row]]:
        """What became of a record: of each row that was made of it, in each operator."""
        return [
            (timeline, row)
            for timeline in self.timelines
            for row in timeline.rows
            if (row.topic, row.partition, row.offset) == (topic, partition, offset)
        ]


def explain(
    pipeline: Pipeline[Any],
    config: StreamsConfig,
    *,
    asked: Asked | None = None,
    on_step: OnStep = lambda _line: None,
) -> Explanation:
    """Explain what the pipeline is, and what it did with a part of the log."""
    sources = make_plan([pipeline]).sources[pipeline.name]
    with ExitStack() as held:
        work_dir = held.enter_context(workspace(config.data_dir))
        on_step("starting Spark")
        session = start_session(config, slots=os.cpu_count() or 1, work_dir=work_dir)
        held.callback(stop_session, session)
        return explain_in(session, pipeline, sources, config, asked=asked, on_step=on_step)


def explain_in(
    session: SparkSession,
    pipeline: Pipeline[Any],
    sources: Mapping[str, Topic],
    config: StreamsConfig,
    *,
    asked: Asked | None = None,
    on_step: OnStep = lambda _line: None,
) -> Explanation:
    """The same in a session that runs already."""
    work = _Explaining(session=session, pipeline=pipeline, sources=sources, config=config)
    description, building = work.stream()
    traced = [_traced(noted) for noted in building.noted]
    checkpoint = checkpoint_path(config, pipeline.name)
    log = read_progress_log(checkpoint) if has_batch(checkpoint) else None
    words = (
        *pipeline_words(pipeline, sources, description, [*building.operators.values()], traced),
        run_words(str(checkpoint), log, read_history(config, pipeline.name)),
    )
    shown = [each for each in traced if each.policy is not None or isinstance(each.logic, WindowLogic)]
    if not shown:
        note = "nothing in it waits for event time, so there is no picture of it"
        return Explanation(pipeline=pipeline.name, words=words, timelines=(), notes=(note,))
    part = work.part(log, asked or Asked())
    on_step(f"reading {part.span.offset_count:,} offsets of the log")
    rows = work.rows(part.span)
    on_step("stepping through them")
    timelines = tuple(work.timeline(each, rows[each.name], part) for each in shown if each.name in rows)
    lost = [each.name for each in shown if each.name not in rows]
    return Explanation(
        pipeline=pipeline.name,
        words=words,
        timelines=timelines,
        notes=(*part.notes, *map(_placeless, lost)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """What is looked at of the log."""

    span: Span
    cuts: tuple[Cut, ...]
    """None of them where micro-batches are assumed."""
    notes: tuple[str, ...]

    def batches(self, rows: pa.Table) -> tuple[Longs, list[int]]:
        """Which micro-batch each row came with, and the numbers of all."""
        if self.cuts:
            return batches_of(rows, self.cuts), [cut.batch for cut in self.cuts]
        found = assumed_batches(rows, ASSUMED_BATCH_ROWS) if len(rows) else np.zeros(0, np.int64)
        return found, list(range(int(found.max(initial=-1)) + 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Explaining:
    session: SparkSession
    pipeline: Pipeline[Any]
    sources: Mapping[str, Topic]
    config: StreamsConfig

    @property
    def topics(self) -> list[str]:
        return sorted({name for topic in self.sources.values() for name in topic.names})

    def stream(self) -> tuple[Description, Building]:
        """What the pipeline is as a stream; nothing is run."""
        reader = Reader(name=self.pipeline.name, config=self.config)
        frames = {
            parameter: read_stream(self.session, topic, reader) for parameter, topic in self.sources.items()
        }
        try:
            rows, building = build_stream(self.pipeline, frames, self.config)
            described = describe_rows(rows, frames, self.sources, self.config, building.operators)
        except AnalysisException as error:
            raise PipelineError(f"pipeline {self.pipeline.name} can't run: {first_line(error)}") from error
        return described, building

    def part(self, log: ProgressLog | None, asked: Asked) -> _Part:
        """Which part of the log is looked at."""
        span = find_span(self.config, self.topics, begin=asked.begin, finish=asked.finish)
        cuts = [] if log is None else real_cuts(log)
        if not cuts:
            return self._assumed(span, asked)
        chosen = last_cuts(cuts, asked.limit) if asked.is_all else cuts_in(cuts, span)
        if not chosen:
            raise ConfigError(
                f"no batch of {self.pipeline.name} lies in that part of the log: its checkpoint tells of "
                f"batches {cuts[0].batch} to {cuts[-1].batch}; choose another --from and --to"
            )
        limit = max(asked.limit, BATCH_OFFSETS_MAX if asked.is_all else 0)
        _refuse_large(sum(cut.offset_count for cut in chosen), limit)
        return self._known(chosen, left_out=len(cuts) - len(chosen) if asked.is_all else 0)

    def _assumed(self, whole: Span, asked: Asked) -> _Part:
        span = _last_offsets(whole, asked.limit) if asked.is_all else whole
        _refuse_large(span.offset_count, max(asked.limit, len(span.starts)))
        name = self.pipeline.name
        notes = [f"no batch of {name} is done: micro-batches of {ASSUMED_BATCH_ROWS} rows are assumed"]
        if span.offset_count < whole.offset_count:
            notes.append(
                f"of {whole.offset_count:,} offsets of the log the last {span.offset_count:,} are shown: say "
                "--limit for more"
            )
        return _Part(span=span, cuts=(), notes=tuple(notes))

    def _known(self, cuts: Sequence[Cut], *, left_out: int) -> _Part:
        whole = span_of(cuts)
        cluster = Cluster(self.config)
        firsts = first_offsets(cluster, existing_places(cluster, self.topics))
        missing = missing_records(whole, firsts)
        notes = [
            f"partition {partition} of {topic} begins at offset {offset} by now: what was before is not shown"
            for (topic, partition), offset in sorted(missing.items())
        ]
        if cuts[0].batch > 0:
            more = ", say --limit for more" if left_out else ""
            notes.append(
                f"shown from batch {cuts[0].batch} on{more}: windows have no rows here that came before"
            )
        span = Span(starts={**whole.starts, **missing}, ends=whole.ends)
        return _Part(span=span, cuts=tuple(cuts), notes=tuple(notes))

    def rows(self, span: Span) -> dict[str, pa.Table]:
        """The rows that came to each operator, of those whose rows tell where they came from."""
        spans = {parameter: span.of(topic.names) for parameter, topic in self.sources.items()}
        try:
            frames = read_frames(self.session, self.sources, spans, self.config)
            building = note_batch(self.pipeline, frames, self.config)
            return {noted.name: table for noted in building.noted for table in _collected(noted)}
        except PySparkException as error:
            raise PipelineError(
                f"pipeline {self.pipeline.name} can't be computed in batch: {first_line(error)}"
            ) from error

    def timeline(self, operator: Traced, rows: pa.Table, part: _Part) -> Timeline:
        """What happened in an operator."""
        batches, numbers = part.batches(rows)
        tracked: pa.Table | None = None
        notes: tuple[str, ...] = ()
        if part.cuts and part.cuts[0].batch > 0 and operator.policy is not None:
            tracked, notes = self._watermark_before(operator.name, part.cuts[0].batch)
        return replace(trace(operator, rows, batches, numbers, tracked), notes=notes)

    def _watermark_before(self, operator: str, batch: int) -> tuple[pa.Table | None, tuple[str, ...]]:
        """The operator's table of the watermark after the batch before; and what is to be said of it."""
        checkpoint = checkpoint_path(self.config, self.pipeline.name)
        try:
            for name, blob in state_tables(self.session, checkpoint, batch - 1):
                if name in {WATERMARK, TIME}:
                    table = read_table(blob)
                    if table.schema.metadata[OPERATOR_KEY].decode() == operator:
                        return table, ()
        except PySparkException as error:
            problem = first_line(error)
        else:
            problem = "it has none"
        note = (
            f"the state of {operator} after batch {batch - 1} can't be read ({problem}), so its watermark "
            "begins anew: rows that were late by an earlier one are shown as in time"
        )
        return None, (note,)


def _traced(noted: Noted) -> Traced:
    known = tuple(name for name in noted.by if not name.startswith(ARGUMENT_PREFIX))
    return Traced(name=noted.name, logic=noted.logic, by=known, event_time=noted.event_time)


def _collected(noted: Noted) -> Iterator[pa.Table]:
    schema = arrow_schema(noted.rows.schema)
    if has_places(schema):
        yield noted.rows.toArrow().cast(schema)


def _placeless(operator: str) -> str:
    return (
        f"the rows of {operator} don't tell where they came from, because the column _kafka was left out: "
        "keep it in select(...) to see their time"
    )


def _last_offsets(span: Span, count: int) -> Span:
    """The last offsets of each partition, about so many of all."""
    share = max(count // max(len(span.starts), 1), 1)
    starts = {place: max(start, span.ends[place] - share) for place, start in span.starts.items()}
    return Span(starts=starts, ends=span.ends)


def _refuse_large(count: int, limit: int) -> None:
    if count > limit:
        raise ConfigError(
            f"that part of the log has {count:,} offsets, and {limit:,} are looked at at most: choose less "
            f"with --from and --to, or say --limit {count}"
        )
