"""What is asked of the cluster before queries start, by the Kafka protocol.

Topics must exist, or Spark refuses to start; they must be those that a checkpoint speaks of; and a start at
the end, or at a time, must become an offset.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Protocol

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, ClusterMetadata, NewTopic, OffsetSpec

from headrace.errors import BrokerUnavailable, ConfigError, FaultError
from headrace.streams.origin import Origin
from headrace.streams.starts import FIRST
from headrace.streams.topic import Topic

REACH_S_MAX: Final = 10.0
"""How long it may take to reach a broker: somebody may be waiting to hear that there is none."""
ANSWER_S_MAX: Final = 30.0
"""How long a broker may take to do what it is asked for."""
APPEAR_S_MAX: Final = 30.0
"""How long a topic that was just created may take to appear in the metadata."""
_APPEAR_PAUSE_S: Final = 0.05
_NO_ID: Final = "A" * 22
"""The id of 16 zero bytes, in base64: what a topic has in a cluster without topic ids."""
_REFUSED_LOGIN: Final = {
    KafkaError._AUTHENTICATION,  # noqa: SLF001 - that is how the library names its local errors
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError._SSL,  # noqa: SLF001 - likewise
}


class Reachable(Protocol):
    """What says where a cluster is, and how to log in to it."""

    @property
    def bootstrap(self) -> str:
        """Addresses, with commas."""

    @property
    def client_options(self) -> Mapping[str, str]:
        """Settings of librdkafka."""


class Cluster:
    """A client of a cluster that asks and creates."""

    def __init__(self, config: Reachable) -> None:
        self.bootstrap = config.bootstrap
        # The library tells aside why it can't connect; a request itself just fails by time-out.
        self._complaints: list[KafkaError] = []
        settings: dict[str, Any] = {
            # The client's own log would repeat each refused connection on standard error.
            "log_level": 0,
            **config.client_options,
            "bootstrap.servers": config.bootstrap,
            "error_cb": self._complaints.append,
        }
        try:
            self.client = AdminClient(settings)
        except KafkaException as error:
            raise ConfigError(f"the client settings are wrong: {error.args[0].str()}") from error

    def metadata(self) -> ClusterMetadata:
        """Of all topics at once: asking for one by name could create it."""
        try:
            return self.client.list_topics(timeout=REACH_S_MAX)
        except KafkaException as error:
            self.client.poll(0)  # hands over what has been left for us
            refusal = next((one for one in self._complaints if one.code() in _REFUSED_LOGIN), None)
            if refusal is not None:
                raise ConfigError(
                    f"{self.bootstrap} refused the login: {refusal.str()}. Put user, password and "
                    "certificate into a file, and name it with `headrace --client-config FILE`"
                ) from error
            raise BrokerUnavailable(
                f"no broker answers at {self.bootstrap}: start one with `headrace broker`, or name another "
                "with --bootstrap. One that wants a log-in or TLS needs `headrace --client-config FILE`"
            ) from error

    def partition_counts(self) -> dict[str, int]:
        """How many partitions each topic has."""
        topics = self.metadata().topics
        return {name: len(topic.partitions) for name, topic in topics.items() if topic.partitions}

    def offsets(
        self,
        specs: Mapping[tuple[str, int], OffsetSpec],
        isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[tuple[str, int], int]:
        """By topic and partition: the offset that each stands for, -1 for a time after the last record."""
        if not specs:
            return {}
        asked = self.client.list_offsets(
            {TopicPartition(*place): spec for place, spec in specs.items()},
            isolation_level=isolation_level,
            request_timeout=ANSWER_S_MAX,
        )
        found = {}
        for place, future in asked.items():
            try:
                found[place.topic, place.partition] = int(future.result().offset)
            except KafkaException as error:
                raise FaultError(
                    f"the offsets of topic {place.topic} can't be had from {self.bootstrap}: "
                    f"{error.args[0].str()}"
                ) from error
        return found


def ensure_topics(config: Reachable, partition_counts: Mapping[str, int]) -> dict[str, int]:
    """Create the topics that don't exist, each with so many partitions.

    Returns how many partitions each of them has. A topic that exists keeps what it has.
    """
    cluster = Cluster(config)
    existing = cluster.partition_counts()
    missing = {name: count for name, count in partition_counts.items() if name not in existing}
    if missing:
        _create(cluster, missing)
        existing = _await_topics(cluster, missing)
    return {name: existing[name] for name in partition_counts}


def identify(config: Reachable, topics: Collection[str]) -> Origin:
    """What the cluster and these topics, which must exist, call themselves."""
    cluster = Cluster(config)
    cluster_id = cluster.metadata().cluster_id
    asked = cluster.client.describe_topics(TopicCollection(list(topics)), request_timeout=ANSWER_S_MAX)
    topic_ids: dict[str, str] = {}
    for name, future in asked.items():
        try:
            topic_id = str(future.result().topic_id)
        except KafkaException as error:
            raise FaultError(
                f"topic {name} could not be described at {config.bootstrap}: {error.args[0].str()}"
            ) from error
        if topic_id != _NO_ID:
            topic_ids[name] = topic_id
    return Origin(cluster_id=cluster_id, topic_ids=topic_ids)


def ask_starts(config: Reachable, topics: Sequence[Topic]) -> dict[str, dict[int, int]]:
    """The offsets that the topics' starts mean now, by topic and partition. The topics must exist."""
    cluster = Cluster(config)
    counts = cluster.partition_counts()
    return {topic.name: _start_offsets(cluster, topic, counts[topic.name]) for topic in topics}


