"""Reads the newest records of the topics that stores follow, a few of each partition, once a second.

It reads what was written since it last read, the newest few of that, and commits nothing. It begins with what
is written after its first look: what was there before has arrived long ago.

Used from one thread.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, TopicPartition

from headrace.console.messages import as_text
from headrace.console.travel import Change

if TYPE_CHECKING:
    from confluent_kafka import Message

    from headrace.driver.lag import Place

SAMPLE_COUNT: Final = 10
"""So many offsets are looked at, of each partition and second; some are ends of transactions."""
CHANGE_COUNT_MAX: Final = 20
"""So many changes a second are told, of all partitions, but at least one of each that has any."""
READ_S_MAX: Final = 0.5
"""Ends of transactions are counted by offsets and never come, so that this passes more often than not."""
TRY_COUNT_MAX: Final = 5
FETCH_BYTES: Final = 256 * 1024
KEY_LENGTH_MAX: Final = 100
OPERATIONS: Final = {
    "c": "insert",
    "u": "update",
    "d": "delete",
    "r": "snapshot",
    "t": "truncate",
    "m": "message",
}
_EPOCH_MS_MAX: Final = 10**14


class ChangesReader:
    """Reads several topics."""

    def __init__(self, settings: Mapping[str, str | int | float | bool]) -> None:
        self._consumer = Consumer(
            {
                **settings,
                "fetch.message.max.bytes": FETCH_BYTES,
                "isolation.level": "read_committed",
            }
        )
        self._seen: dict[Place, int] = {}
        self._tries: dict[Place, int] = {}

    def read(self, ends: Mapping[Place, int]) -> list[Change]:
        """Some of the changes from before the given ends that were not there the last time."""
        starts = {
            place: max(self._seen[place], end - SAMPLE_COUNT)
            for place, end in ends.items()
            if place in self._seen and self._seen[place] < end
        }
        before, self._seen = self._seen, dict(ends)
        if not starts:
            return []
        self._consumer.assign([TopicPartition(*place, start) for place, start in starts.items()])
        try:
            count = sum(ends[place] - start for place, start in starts.items())
            messages = self._consumer.consume(count, READ_S_MAX)
        finally:
            self._consumer.unassign()
        came = [message for message in messages if message.error() is None]
        self._ask_again(before, starts.keys() - {(each.topic(), each.partition()) for each in came})
        return spread([change for change in map(change_in, came) if change is not None])

    def _ask_again(self, before: Mapping[Place, int], silent: AbstractSet[Place]) -> None:
        """What did not come in time is asked for again; the end of a transaction never comes."""
        self._tries = {place: self._tries.get(place, 0) + 1 for place in silent}
        for place, count in self._tries.items():
            if count % TRY_COUNT_MAX:
                self._seen[place] = before[place]

    def close(self) -> None:
        """Let go of the connection."""
        self._consumer.close()


def spread(changes: Sequence[Change]) -> list[Change]:
    """The newest of each partition, as many as fit."""
    by_place: dict[Place, list[Change]] = {}
    for change in sorted(changes, key=lambda each: each.offset):
        by_place.setdefault((change.topic, change.partition), []).append(change)
    share = max(1, CHANGE_COUNT_MAX // max(1, len(by_place)))
    return [change for found in by_place.values() for change in found[-share:]]


def change_in(message: Message) -> Change | None:
    """What a record tells of a change; None for a tombstone, which only repeats that a row is gone."""
    value, topic, partition, offset = message.value(), message.topic(), message.partition(), message.offset()
    kind, timestamp_ms = message.timestamp()
    if value is None or topic is None or partition is None or offset is None:
        return None
    written_ms = timestamp_ms if kind != TIMESTAMP_NOT_AVAILABLE else 0
    committed_ms, operation = told_by(value)
    return Change(
        topic=topic,
        partition=partition,
        offset=offset,
        committed_ms=written_ms if committed_ms is None else committed_ms,
        operation=operation,
        key=as_text(message.key(), KEY_LENGTH_MAX),
    )


def told_by(value: bytes) -> tuple[int | None, str | None]:
    """When a change was committed, and what it was; None for what a record does not tell."""
    try:
        event: Any = json.loads(value)
    except (ValueError, RecursionError):
        return None, None
    if not isinstance(event, dict):
        return None, None
    source, operation = event.get("source"), event.get("op")
    committed_ms = source.get("ts_ms") if isinstance(source, dict) else None
    return (
        committed_ms if _is_moment(committed_ms) else None,
        OPERATIONS.get(operation) if isinstance(operation, str) else None,
    )


def _is_moment(value: object) -> bool:
    """Whether it is milliseconds since 1970, and not from another age."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _EPOCH_MS_MAX
