"""Where partitions begin and end, and where a moment lies in them, asked of any Kafka cluster."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec, TopicMetadata

from headrace.cli.client import REQUEST_TIMEOUT_S, kafka_errors, result_of
from headrace.errors import ConfigError

Place = tuple[str, int]
"""A topic and the number of one of its partitions."""


class OffsetRange(NamedTuple):
    """Where a partition begins, and where its next record will be."""

    first: int
    next: int

    @property
    def record_count(self) -> int:
        """How many records lie between, if none was removed by compaction."""
        return self.next - self.first


def topic_metadata(admin: AdminClient, bootstrap: str) -> dict[str, TopicMetadata]:
    """All topics."""
    with kafka_errors(bootstrap):
        return admin.list_topics(timeout=REQUEST_TIMEOUT_S).topics


def existing_topic(admin: AdminClient, name: str, bootstrap: str) -> TopicMetadata:
    """A topic, or an error that says how to find the ones that are there."""
    topics = topic_metadata(admin, bootstrap)
    if name not in topics:
        raise ConfigError(f"there is no topic {name}: `headrace topics list` shows what is there")
    return topics[name]


def places_of(topics: Mapping[str, TopicMetadata]) -> list[Place]:
    """Every partition of the topics."""
    return [(name, number) for name, topic in topics.items() for number in sorted(topic.partitions)]


def offset_ranges(admin: AdminClient, places: Collection[Place], bootstrap: str) -> dict[Place, OffsetRange]:
    """The first and the next offset of every partition."""
    firsts = offsets_at(admin, places, OffsetSpec.earliest(), bootstrap)
    nexts = offsets_at(admin, places, OffsetSpec.latest(), bootstrap)
    return {place: OffsetRange(firsts[place], nexts[place]) for place in places}


def offsets_at(
    admin: AdminClient, places: Collection[Place], spec: OffsetSpec, bootstrap: str
) -> dict[Place, int]:
    """Where each partition has what is asked for; -1 where nothing is that late."""
    if not places:
        return {}
    asked = {TopicPartition(*place): spec for place in places}
    found = admin.list_offsets(asked)
    return {(each.topic, each.partition): result_of(found[each], bootstrap).offset for each in asked}


def offsets_since(
    admin: AdminClient, places: Collection[Place], timestamp_ms: int, bootstrap: str
) -> dict[Place, int]:
    """The first record at the moment or later; where there is none, the place of the next record."""
    found = offsets_at(admin, places, OffsetSpec.for_timestamp(timestamp_ms), bootstrap)
    after = [place for place, offset in found.items() if offset < 0]
    return {**found, **offsets_at(admin, after, OffsetSpec.latest(), bootstrap)}
