"""What a run of pipelines needs before Spark starts: names, topics, task slots. No I/O.

Each pipeline is a query. Each topic that is read gets one query more, which takes the records that can't
be decoded to `<topic>.dead-letters`: a companion, because real-time mode lets a query read a source once
and write one result, and one for all pipelines, so that a dead letter is written once. Which records can't
be decoded depends on the schema, so a topic that is read with two of them gets a companion for each.

A topic of plain bytes has no dead letters: every record of it is a row.

Where another process on the same data directory runs the companion already, it is left to that one; whoever
runs it next goes on where it stopped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from headrace.errors import PipelineError
from headrace.streams.pipeline import Pipeline
from headrace.streams.topic import Start, Topic

DEFAULT_PARTITION_COUNT: Final = 2
"""How many partitions a topic that has to be created gets when its description does not say."""
DEAD_LETTERS_PARTITION_COUNT: Final = 1
"""Dead letters are few; one partition keeps them in one order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Pipelines that can run together, with the topics that they read."""

    pipelines: tuple[Pipeline[Any], ...]
    sources: Mapping[str, Mapping[str, Topic]]
    """By pipeline name and parameter."""

    @property
    def names(self) -> tuple[str, ...]:
        """The pipelines' names, in their order."""
        return tuple(pipeline.name for pipeline in self.pipelines)

    @property
    def read_topics(self) -> tuple[Topic, ...]:
        """Each topic that is read and may have dead letters, once for each schema that it is read with."""
        read = (topic for topic in self._descriptions() if topic.has_dead_letters)
        return tuple({topic.dead_letters_query: topic for topic in read}.values())

    @property
    def source_names(self) -> set[str]:
        """The names of all topics that are read."""
        return {topic.name for topic in self._descriptions()}

    @property
    def query_names(self) -> tuple[str, ...]:
        """The names of all queries: each is a checkpoint directory."""
        return (*self.names, *(topic.dead_letters_query for topic in self.read_topics))

    def topics_of(self, query: str) -> set[str]:
        """The names of the topics that the query reads."""
        if query in self.sources:
            return {name for topic in self.sources[query].values() for name in topic.names}
        return {topic.name for topic in self.read_topics if topic.dead_letters_query == query}

    def topics(self) -> dict[str, int]:
        """Every topic that must exist, with the number of partitions to create it with."""
        wanted = {topic.dead_letters: DEAD_LETTERS_PARTITION_COUNT for topic in self.read_topics}
        written = (topic for pipeline in self.pipelines for topic in pipeline.outputs)
        for topic in (*self._descriptions(), *written):
            # Two descriptions may speak of one topic, and only one of them of its partitions.
            wanted[topic.name] = max(topic.partitions or 0, wanted.get(topic.name, 0))
        return {name: count or DEFAULT_PARTITION_COUNT for name, count in wanted.items()}

    def slots(self, partition_counts: Mapping[str, int], *, shuffle_partition_count: int) -> int:
        """How many tasks run at once in real-time mode, when all queries run."""
        read = sum(partition_counts[topic.name] for topic in self._descriptions())
        companions = sum(partition_counts[topic.name] for topic in self.read_topics)
        return read + companions + shuffle_partition_count * len(self.pipelines)

    def _descriptions(self) -> Iterator[Topic]:
        """Each topic of each parameter of each pipeline, by itself."""
        for parameters in self.sources.values():
            for topic in parameters.values():
                yield from topic.each()


def make_plan(pipelines: Sequence[Pipeline[Any]]) -> Plan:
    """Look the topics up, and refuse what can't run together."""
    if not pipelines:
        raise PipelineError("there is no pipeline to run: mark a function with @hr.pipeline(writes=...)")
    sources = {pipeline.name: pipeline.sources() for pipeline in pipelines}
    plan = Plan(pipelines=tuple(pipelines), sources=sources)
    _refuse_duplicate_names(plan)
    for pipeline in pipelines:
        _refuse_loop(pipeline, sources[pipeline.name])
    _refuse_two_starts(plan)
    return plan


def _refuse_duplicate_names(plan: Plan) -> None:
    duplicates = [name for name, count in Counter(plan.query_names).items() if count > 1]
    if duplicates:
        raise PipelineError(
            f"two pipelines are named {duplicates[0]}: a name is a checkpoint, so give one of them another "
            'with @hr.pipeline(name="...")'
        )


def _refuse_loop(pipeline: Pipeline[Any], sources: Mapping[str, Topic]) -> None:
    read = {name for topic in sources.values() for name in topic.names}
    for output in pipeline.outputs:
        if output.name in read:
            raise PipelineError(
                f"pipeline {pipeline.name} reads the topic {output.name} that it writes: it would never come "
                "to an end; write another topic"
            )


def _refuse_two_starts(plan: Plan) -> None:
    starts: dict[str, Start] = {}
    for parameters in plan.sources.values():
        for topic in (one for described in parameters.values() for one in described.each()):
            if starts.setdefault(topic.name, topic.start) != topic.start:
                raise PipelineError(
                    f"the topic {topic.name} is described with the start {starts[topic.name]} and with "
                    f"{topic.start}: pipelines that run together must agree from where its dead letters are "
                    "taken; use one start, or run them apart with another --data"
                )
