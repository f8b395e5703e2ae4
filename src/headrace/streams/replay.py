"""Compute a pipeline over a part of the log once more, in batch, into a new topic or table.

The live pipeline, its checkpoint and its results are not touched.

Results are written exactly once: a replay that was interrupted is gone on with by calling it again, with the
part of the log that it was begun with (see replay_note.py). One that fails before its pipeline is built has
begun nothing.

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

from headrace.config import StreamsConfig, failpoints_to_arm
from headrace.errors import ConfigError, PipelineError
from headrace.failpoints import arm_all
from headrace.streams.batch_source import read_frames
from headrace.streams.checkpoint import lock_checkpoint
from headrace.streams.client_options import portable_options
from headrace.streams.code import fingerprint
from headrace.streams.describe import plan_of
from headrace.streams.failure import first_line
from headrace.streams.log_offsets import find_span
from headrace.streams.pipeline import Pipeline
from headrace.streams.plan import make_plan
from headrace.streams.plans.results import is_row_by_row
from headrace.streams.replay_into import Destination, destination, query_of
from headrace.streams.replay_note import ReplayNote, note_path, read_note, remove_note, write_note
from headrace.streams.session import start_session, stop_session
from headrace.streams.sinks.context import WriteContext
from headrace.streams.spans import OPEN, Bound, Span, pieces_of
from headrace.streams.topic import Topic
from headrace.streams.workspace import workspace

PIECE_OFFSETS_MAX: Final = 5_000_000
"""How much of the log is replayed at once, where rows are treated one by one."""

OnStep = Callable[[str], None]
OnProgress = Callable[[int, int], None]
"""Is told how many offsets of how many are done, after each part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What a replay has done."""

    offset_count: int
    """How much of the log it has read. Transactions have markers, so that records may be fewer."""
    row_count: int
    """How many results were written, by this call and by those before it that were interrupted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """A pipeline, and the new topic or table that it is replayed into."""

    pipeline: Pipeline[Any]
    sources: Mapping[str, Topic]
    into: str
    config: StreamsConfig
    on_step: OnStep = lambda _line: None
    on_progress: OnProgress = lambda _done, _total: None

    @property
    def destination(self) -> Destination:
        """Where it writes."""
        return destination(self.pipeline, self.sources, self.into, self.config)

    @property
    def query(self) -> str:
        """What the replay is known by: its lock, its note, its transactions."""
        return query_of(self.pipeline.name, self.destination.name)

    def begin(self, *, begin: Bound = OPEN, finish: Bound = OPEN) -> ReplayNote:
        """Decide what is replayed; or go on with what was begun."""
        note = read_note(self.config, self.query)
        code, bounds = fingerprint(self.pipeline.function), (str(begin), str(finish))
        if note is not None:
            self._refuse_other(note, code, bounds)
            return note
        self.destination.refuse_used()
        names = sorted({name for topic in self.sources.values() for name in topic.names})
        span = find_span(self.config, names, begin=begin, finish=finish)
        return ReplayNote(id=secrets.token_hex(16), code=code, stage="replaying", span=span, bounds=bounds)

    def run(self, session: SparkSession, note: ReplayNote) -> Replayed:
        """Compute and write what is not written yet."""
        span = note.span
        assert span is not None, "a replay in batch knows its part of the log"
        # What was begun may be written, in part or whole, without a note of it: a writer does not count that.
        is_resumed = note.piece_count > 0
        if not is_resumed:
            _, by_row = self._rows(session, span)
            count = -(-span.offset_count // PIECE_OFFSETS_MAX) if by_row else 1
            note = self._keep(replace(note, piece_count=max(count, 1)))
        self.destination.make()
        write, close = self.destination.open(self._context(note))
        try:
            pieces = pieces_of(span, note.piece_count)
            done = sum(piece.offset_count for piece in pieces[: note.pieces_done])
            for number in range(note.pieces_done, note.piece_count):
                self._tell(pieces[number], number, note.piece_count)
                self.on_progress(done, span.offset_count)
                rows, _ = self._rows(session, pieces[number])
                row_count = write(rows, number)
                if is_resumed:
                    row_count, is_resumed = self.destination.count(rows), False
                note = self._keep(replace(note, pieces_done=number + 1, row_count=note.row_count + row_count))
                done += pieces[number].offset_count
        finally:
            close()
        self.on_progress(span.offset_count, span.offset_count)
        remove_note(self.config, self.query)
        return Replayed(offset_count=span.offset_count, row_count=note.row_count)

    def _refuse_other(self, note: ReplayNote, code: str | None, bounds: tuple[str, str]) -> None:
        """Refuse what the replay was not begun with."""
        begun = f"a replay of {self.pipeline.name} into {self.destination.name} was begun"
        anew = f"delete what it has written and {note_path(self.config, self.query)}"
        if note.code != code:
            raise ConfigError(f"{begun} by other code and is not finished: {anew}, or restore the code")
        if note.bounds is not None and note.bounds != bounds:
            given = [
                f"{option} {words}" if words else f"no {option}"
                for option, words in zip(("--from", "--to"), note.bounds, strict=True)
            ]
            raise ConfigError(
                f"{begun} with {' and '.join(given)}, and is not finished: give the same to go on with it, "
                f"or {anew} to begin anew"
            )

    def _tell(self, piece: Span, number: int, count: int) -> None:
        part = f" (part {number + 1} of {count})" if count > 1 else ""
        self.on_step(f"replaying {piece.offset_count:,} offsets of the log{part}")

    def _keep(self, note: ReplayNote) -> ReplayNote:
        write_note(self.config, self.query, note)
        return note

    def _rows(self, session: SparkSession, span: Span) -> tuple[DataFrame, bool]:
        """What is to be written, and whether each row was treated by itself."""
        pipeline = self.pipeline
        spans = {parameter: span.of(topic.names) for parameter, topic in self.sources.items()}
        frames = read_frames(session, self.sources, spans, self.config)
        try:
            rows = pipeline.build(frames)
            return self.destination.prepared(rows), is_row_by_row(plan_of(rows))
        except AnalysisException as error:
            raise PipelineError(
                f"pipeline {pipeline.name} can't be computed in batch: {first_line(error)}"
            ) from error

    def _context(self, note: ReplayNote) -> WriteContext:
        return WriteContext(
            pipeline=self.query,
            query_id=note.id,
            bootstrap=self.config.bootstrap,
            client_options=portable_options(self.config.client_options),
            guarantee="exactly-once",
            transaction_s_max=self.config.transaction_s_max,
        )


def replay(
    pipeline: Pipeline[Any],
    config: StreamsConfig,
    into: str,
    *,
    begin: Bound = OPEN,
    finish: Bound = OPEN,
    on_step: OnStep = lambda _line: None,
    on_progress: OnProgress = lambda _done, _total: None,
) -> Replayed:
    """Compute the pipeline over a part of the log, and write the results to a new topic or table.

    `into` names what the pipeline writes: a topic, `schema.table`, or the directory of a Delta table.
    """
    sources = make_plan([pipeline]).sources[pipeline.name]
    made = Replay(
        pipeline=pipeline,
        sources=sources,
        into=into,
        config=config,
        on_step=on_step,
        on_progress=on_progress,
    )
    arm_all(failpoints_to_arm())
    with ExitStack() as held:
        lock_checkpoint(config, made.query, held)
        note = made.begin(begin=begin, finish=finish)
        work_dir = held.enter_context(workspace(config.data_dir))
        on_step("starting Spark")
        session = start_session(config, slots=os.cpu_count() or 1, work_dir=work_dir)
        held.callback(stop_session, session)
        return made.run(session, note)
