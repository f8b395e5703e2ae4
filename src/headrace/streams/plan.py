"""What a run of pipelines needs before Spark starts: names, topics, task slots. No I/O.

Each pipeline is a query. Each topic that is read gets one query more, which takes the records that can't
be decoded to `<topic>.dead-letters`: a companion, because real-time mode lets a query read a source once
and write one result, and one for all pipelines, so that a dead letter is written once. Where another
process on the same data directory runs the companion already, it is left to that one; whoever runs it next
goes on where it stopped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from headrace.errors import PipelineError
from headrace.streams.pipeline import Pipeline
from headrace.streams.topic import Topic

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
        """Each topic that is read, once."""
        topics = (topic for parameters in self.sources.values() for topic in parameters.values())
        return tuple({topic.name: topic for topic in topics}.values())

    @property
    def query_names(self) -> tuple[str, ...]:
        """The names of all queries: each is a checkpoint directory."""
        return (*self.names, *(topic.dead_letters for topic in self.read_topics))

    def topics(self) -> dict[str, int]:
        """Every topic that must exist, with the number of partitions to create it with."""
        wanted = {topic.dead_letters: DEAD_LETTERS_PARTITION_COUNT for topic in self.read_topics}
        described = (*self.read_topics, *(pipeline.writes for pipeline in self.pipelines))
        for topic in described:
            # Two descriptions may speak of one topic, and only one of them of its partitions.
            wanted[topic.name] = max(topic.partitions or 0, wanted.get(topic.name, 0))
        return {name: count or DEFAULT_PARTITION_COUNT for name, count in wanted.items()}

    def slots(self, partition_counts: Mapping[str, int], *, shuffle_partition_count: int) -> int:
        """How many tasks run at once in real-time mode, when all queries run."""
        read = sum(
            partition_counts[topic.name]
            for parameters in self.sources.values()
            for topic in parameters.values()
        )
        companions = sum(partition_counts[topic.name] for topic in self.read_topics)
        return read + companions + shuffle_partition_count * len(self.pipelines)


def make_plan(pipelines: Sequence[Pipeline[Any]]) -> Plan:
    """Look the topics up, and refuse what can't run together."""
    if not pipelines:
        raise PipelineError("there is no pipeline to run: mark a function with @hr.pipeline(writes=...)")
    sources = {pipeline.name: pipeline.sources() for pipeline in pipelines}
    plan = Plan(pipelines=tuple(pipelines), sources=sources)
    _refuse_duplicate_names(plan)
    for pipeline in pipelines:
        _refuse_loop(pipeline, sources[pipeline.name])
    _refuse_two_schemas(plan)
    return plan


def _refuse_duplicate_names(plan: Plan) -> None:
    duplicates = [name for name, count in Counter(plan.query_names).items() if count > 1]
    if duplicates:
        raise PipelineError(
            f"two pipelines are named {duplicates[0]}: a name is a checkpoint, so give one of them another "
            'with @hr.pipeline(name="...")'
        )


def _refuse_loop(pipeline: Pipeline[Any], sources: Mapping[str, Topic]) -> None:
    if any(topic.name == pipeline.writes.name for topic in sources.values()):
        raise PipelineError(
            f"pipeline {pipeline.name} reads the topic {pipeline.writes.name} that it writes: it would never "
            "come to an end; write another topic"
        )


def _refuse_two_schemas(plan: Plan) -> None:
    schemas: dict[str, str | None] = {}
    for parameters in plan.sources.values():
        for topic in parameters.values():
            if schemas.setdefault(topic.name, topic.schema) != topic.schema:
                raise PipelineError(
                    f"the topic {topic.name} is described with two schemas: pipelines that run together must "
                    "agree which of its records are dead letters; use one description"
                )
