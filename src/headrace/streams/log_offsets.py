"""Where partitions begin and end, and where a moment lies in them, asked of the broker."""

from __future__ import annotations

from collections.abc import Collection

from confluent_kafka import IsolationLevel, KafkaException
from confluent_kafka.admin import ConfigResource, OffsetSpec

from headrace.config import StreamsConfig
from headrace.errors import ConfigError, FaultError
from headrace.streams.admin import ANSWER_S_MAX, Cluster
from headrace.streams.progress_log import Offsets, Place
from headrace.streams.spans import Bound, Span, resolve_span


def find_span(config: StreamsConfig, topics: Collection[str], *, begin: Bound, finish: Bound) -> Span:
    """The part of the topics' log between two bounds."""
    cluster = Cluster(config)
    places = existing_places(cluster, topics)
    firsts, ends = first_offsets(cluster, places), end_offsets(cluster, places)
    return resolve_span(
        firsts,
        ends,
        begin=begin,
        finish=finish,
        begin_at=_since(cluster, places, begin),
        finish_at=_since(cluster, places, finish),
    )


def existing_places(cluster: Cluster, topics: Collection[str]) -> list[Place]:
    """The partitions of the topics, which must exist."""
    counts = cluster.partition_counts()
    for topic in topics:
        if topic not in counts:
            raise ConfigError(
                f"there is no topic {topic} at {cluster.bootstrap}: `headrace topics list` shows those that "
                "there are"
            )
    return [(topic, partition) for topic in topics for partition in range(counts[topic])]


def first_offsets(cluster: Cluster, places: Collection[Place]) -> Offsets:
    """The first record that each has."""
    return _ask(cluster, places, OffsetSpec.earliest())


def end_offsets(cluster: Cluster, places: Collection[Place]) -> Offsets:
    """Behind the last record of each that readers of committed records are shown."""
    return _ask(cluster, places, OffsetSpec.latest())


def ask_ends(config: StreamsConfig, topics: Collection[str]) -> Offsets:
    """Where the partitions of topics, which must exist, end for readers of committed records."""
    cluster = Cluster(config)
    return end_offsets(cluster, existing_places(cluster, topics))


def written_ends(cluster: Cluster, places: Collection[Place]) -> Offsets:
    """Behind the last record of each, whether it is committed or not."""
    return cluster.offsets(dict.fromkeys(places, OffsetSpec.latest()))


def results_deleted(config: StreamsConfig, span: Span) -> str | None:
    """How records may have been deleted from topics that span so much; None if none can have been."""
    for (topic, partition), offset in sorted(span.starts.items()):
        if offset > 0:
            return (
                f"perhaps it was deleted: partition {partition} of {topic} begins at offset {offset} by now"
            )
    for topic in sorted({topic for topic, _ in span.starts}):
        if "compact" in cleanup_policy(Cluster(config), topic):
            return f"perhaps it was compacted: of {topic} only the last record of each key is kept"
    return None


def cleanup_policy(cluster: Cluster, topic: str) -> str:
    """How the topic gets rid of records: `delete`, `compact` or both, with a comma."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    (asked,) = cluster.client.describe_configs([resource], request_timeout=ANSWER_S_MAX).values()
    try:
        return str(asked.result()["cleanup.policy"].value)
    except KafkaException as error:
        raise FaultError(
            f"the settings of topic {topic} can't be had from {cluster.bootstrap}: {error.args[0].str()}"
        ) from error


def _since(cluster: Cluster, places: Collection[Place], bound: Bound) -> Offsets:
    if bound.moment_ms is None:
        return {}
    found = _ask(cluster, places, OffsetSpec.for_timestamp(bound.moment_ms))
    # Where nothing is so new, the broker says -1, and the end is meant.
    return {place: offset for place, offset in found.items() if offset >= 0}


def _ask(cluster: Cluster, places: Collection[Place], spec: OffsetSpec) -> Offsets:
    return cluster.offsets(dict.fromkeys(places, spec), IsolationLevel.READ_COMMITTED)
