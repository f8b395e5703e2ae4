"""Partitions in the order of their topics, as messages and records have them, and topics as one number."""

from __future__ import annotations

from hashlib import blake2b
from itertools import groupby
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from uuid import UUID

    from headrace.kafka.groups.consumer.state import Partition, TopicInfo

HASH_BYTES: Final = 8


class OfTopic(Protocol):
    """Partitions of one topic."""

    @property
    def topic_id(self) -> UUID | None:
        """Which one."""
        ...

    @property
    def partitions(self) -> tuple[int, ...]:
        """Their numbers."""
        ...


def by_topic(partitions: Iterable[Partition]) -> Iterator[tuple[UUID, tuple[int, ...]]]:
    """Partitions in order, those of one topic together."""
    in_order = sorted(partitions, key=lambda each: (each[0].int, each[1]))
    for topic_id, same in groupby(in_order, key=lambda each: each[0]):
        yield topic_id, tuple(index for _, index in same)


def one_by_one(topics: Iterable[OfTopic]) -> frozenset[Partition]:
    """The same the other way round."""
    return frozenset(
        (topic.topic_id, index)
        for topic in topics
        if topic.topic_id is not None
        for index in topic.partitions
    )


def topics_hash(topics: Mapping[str, TopicInfo]) -> int:
    """A number by which to recognise topics that have not changed while nobody looked."""
    digest = blake2b(digest_size=HASH_BYTES)
    for name, topic in sorted(topics.items()):
        digest.update(f"{name} {topic.topic_id} {topic.partition_count}\n".encode())
    return int.from_bytes(digest.digest(), signed=True)
