"""Compute a pipeline over a part of the log once more, in batch, into a new topic.

The live pipeline, its checkpoint and its results are not touched.

Results are written exactly once: a replay that was interrupted is gone on with by calling it again, with the
part of the log that it was begun with (see replay_note.py).

Pipelines that treat each row by itself are replayed piece by piece, so that no transaction gets too long for
the broker. What has to see all rows at once is replayed in one piece.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

from headrace.config import StreamsConfig, check_topic_name
from headrace.errors import ConfigError, PipelineError
from headrace.streams.admin import Cluster, ensure_topics
from headrace.streams.batch_source import read_frames
from headrace.streams.checkpoint import lock_checkpoint
from headrace.streams.client_options import portable_options
from headrace.streams.code import fingerprint
from headrace.streams.describe import plan_of
from headrace.streams.failure import first_line
from headrace.streams.log_offsets import end_offsets, find_span, first_offsets
from headrace.streams.pipeline import Pipeline
from headrace.streams.plan import DEFAULT_PARTITION_COUNT, make_plan
from headrace.streams.plans.results import is_row_by_row
from headrace.streams.replay_note import ReplayNote, note_path, read_note, remove_note, write_note
from headrace.streams.results_topic import results_topic
from headrace.streams.session import start_session, stop_session
from headrace.streams.sinks.context import WriteContext
from headrace.streams.sinks.records import to_records
from headrace.streams.sinks.writers import topic_writer
from headrace.streams.spans import OPEN, Bound, Span, pieces_of
from headrace.streams.topic import Topic
from headrace.streams.workspace import workspace

PIECE_OFFSETS_MAX: Final = 5_000_000
"""How much of the log is replayed at once, where rows are treated one by one."""

OnStep = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What a replay has done."""

    offset_count: int
    """How much of the log it has read. Transactions have markers, so that records may be fewer."""
    row_count: int
    """How many results were written, by this call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """A pipeline, and the new topic that it is replayed into."""

    pipeline: Pipeline[Any]
    sources: Mapping[str, Topic]
    into: str
    config: StreamsConfig
    on_step: OnStep = lambda _line: None

    @property
    def query(self) -> str:
        """What the replay is known by: its lock, its note, its transactions."""
        return f"replay.{self.pipeline.name}.{self.into}"

    @property
    def topic(self) -> Topic:
        """Where the live pipeline writes."""
        return results_topic(self.pipeline, "replayed into another one")

    def begin(self, *, begin: Bound = OPEN, finish: Bound = OPEN) -> ReplayNote:
        """Decide what is replayed and make the topics; or go on with what was begun."""
        note = read_note(self.config, self.query)
        code = fingerprint(self.pipeline.function)
        if note is None:
            self._refuse_used_topics()
            names = sorted({name for topic in self.sources.values() for name in topic.names})
            span = find_span(self.config, names, begin=begin, finish=finish)
            note = ReplayNote(id=secrets.token_hex(16), code=code, stage="replaying", span=span)
            write_note(self.config, self.query, note)
        elif note.code != code:
            raise ConfigError(
                f"a replay of {self.pipeline.name} into {self.into} was begun by other code and is not "
                f"finished: delete the topic and {note_path(self.config, self.query)}, or restore the code"
            )
        ensure_topics(self.config, self._partition_counts())
        return note

    def run(self, session: SparkSession, note: ReplayNote) -> Replayed:
        """Compute and write what is not written yet."""
        span = note.span
        assert span is not None, "a replay in batch knows its part of the log"
        if not note.piece_count:
            _, by_row = self._records(session, span)
            count = -(-span.offset_count // PIECE_OFFSETS_MAX) if by_row else 1
            note = self._keep(replace(note, piece_count=max(count, 1)))
        writer = topic_writer(Topic(name=self.into), self._context(note))
        row_count = 0
        try:
            pieces = pieces_of(span, note.piece_count)
            for number in range(note.pieces_done, note.piece_count):
                part = f" (part {number + 1} of {note.piece_count})" if note.piece_count > 1 else ""
                self.on_step(f"replaying {pieces[number].offset_count:,} offsets of the log{part}")
                records, _ = self._records(session, pieces[number])
                row_count += writer.write_records(records, number)
                note = self._keep(replace(note, pieces_done=number + 1))
        finally:
            writer.close()
        remove_note(self.config, self.query)
        return Replayed(offset_count=span.offset_count, row_count=row_count)

    def _keep(self, note: ReplayNote) -> ReplayNote:
        write_note(self.config, self.query, note)
        return note

    def _records(self, session: SparkSession, span: Span) -> tuple[DataFrame, bool]:
        """What is to be written, and whether each row was treated by itself."""
        pipeline = self.pipeline
        spans = {parameter: span.of(topic.names) for parameter, topic in self.sources.items()}
        frames = read_frames(session, self.sources, spans, self.config)
        try:
            rows = pipeline.build(frames)
            by_row = is_row_by_row(plan_of(rows))
            records = to_records(rows, self.topic, pipeline=pipeline.name, side_outputs=pipeline.side_outputs)
        except AnalysisException as error:
            raise PipelineError(
                f"pipeline {pipeline.name} can't be computed in batch: {first_line(error)}"
            ) from error
        is_main = F.col("topic") == self.topic.name
        target = F.when(is_main, self.into).otherwise(F.concat(F.lit(f"{self.into}."), "topic"))
        return records.withColumn("topic", target), by_row

    def _context(self, note: ReplayNote) -> WriteContext:
        return WriteContext(
            pipeline=self.query,
            query_id=note.id,
            bootstrap=self.config.bootstrap,
            client_options=portable_options(self.config.client_options),
            guarantee="exactly-once",
            transaction_s_max=self.config.transaction_s_max,
        )

    def _targets(self) -> dict[str, Topic]:
        """Where the results of each topic go: those of side outputs beside the new topic, by its name."""
        sides = {f"{self.into}.{side.name}": side for side in self.pipeline.side_outputs}
        return {self.into: self.topic} | sides

    def _partition_counts(self) -> dict[str, int]:
        """As many partitions as the live topics have, so that a key stays where it is."""
        existing = Cluster(self.config).partition_counts()
        return {
            target: existing.get(topic.name) or topic.partitions or DEFAULT_PARTITION_COUNT
            for target, topic in self._targets().items()
        }

    def _refuse_used_topics(self) -> None:
        live = {topic.name for topic in self.pipeline.outputs}
        live |= {name for topic in self.sources.values() for name in topic.names}
        cluster = Cluster(self.config)
        existing = cluster.partition_counts()
        for target in self._targets():
            check_topic_name(target)
            if target in live:
                raise ConfigError(
                    f"pipeline {self.pipeline.name} itself reads or writes {target}: name a new topic"
                )
            places = [(target, number) for number in range(existing.get(target, 0))]
            if Span(starts=first_offsets(cluster, places), ends=end_offsets(cluster, places)).offset_count:
                raise ConfigError(
                    f"the topic {target} has records already: name a new one, or delete it with "
                    f"`headrace topics delete {target}`"
                )


def replay(
    pipeline: Pipeline[Any],
    config: StreamsConfig,
    into: str,
    *,
    begin: Bound = OPEN,
    finish: Bound = OPEN,
    on_step: OnStep = lambda _line: None,
) -> Replayed:
    """Compute the pipeline over a part of the log, and write the results to a new topic."""
    sources = make_plan([pipeline]).sources[pipeline.name]
    made = Replay(pipeline=pipeline, sources=sources, into=into, config=config, on_step=on_step)
    with ExitStack() as held:
        lock_checkpoint(config, made.query, held)
        note = made.begin(begin=begin, finish=finish)
        work_dir = held.enter_context(workspace(config.data_dir))
        on_step("starting Spark")
        session = start_session(config, slots=os.cpu_count() or 1, work_dir=work_dir)
        held.callback(stop_session, session)
        return made.run(session, note)
