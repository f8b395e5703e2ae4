"""From where queries read that have no checkpoint yet, settled once and for all of them.

    DATA/checkpoints/<query>/starts.json    {"orders": {"0": 17, "1": -2}}: by topic and partition

A start such as `latest` means another offset a moment later, and the records that can't be decoded are read
by another query than those that can: a record that falls between the two would be in neither. So the broker
is asked once for all queries that start together, and the answer is noted down before any of them starts: the
queries for dead letters first, so that what a crash leaves can't make them begin later than the pipelines.
What is noted down is gone together with the checkpoint, and then asked anew.

Another schema makes another query for dead letters, while the pipelines go on from their checkpoints. It
starts where they go on: at the lowest offset of each partition that one of them has committed. So that it
can be told from one that was cut off before its first batch, a query for dead letters gets its note also
where it reads from the beginning: {"orders": {}}.

-2 is a partition's first record, whatever that is when it is read: Spark's own notation. `earliest` is never
asked for, because retention may move it before it is read. Spark wants a start for each partition that there
is; those that a note does not name, because they were added since, are read from their first record.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headrace.config import StreamsConfig
from headrace.streams.checkpoint import checkpoint_path
from headrace.streams.kept import read_kept, write_kept
from headrace.streams.progress_log import ProgressLog, has_batch, read_progress_log
from headrace.streams.topic import Topic

FIRST: Final = -2
"""Spark's notation for the first record that there is."""

Offsets = Mapping[int, int]
"""By partition."""
Starts = Mapping[str, Offsets]
"""By topic."""
Ask = Callable[[Sequence[Topic]], Starts]
"""Ask the cluster what the starts of topics, described one by one, mean in offsets."""
Count = Callable[[Collection[str]], Mapping[str, int]]
"""Ask the cluster how many partitions topics have."""


def settle_starts(
    config: StreamsConfig, queries: Mapping[str, Sequence[Topic]], ask: Ask, count: Count
) -> dict[str, Starts]:
    """The starts of each query that reads these topics, where they are no plain `earliest`.

    `queries` must have those for dead letters first, as many as there are.
    """
    found = {name: _find(config, name, read) for name, read in queries.items()}
    missing = {topic.name: topic for query in found.values() for topic in query.to_ask(found.values())}
    asked = ask(list(missing.values())) if missing else {}
    settled = {
        name: query.settle(asked, found.values()) if query.is_new else query.kept
        for name, query in found.items()
    }
    known = {
        topic
        for name, starts in settled.items()
        if found[name].is_new
        for topic, offsets in starts.items()
        if offsets
    }
    counts = count(known) if known else {}
    for name, query in found.items():
        if query.is_new:
            settled[name] = {topic: _whole(each, counts.get(topic)) for topic, each in settled[name].items()}
            if settled[name] != query.kept:
                _write(_path(config, name), settled[name])
    return settled


def starting_offsets(topic: Topic, starts: Starts) -> str:
    """Spark's option `startingOffsets` for the topic."""
    offsets = {name: starts.get(name, {}) for name in topic.names}
    if all(offset == FIRST for each in offsets.values() for offset in each.values()):
        return "earliest"
    return json.dumps(
        {name: {str(p): offset for p, offset in each.items()} for name, each in offsets.items()}
    )


def lowest(starts: Sequence[Offsets]) -> Offsets:
    """The lowest offset of each partition; one that is not in all of them is read from its first record."""
    partitions = {partition for each in starts for partition in each}
    return {partition: min(each.get(partition, FIRST) for each in starts) for partition in partitions}


def positions(log: ProgressLog) -> Starts:
    """Where a query goes on that has this log: behind its last finished batch, else where it began."""
    last = log.last_committed
    ends = last.ends if last is not None else ()
    sources = [
        {**start, **(ends[index] if index < len(ends) else {})} for index, start in enumerate(log.starts)
    ]
    topics = {topic for source in sources for topic, _ in source}
    return {
        topic: lowest(
            [
                {partition: offset for (name, partition), offset in source.items() if name == topic}
                for source in sources
                # The same topic can be read twice.
                if any(name == topic for name, _ in source)
            ]
        )
        for topic in topics
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Query:
    """A query, and what is known of where it starts."""

    name: str
    topics: tuple[Topic, ...]
    """That it reads, one by one."""
    kept: Starts
    """What was noted down."""
    checkpoint: Path
    is_new: bool
    """Whether it has no batch to go on from."""

    @property
    def takes_dead_letters(self) -> bool:
        """Whether it is the companion of pipelines."""
        return self.name in {topic.dead_letters_query for topic in self.topics}

    def to_ask(self, others: Collection[_Query]) -> list[Topic]:
        """The topics of which only the cluster knows what their start means."""
        if not self.is_new or self._goers_on(others):
            return []
        return [topic for topic in self.topics if topic.start != "earliest" and topic.name not in self.kept]

    def settle(self, asked: Starts, others: Collection[_Query]) -> Starts:
        """Where a query that is new starts."""
        if not self.takes_dead_letters:
            new = {topic.name: asked[topic.name] for topic in self.topics if topic.name in asked}
        elif self._goers_on(others):
            readers = [query.position(asked) for query in others if query.is_read_with(self.name)]
            new = {
                topic.name: lowest([each.get(topic.name, {}) for each in readers]) for topic in self.topics
            }
        else:
            new = {topic.name: asked.get(topic.name, {}) for topic in self.topics}
        return {**new, **self.kept}

    def _goers_on(self, others: Collection[_Query]) -> list[_Query]:
        """The pipelines that go on from a checkpoint, and whose dead letters these are."""
        if not self.takes_dead_letters:
            return []
        return [query for query in others if not query.is_new and query.is_read_with(self.name)]

    def is_read_with(self, companion: str) -> bool:
        """Whether it is a pipeline that reads a topic whose dead letters this companion takes."""
        return self.name != companion and companion in {topic.dead_letters_query for topic in self.topics}

    def position(self, asked: Starts) -> Starts:
        """Where it goes on, or starts."""
        return self.settle(asked, ()) if self.is_new else positions(read_progress_log(self.checkpoint))


def _find(config: StreamsConfig, name: str, read: Sequence[Topic]) -> _Query:
    checkpoint = checkpoint_path(config, name)
    return _Query(
        name=name,
        topics=tuple(one for topic in read for one in topic.each()),
        kept=_read(_path(config, name)),
        checkpoint=checkpoint,
        is_new=not has_batch(checkpoint),
    )


def _whole(offsets: Offsets, count: int | None) -> Offsets:
    """With all partitions, where any of them has a start of its own."""
    if not offsets or count is None:
        return offsets
    return {partition: offsets.get(partition, FIRST) for partition in range(count)}


def _path(config: StreamsConfig, query: str) -> Path:
    return checkpoint_path(config, query) / "starts.json"


def _read(path: Path) -> dict[str, dict[int, int]]:
    kept = read_kept(
        path,
        lambda content: {
            str(name): {int(partition): int(offset) for partition, offset in offsets.items()}
            for name, offsets in content.items()
        },
        problem="does not say where its query started",
        advice=(
            "remove it, and the broker is asked anew; a query that has finished a batch no longer needs it"
        ),
    )
    return kept or {}


def _write(path: Path, starts: Starts) -> None:
    write_kept(path, {name: dict(offsets) for name, offsets in starts.items()})
