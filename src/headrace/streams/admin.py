"""What is asked of the cluster before Spark starts, by the Kafka protocol.

Topics must exist, or Spark refuses to start; and they must be those that a checkpoint speaks of.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Final

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient, ClusterMetadata, NewTopic

from headrace.errors import BrokerUnavailable, FaultError
from headrace.streams.origin import Origin

ANSWER_S_MAX: Final = 5.0
"""How long a broker may take to answer."""
APPEAR_S_MAX: Final = 30.0
"""How long a topic that was just created may take to appear in the metadata."""
_APPEAR_PAUSE_S: Final = 0.05
_NO_ID: Final = "A" * 22
"""The id of 16 zero bytes, in base64: what a topic has in a cluster without topic ids."""


def ensure_topics(bootstrap: str, partition_counts: Mapping[str, int]) -> dict[str, int]:
    """Create the topics that don't exist, each with so many partitions.

    Returns how many partitions each of them has. A topic that exists keeps what it has.
    """
    client = _client(bootstrap)
    existing = _partition_counts(client, bootstrap)
    missing = {name: count for name, count in partition_counts.items() if name not in existing}
    if missing:
        _create(client, bootstrap, missing)
        existing = _await_topics(client, bootstrap, missing)
    return {name: existing[name] for name in partition_counts}


def identify(bootstrap: str, topics: Collection[str]) -> Origin:
    """What the cluster and these topics, which must exist, call themselves."""
    client = _client(bootstrap)
    cluster_id = _metadata(client, bootstrap).cluster_id
    asked = client.describe_topics(TopicCollection(list(topics)), request_timeout=ANSWER_S_MAX)
    topic_ids: dict[str, str] = {}
    for name, future in asked.items():
        try:
            topic_id = str(future.result().topic_id)
        except KafkaException as error:
            reason: KafkaError = error.args[0]
            raise FaultError(f"topic {name} could not be described at {bootstrap}: {reason.str()}") from error
        if topic_id != _NO_ID:
            topic_ids[name] = topic_id
    return Origin(cluster_id=cluster_id, topic_ids=topic_ids)


def _client(bootstrap: str) -> AdminClient:
    # The client's own log would repeat each refused connection on standard error.
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def _create(client: AdminClient, bootstrap: str, partition_counts: Mapping[str, int]) -> None:
    new_topics = [NewTopic(name, num_partitions=count) for name, count in partition_counts.items()]
    for name, future in client.create_topics(new_topics, request_timeout=ANSWER_S_MAX).items():
        try:
            future.result()
        except KafkaException as error:
            reason: KafkaError = error.args[0]
            # Somebody else may have created it since we looked.
            if reason.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise FaultError(
                    f"topic {name} could not be created at {bootstrap}: {reason.str()}"
                ) from error


def _await_topics(client: AdminClient, bootstrap: str, names: Mapping[str, int]) -> dict[str, int]:
    deadline_s = time.monotonic() + APPEAR_S_MAX
    while not names.keys() <= (existing := _partition_counts(client, bootstrap)).keys():
        if time.monotonic() > deadline_s:
            missing = ", ".join(sorted(names.keys() - existing.keys()))
            raise FaultError(f"{missing} did not appear at {bootstrap} within {APPEAR_S_MAX:.0f} s")
        time.sleep(_APPEAR_PAUSE_S)
    return existing


def _partition_counts(client: AdminClient, bootstrap: str) -> dict[str, int]:
    topics = _metadata(client, bootstrap).topics
    return {name: len(topic.partitions) for name, topic in topics.items() if topic.partitions}


def _metadata(client: AdminClient, bootstrap: str) -> ClusterMetadata:
    """Of all topics at once: asking for one by name could create it."""
    try:
        return client.list_topics(timeout=ANSWER_S_MAX)
    except KafkaException as error:
        raise BrokerUnavailable(
            f"no broker answers at {bootstrap}: start one with `headrace broker`, or name another with "
            "--bootstrap"
        ) from error
