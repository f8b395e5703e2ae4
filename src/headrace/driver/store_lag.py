"""How far a store is behind the log: in records, in bytes, and in seconds.

Records are counted by offsets. The first of those that are yet to come tell how long the oldest has waited,
and how large they are: the bytes are as many as all would have if they were like these.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from headrace.driver.lag import Place, places_of
from headrace.driver.status import Offsets

SAMPLE_MAX: Final = 500
"""How many records are looked at."""
ANSWER_S_MAX: Final = 5.0
_LOOK_S: Final = 1.0
"""How long the records of a partition are waited for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreLag:
    """What a store has not seen yet."""

    rows: int
    bytes: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A record that a store has not seen yet."""

    timestamp_ms: int
    size_bytes: int


def lag_of(row_count: int, sample: Sequence[Waiting], now_ms: int) -> StoreLag:
    """The lag, by the number of records and some of them, each partition's first among them."""
    if row_count == 0 or not sample:
        return StoreLag(rows=row_count, bytes=0, seconds=0.0)
    oldest_ms = min(record.timestamp_ms for record in sample)
    size_bytes = sum(record.size_bytes for record in sample) / len(sample)
    return StoreLag(
        rows=row_count, bytes=round(row_count * size_bytes), seconds=max(0, now_ms - oldest_ms) / 1000
    )


class StoreLagReader:
    """Asks one cluster for what is yet to come. Not safe to share between threads."""

    def __init__(self, bootstrap: str, client_options: Mapping[str, str]) -> None:
        settings: dict[str, Any] = {
            **client_options,
            "bootstrap.servers": bootstrap,
            "log_level": "0",
            # Nothing is ever committed: a consumer must have a group, and this one joins none.
            "group.id": "headrace.views",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            # What was deleted before the store saw it has no age; the oldest that is left has.
            "auto.offset.reset": "earliest",
            # So that the end of a partition is told at once, and not waited for.
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
        }
        self._consumer = Consumer(settings)

    def lag(self, next_offsets: Offsets) -> StoreLag | None:
        """How far behind one is who reads on there; None where the broker does not say."""
        try:
            left = {place: count for place, count in self._left(next_offsets).items() if count}
            # To look at records takes a while, by which nothing is more behind.
            now_ms = time.time_ns() // 1_000_000
            sample = self._sample(
                [TopicPartition(*place, next_offsets[place[0]][place[1]]) for place in left]
            )
        except KafkaException:
            return None
        return lag_of(sum(left.values()), sample, now_ms)

    def close(self) -> None:
        """Let go of the connection."""
        self._consumer.close()

    def _left(self, next_offsets: Offsets) -> dict[Place, int]:
        left = {}
        for topic, partition in places_of(next_offsets):
            place = TopicPartition(topic, partition)
            _, end = self._consumer.get_watermark_offsets(place, timeout=ANSWER_S_MAX)
            left[topic, partition] = max(0, end - next_offsets[topic][partition])
        return left

    def _sample(self, places: Sequence[TopicPartition]) -> list[Waiting]:
        """The first records of each partition. There may be none: ends of transactions are counted, too."""
        sample: list[Waiting] = []
        for place in places:
            self._consumer.assign([place])
            sample.extend(self._first(max(1, SAMPLE_MAX // len(places))))
        self._consumer.unassign()
        return sample

    def _first(self, count_max: int) -> Iterator[Waiting]:
        """So many records from here on, or as many as there are."""
        deadline_s = time.monotonic() + _LOOK_S
        for _ in range(count_max):
            message = self._consumer.poll(max(0.0, deadline_s - time.monotonic()))
            if message is None or _is_end(message):
                return
            yield _waiting(message)


def _is_end(message: Message) -> bool:
    error = message.error()
    return error is not None and error.code() == KafkaError._PARTITION_EOF  # noqa: SLF001 - its public name


def _waiting(message: Message) -> Waiting:
    if (error := message.error()) is not None:
        raise KafkaException(error)
    _, timestamp_ms = message.timestamp()
    return Waiting(timestamp_ms=timestamp_ms, size_bytes=len(message))
