"""What operators are told, and tell, while a pipeline's DataFrame is being built for a stream.

An operator with state of its own is more than Spark's plan shows: Python functions keep what it counts, and
rows that come too late leave it by another way than its results. So whoever builds a pipeline opens a
`Building`, in which operators note what they keep and where such rows go. In batch, and where somebody
builds a query by hand, there is none; unless it is to be looked at what rows operators are given.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.config import StreamsConfig
from headrace.errors import PipelineError
from headrace.streams.buckets.logic import Logic
from headrace.streams.checkpoint import checkpoint_path
from headrace.streams.pipeline import Pipeline
from headrace.streams.plans import Operator
from headrace.streams.table_ends import AskEnds, read_table_ends, settle_table_ends
from headrace.streams.time_only import source_numbers
from headrace.streams.topic import Topic
from headrace.streams.unended import unended

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted:
    """An operator whose logic runs in buckets, and the rows that it was given."""

    name: str
    rows: DataFrame
    logic: Logic
    by: tuple[str, ...]
    event_time: str | None


@dataclass(slots=True, kw_only=True)
class Building:
    """A pipeline that is being built. Belongs to one thread."""

    pipeline: str
    checkpoint: Path
    operators: dict[str, Operator] = field(default_factory=dict)
    """What keeps state in Python, by its name."""
    side_topics: dict[str, Topic] = field(default_factory=dict)
    """By the name of an operator: the topic of the rows that are not among its results."""
    noted: list[Noted] = field(default_factory=list)
    """The operators whose logic runs in buckets, in the order in which they were built."""
    frames: Mapping[str, DataFrame] = field(default_factory=dict)
    """By parameter, what it is built from."""
    topics: Mapping[str, Topic] = field(default_factory=dict)
    ask_ends: AskEnds | None = None
    """Asks where topics end; None where only what is noted down counts."""

    def topics_of(self, sources: Collection[int]) -> set[str]:
        """The names of the topics of these streams, told by the session's numbers (see time_only.py)."""
        return {
            name
            for parameter, frame in self.frames.items()
            if source_numbers(frame).intersection(sources)
            for name in self.topics[parameter].names
        }

    def ends_of(self, sources: Collection[int]) -> dict[str, int]:
        """Where the topics of these streams ended when the pipeline was first started, by partition."""
        topics = self.topics_of(sources)
        if self.ask_ends is None:
            return read_table_ends(self.checkpoint, topics)
        return settle_table_ends(self.checkpoint, topics, self.ask_ends)

    def name_operator(self, name: str) -> str:
        """Add an operator; the second one of a kind gets a number, in the order of the function's lines."""
        unique, number = name, 1
        while unique in self._names:
            number += 1
            unique = f"{name}-{number}"
        self._names.append(unique)
        return unique

    def late_topic(self) -> str:
        """A topic for the late rows of one more operator that is given none: `p.late`, `p.late-2`, ..."""
        self._late_topic_count += 1
        number = "" if self._late_topic_count == 1 else f"-{self._late_topic_count}"
        return f"{self.pipeline}.late{number}"

    _names: list[str] = field(default_factory=list)
    _late_topic_count: int = 0


_current: ContextVar[Building | None] = ContextVar("building", default=None)


def build_stream(
    pipeline: Pipeline[Any],
    frames: Mapping[str, DataFrame],
    config: StreamsConfig,
    ask_ends: AskEnds | None = None,
) -> tuple[DataFrame, Building]:
    """What the pipeline makes of streams, and what its operators have noted."""
    rows, building = _build(pipeline, frames, config, ask_ends)
    if not rows.isStreaming:
        raise PipelineError(
            f"pipeline {pipeline.name} returned a DataFrame that is not made from the topics that it "
            "reads: make it from its parameters"
        )
    return rows, building


def note_batch(pipeline: Pipeline[Any], frames: Mapping[str, DataFrame], config: StreamsConfig) -> Building:
    """What its operators have noted when the pipeline is built from batches, by the names that they have on a
    stream: so the rows that each is given can be looked at.
    """
    with unended():
        _rows, building = _build(pipeline, frames, config)
    return building


def _build(
    pipeline: Pipeline[Any],
    frames: Mapping[str, DataFrame],
    config: StreamsConfig,
    ask_ends: AskEnds | None = None,
) -> tuple[DataFrame, Building]:
    building = Building(
        pipeline=pipeline.name,
        checkpoint=checkpoint_path(config, pipeline.name),
        frames=frames,
        topics=pipeline.sources(),
        ask_ends=ask_ends,
    )
    token = _current.set(building)
    try:
        return pipeline.build(frames), building
    finally:
        _current.reset(token)


def find_building() -> Building | None:
    """The pipeline that is being built; None where a query is built by hand, and mostly in batch."""
    return _current.get()


def current_building(operator: str) -> Building:
    """The pipeline that is being built; raise if there is none, because the operator needs it."""
    found = _current.get()
    if found is None:
        raise PipelineError(
            f"{operator}: a stream with it runs only as a pipeline, because its late rows need a place and "
            "its state a checkpoint: mark the function with @hr.pipeline(writes=...) and use headrace run"
        )
    return found
