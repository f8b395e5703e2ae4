"""A pipeline in sentences: what it reads, keeps and writes, and how it was run. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from headrace.streams.event_time import as_policy
from headrace.streams.history import History
from headrace.streams.pipeline import Pipeline
from headrace.streams.plans import Description, Operator
from headrace.streams.progress_log import ProgressLog
from headrace.streams.timeline.operators import Traced
from headrace.streams.timeline.words import operator_words, watermark_words
from headrace.streams.topic import Topic


def pipeline_words(
    pipeline: Pipeline[Any],
    sources: Mapping[str, Topic],
    description: Description,
    own: Sequence[Operator],
    traced: Sequence[Traced],
) -> Iterator[str]:
    """What the pipeline is. `own` are the operators that keep state in Python; `traced` tells more."""
    for topic in dict.fromkeys(sources.values()):
        yield source_words(topic)
    for operator in traced:
        first, *more = operator_words(operator)
        yield first
        yield from (f"  {line}" for line in more)
    for each in description.operators:
        if each not in own:
            yield f"Spark itself: {each}; its windows and late rows are Spark's, and are not shown here"
    if not description.operators:
        yield "it treats each row by itself, and keeps nothing"
    yield target_words(pipeline)
    if pipeline.patience_ms:
        yield f"may take {pipeline.patience_ms:,} ms longer, so that many records are read at a time"


def source_words(topic: Topic) -> str:
    """What is read of a topic."""
    told = f"reads {', '.join(topic.names)} as {topic.format}"
    if topic.event_time is None:
        told += ", without an event time"
    elif topic.watermark is None:
        told += f", event time {topic.event_time}, without a watermark"
    else:
        told += f", event time {topic.event_time}; {watermark_words(as_policy(topic.watermark))}"
    if topic.max_ahead is not None:
        told += f"; events more than {topic.max_ahead} ahead of their record are dead letters"
    if topic.has_dead_letters:
        told += f"; what can't be read goes to {', '.join(each.dead_letters for each in topic.each())}"
    return told


def target_words(pipeline: Pipeline[Any]) -> str:
    """What is written."""
    target = pipeline.writes
    if isinstance(target, Topic):
        key = f", with the key {', '.join(target.key)}" if target.key else ""
        others = ", ".join(topic.name for topic in pipeline.side_outputs)
        return f"writes the topic {target.name}{key}" + (f", and {others} beside it" if others else "")
    return f"writes the {target.noun} {target.name}, " + (
        f"a row for each {', '.join(target.key)}" if target.key else "to which rows are added"
    )


def run_words(checkpoint: str, log: ProgressLog | None, history: History | None) -> str:
    """How it was run."""
    if log is None or log.committed is None:
        return f"no batch of it is done at {checkpoint}"
    told = f"its checkpoint {checkpoint} has done batch {log.committed}"
    if history is None or not history.runs:
        return told
    last = history.runs[-1]
    mode = "in real-time mode" if last.realtime else "in micro-batches"
    return f"{told}; it was last run {mode}, {last.guarantee.replace('-', ' ')}"
