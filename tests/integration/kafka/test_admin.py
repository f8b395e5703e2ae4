"""Topics, settings and the cluster, through a real admin client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import ConfigResource, NewTopic, ResourceType

from headrace.broker import Broker
from headrace.config import Address, BrokerConfig

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def create(kafka: Any, topic: NewTopic, *, validate_only: bool = False) -> KafkaError | None:
    """Create a topic, and return the error if there is one."""
    (future,) = kafka.admin.create_topics([topic], validate_only=validate_only).values()
    try:
        future.result(30)
    except KafkaException as error:
        found: KafkaError = error.args[0]
        return found
    return None


def topics(kafka: Any) -> dict[str, int]:
    return {name: len(topic.partitions) for name, topic in kafka.admin.list_topics(timeout=30).topics.items()}


def test_a_topic_is_created_with_its_partitions(kafka: Any) -> None:
    assert create(kafka, NewTopic("orders", 5, 1)) is None
    assert topics(kafka) == {"orders": 5}


def test_a_topic_for_which_nobody_says_how_many_partitions_gets_the_default(
    tmp_path: Path, kafka_at: Callable[[str], Any]
) -> None:
    config = BrokerConfig(listen=Address("127.0.0.1", 0), default_partition_count=3)
    with Broker(tmp_path, config=config) as broker:
        kafka = kafka_at(broker.bootstrap)
        assert create(kafka, NewTopic("orders", -1, -1)) is None
        kafka.produce("made-by-producing", [b"x"])
        assert topics(kafka) == {"orders": 3, "made-by-producing": 3}


def test_a_topic_that_is_only_validated_is_not_created(kafka: Any) -> None:
    assert create(kafka, NewTopic("orders", 5, 1), validate_only=True) is None
    assert topics(kafka) == {}


@pytest.mark.parametrize(
    ("topic", "code", "message"),
    [
        (NewTopic("bad/name", 1, 1), KafkaError.TOPIC_EXCEPTION, "is not a topic name"),
        (NewTopic("..", 1, 1), KafkaError.TOPIC_EXCEPTION, "is not a topic name"),
        (NewTopic("x" * 250, 1, 1), KafkaError.TOPIC_EXCEPTION, "is not a topic name"),
        (NewTopic("orders", 1, 3), KafkaError.INVALID_REPLICATION_FACTOR, "there is 1"),
        (NewTopic("orders", 0, 1), KafkaError.INVALID_PARTITIONS, "at least 1"),
        (NewTopic("orders", 30_000, 1), KafkaError.POLICY_VIOLATION, "partition_count_max"),
        (NewTopic("__consumer_offsets", 1, 1), KafkaError.TOPIC_EXCEPTION, "broker's own"),
        (NewTopic("o", 1, 1, config={"no.such": "1"}), KafkaError.INVALID_CONFIG, "no.such. Known are: "),
        (
            NewTopic("o", 1, 1, config={"cleanup.policy": "burn"}),
            KafkaError.INVALID_CONFIG,
            "cleanup.policy: use any of compact, delete",
        ),
    ],
)
def test_a_topic_that_cannot_be_is_refused_with_a_reason(
    kafka: Any, topic: NewTopic, code: int, message: str
) -> None:
    error = create(kafka, topic)
    assert error is not None
    assert error.code() == code
    assert message in error.str()
    assert topics(kafka) == {}


def test_a_topic_that_exists_is_not_created_again(kafka: Any) -> None:
    create(kafka, NewTopic("orders", 2, 1))
    error = create(kafka, NewTopic("orders", 4, 1))
    assert error is not None
    assert error.code() == KafkaError.TOPIC_ALREADY_EXISTS
    assert topics(kafka) == {"orders": 2}


def test_no_more_topics_than_the_maximum(tmp_path: Path, kafka_at: Callable[[str], Any]) -> None:
    config = BrokerConfig(listen=Address("127.0.0.1", 0), topic_count_max=2)
    with Broker(tmp_path, config=config) as broker:
        kafka = kafka_at(broker.bootstrap)
        codes = [create(kafka, NewTopic(name, 1, 1)) for name in ("a", "b", "c")]
        assert codes[:2] == [None, None]
        assert codes[2] is not None
        assert codes[2].code() == KafkaError.POLICY_VIOLATION


def test_a_deleted_topic_is_gone_and_one_of_its_name_starts_empty(kafka: Any) -> None:
    kafka.create_topic("orders")
    kafka.produce("orders", [b"old"])
    kafka.admin.delete_topics(["orders"])["orders"].result(30)
    assert topics(kafka) == {}
    kafka.create_topic("orders")
    assert kafka.produce("orders", [b"new"]) == [0]
    consumer = kafka.consumer()
    consumer.assign([TopicPartition("orders", 0, 0)])
    assert [message.value() for message in kafka.read(consumer, 1)] == [b"new"]


@pytest.mark.parametrize(
    ("name", "code"),
    [("nowhere", KafkaError.UNKNOWN_TOPIC_OR_PART), ("__consumer_offsets", KafkaError.INVALID_REQUEST)],
)
def test_a_topic_that_cannot_be_deleted_is_refused(kafka: Any, name: str, code: int) -> None:
    kafka.create_topic("orders")
    kafka.consumer().commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)
    with pytest.raises(KafkaException) as caught:
        kafka.admin.delete_topics([name])[name].result(30)
    assert caught.value.args[0].code() == code


def test_the_topic_of_committed_offsets_takes_no_records_from_outside(kafka: Any) -> None:
    kafka.create_topic("orders")
    kafka.consumer().commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)
    producer = kafka.producer(enable_idempotence=False)
    errors: list[KafkaError | None] = []
    producer.produce("__consumer_offsets", b"x", on_delivery=lambda error, _: errors.append(error))
    producer.flush(30)
    assert errors[0] is not None
    assert errors[0].code() == KafkaError.TOPIC_EXCEPTION


def test_the_settings_of_a_topic_are_those_that_hold(tmp_path: Path, kafka_at: Callable[[str], Any]) -> None:
    config = BrokerConfig(listen=Address("127.0.0.1", 0), message_bytes_max=123_456)
    with Broker(tmp_path, config=config) as broker:
        kafka = kafka_at(broker.bootstrap)
        kafka.create_topic("orders")
        resource = ConfigResource(ResourceType.TOPIC, "orders")
        settings = kafka.admin.describe_configs([resource])[resource].result(30)
    assert settings["max.message.bytes"].value == "123456"
    assert settings["retention.ms"].value == "-1"
    assert settings["compression.type"].value == "producer"


def test_the_settings_of_the_broker_are_those_that_hold(kafka: Any) -> None:
    resource = ConfigResource(ResourceType.BROKER, "1")
    settings = kafka.admin.describe_configs([resource])[resource].result(30)
    assert settings["auto.create.topics.enable"].value == "true"
    assert settings["num.partitions"].value == "1"


def test_the_settings_of_an_unknown_topic_are_an_error(kafka: Any) -> None:
    resource = ConfigResource(ResourceType.TOPIC, "nowhere")
    with pytest.raises(KafkaException) as caught:
        kafka.admin.describe_configs([resource])[resource].result(30)
    assert caught.value.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_the_cluster_is_one_broker_at_the_address_that_the_client_used(broker: Broker, kafka: Any) -> None:
    cluster = kafka.admin.describe_cluster().result(30)
    (node,) = cluster.nodes
    assert f"{node.host}:{node.port}" == broker.bootstrap
    assert cluster.controller.id == node.id == 1
    assert len(cluster.cluster_id) == 22


def test_the_cluster_id_stays_with_the_data(tmp_path: Path, kafka_at: Callable[[str], Any]) -> None:
    ids = set()
    for _ in range(2):
        with Broker(tmp_path) as broker:
            kafka = kafka_at(broker.bootstrap)
            ids.add(kafka.admin.describe_cluster().result(30).cluster_id)
    assert len(ids) == 1


def test_topics_are_described_with_ids_and_replicas(kafka: Any) -> None:
    kafka.create_topic("orders", 2)
    metadata = kafka.admin.list_topics("orders", timeout=30).topics["orders"]
    assert {partition.leader for partition in metadata.partitions.values()} == {1}
    assert {tuple(partition.isrs) for partition in metadata.partitions.values()} == {(1,)}