def ask_partition_counts(config: Reachable, topics: Collection[str]) -> dict[str, int]:
    """How many partitions the topics, which must exist, have now."""
    counts = Cluster(config).partition_counts()
    return {name: counts[name] for name in topics}


def _start_offsets(cluster: Cluster, topic: Topic, partition_count: int) -> dict[int, int]:
    start, places = topic.start, [(topic.name, partition) for partition in range(partition_count)]
    if start == "earliest":
        return {partition: FIRST for _, partition in places}
    ends = cluster.offsets(dict.fromkeys(places, OffsetSpec.latest()))
    if isinstance(start, datetime):
        moment = OffsetSpec.for_timestamp(round(start.timestamp() * 1000))
        since = cluster.offsets(dict.fromkeys(places, moment))
        # Where nothing is as new as that, the next record is the first that can be.
        return {place[1]: since[place] if since[place] >= 0 else ends[place] for place in places}
    if isinstance(start, Mapping):
        firsts = cluster.offsets(dict.fromkeys(places, OffsetSpec.earliest()))
        for partition, offset in start.items():
            place = (topic.name, partition)
            if place not in ends:
                raise ConfigError(
                    f"topic {topic.name} has partitions 0 to {partition_count - 1}, not {partition}"
                )
            if not firsts[place] <= offset <= ends[place]:
                raise ConfigError(
                    f"partition {partition} of {topic.name} has offsets {firsts[place]} to {ends[place]}, "
                    f"not {offset}: start at one of these"
                )
        return {partition: start.get(partition, FIRST) for _, partition in places}
    return {partition: ends[topic.name, partition] for _, partition in places}


def _create(cluster: Cluster, partition_counts: Mapping[str, int]) -> None:
    new_topics = [NewTopic(name, num_partitions=count) for name, count in partition_counts.items()]
    for name, future in cluster.client.create_topics(new_topics, request_timeout=ANSWER_S_MAX).items():
        try:
            future.result()
        except KafkaException as error:
            reason: KafkaError = error.args[0]
            # Somebody else may have created it since we looked.
            if reason.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise FaultError(
                    f"topic {name} could not be created at {cluster.bootstrap}: {reason.str()}"
                ) from error


def _await_topics(cluster: Cluster, names: Mapping[str, int]) -> dict[str, int]:
    deadline_s = time.monotonic() + APPEAR_S_MAX
    while not names.keys() <= (existing := cluster.partition_counts()).keys():
        if time.monotonic() > deadline_s:
            missing = ", ".join(sorted(names.keys() - existing.keys()))
            raise FaultError(f"{missing} did not appear at {cluster.bootstrap} within {APPEAR_S_MAX:.0f} s")
        time.sleep(_APPEAR_PAUSE_S)
    return existing
