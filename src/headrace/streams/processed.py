"""What a pipeline has processed, by its checkpoint, and what it may be processing."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass

from headrace.config import StreamsConfig
from headrace.errors import PipelineError
from headrace.streams.admin import Cluster
from headrace.streams.checkpoint import checkpoint_path, try_lock_checkpoint
from headrace.streams.history import read_history
from headrace.streams.log_offsets import end_offsets, existing_places, first_offsets
from headrace.streams.progress_log import Batch, Offsets, ProgressLog, read_progress_log
from headrace.streams.spans import Span, missing_records
from headrace.streams.topic import Topic


@dataclass(frozen=True, slots=True, kw_only=True)
class Processed:
    """What was processed of the topic of each parameter."""

    spans: Mapping[str, Span]
    log: ProgressLog
    is_settled: bool
    """Whether no batch is begun and not finished."""

    def opened(self, ends: Offsets) -> Mapping[str, Span]:
        """The same, up to where a batch that is not finished may have read: the log's ends."""
        return {name: _opened(span, ends) for name, span in self.spans.items()}

    @property
    def offset_count(self) -> int:
        """How many offsets it spans."""
        return sum(span.offset_count for span in self.spans.values())

    @property
    def batches(self) -> tuple[Batch, ...]:
        """The finished ones that are still known."""
        last = self.log.committed
        return tuple(batch for batch in self.log.batches if last is not None and batch.number <= last)


def find_processed(
    config: StreamsConfig, query: str, sources: Mapping[str, Topic], *, is_locked: bool = False
) -> Processed:
    """Read the checkpoint, and ask the broker whether all of it is still there.

    `is_locked` says that the caller has locked the checkpoint, so that the query can't run.
    """
    is_running = not (is_locked or _is_free(config, query))
    log = read_progress_log(checkpoint_path(config, query))
    last = log.last_committed
    if last is None:
        raise PipelineError(f"pipeline {query} has not finished a batch yet: run it first")
    cluster = Cluster(config)
    places = existing_places(cluster, sorted({name for topic in sources.values() for name in topic.names}))
    firsts = first_offsets(cluster, places)
    spans = {parameter: processed_span(log, last, topic.names) for parameter, topic in sources.items()}
    _refuse_missing(query, spans, firsts)
    history = read_history(config, query)
    is_realtime = history is None or not history.runs or history.runs[-1].realtime
    is_begun = any(batch.number > last.number for batch in log.batches)
    return Processed(spans=spans, log=log, is_settled=not (is_running or is_begun or is_realtime))


def source_ends(config: StreamsConfig, sources: Mapping[str, Topic]) -> Offsets:
    """Where the topics end now."""
    cluster = Cluster(config)
    return end_offsets(
        cluster,
        existing_places(cluster, sorted({name for topic in sources.values() for name in topic.names})),
    )


def processed_span(log: ProgressLog, last: Batch, topics: tuple[str, ...]) -> Span:
    """From where the topics were begun up to the end of the batch. Later partitions began at 0."""
    starts = {place: offset for source in log.starts for place, offset in source.items()}
    ends = {place: offset for source in last.ends for place, offset in source.items() if place[0] in topics}
    return Span(starts={place: starts.get(place, 0) for place in ends}, ends=ends)


def _opened(span: Span, ends: Offsets) -> Span:
    return Span(
        starts=span.starts, ends={place: max(end, ends.get(place, end)) for place, end in span.ends.items()}
    )


def _refuse_missing(query: str, spans: Mapping[str, Span], firsts: Offsets) -> None:
    for span in spans.values():
        for (topic, partition), offset in missing_records(span, firsts).items():
            raise PipelineError(
                f"pipeline {query} can't be verified: partition {partition} of {topic} was processed from "
                f"offset {span.starts[topic, partition]} on, and the log begins at {offset} by now; keep "
                "records for longer (retention.ms), or start the pipeline anew"
            )


def _is_free(config: StreamsConfig, query: str) -> bool:
    with ExitStack() as held:
        return try_lock_checkpoint(config, query, held)
