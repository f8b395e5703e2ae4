"""Reads a little of a busy topic: the newest records of each partition, once a second.

It reads what was written since it last read, the newest SAMPLE_COUNT of that at most, and commits nothing.
While it does not look, no partition is assigned, so that the client fetches nothing ahead.

Used from one thread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, TopicPartition

from headrace.console.samples import InputRecord

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.console.meter import Offsets

SAMPLE_COUNT: Final = 5
"""Of each partition and second."""
READ_S_MAX: Final = 0.5
TRY_COUNT_MAX: Final = 5
FETCH_BYTES: Final = 64 * 1024


class Sampler:
    """Samples one topic."""

    def __init__(self, settings: Mapping[str, str | int | float | bool], topic: str) -> None:
        self._topic = topic
        self._consumer = Consumer({**settings, "fetch.message.max.bytes": FETCH_BYTES})
        self._seen: Offsets = {}
        self._tries: dict[int, int] = {}

    def sample(self, ends: Offsets) -> list[InputRecord]:
        """Some records from before the given ends that were not there the last time."""
        starts = {p: max(self._seen.get(p, 0), end - SAMPLE_COUNT) for p, end in ends.items()}
        wanted = {p: start for p, start in starts.items() if start < ends[p]}
        self._seen = {p: min(self._seen.get(p, 0), end) for p, end in ends.items()}
        if not wanted:
            return []
        self._consumer.assign([TopicPartition(self._topic, p, start) for p, start in wanted.items()])
        try:
            count = sum(ends[p] - start for p, start in wanted.items())
            messages = self._consumer.consume(count, READ_S_MAX)
        finally:
            self._consumer.unassign()
        came = {message.partition() for message in messages if message.error() is None}
        for partition in wanted:
            # What did not come in time is asked for again; the end of a transaction never comes.
            self._tries[partition] = 0 if partition in came else self._tries.get(partition, 0) + 1
            if self._tries[partition] in {0, TRY_COUNT_MAX}:
                self._seen[partition] = ends[partition]
                self._tries[partition] = 0
        return [
            InputRecord(
                value=message.value(),
                timestamp_ms=message.timestamp()[1]
                if message.timestamp()[0] != TIMESTAMP_NOT_AVAILABLE
                else None,
            )
            for message in messages
            if message.error() is None
        ]

    def close(self) -> None:
        """Let go of the connection."""
        self._consumer.close()
