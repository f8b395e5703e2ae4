"""What administrators ask about topics and change, through three admin clients and on the wire."""

from __future__ import annotations

import asyncio
import datetime as dt
from base64 import urlsafe_b64decode
from contextlib import closing
from typing import TYPE_CHECKING, Any
from uuid import UUID

import kio.schema.delete_topics.v6.request
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewPartitions as AioPartitions
from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import NewPartitions
from kafka import TopicPartition as PythonPartition
from kafka.admin import KafkaAdminClient
from kafka.errors import InvalidReplicationAssignmentError
from kio.schema.errors import ErrorCode

from headrace.broker import Broker
from headrace.config import Address, BrokerConfig

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def grow(kafka: Any, count: int, **options: Any) -> None:
    kafka.admin.create_partitions([NewPartitions("orders", count)], **options)["orders"].result(30)


def partition_count(kafka: Any) -> int:
    return len(kafka.admin.list_topics("orders", timeout=30).topics["orders"].partitions)


def test_a_topic_gets_more_partitions_that_take_records_and_stay(
    tmp_path: Path, kafka_at: Callable[[str], Any]
) -> None:
    with Broker(tmp_path) as broker:
        kafka = kafka_at(broker.bootstrap)
        kafka.create_topic("orders")
        kafka.produce("orders", [b"first"])
        grow(kafka, 5, validate_only=True)
        assert partition_count(kafka) == 1
        grow(kafka, 3)
        assert kafka.produce("orders", [b"a", b"b"], partition=2) == [0, 1]
    with Broker(tmp_path) as broker:
        kafka = kafka_at(broker.bootstrap)
        assert partition_count(kafka) == 3
        consumer = kafka.consumer()
        assert [
            consumer.get_watermark_offsets(TopicPartition("orders", n), timeout=30) for n in range(3)
        ] == [
            (0, 1),
            (0, 0),
            (0, 2),
        ]


def test_a_consumer_that_subscribed_before_gets_new_partitions(kafka: Any) -> None:
    kafka.create_topic("orders")
    consumer = kafka.consumer(topic_metadata_refresh_interval_ms=100)
    consumer.subscribe(["orders"])
    kafka.produce("orders", [b"first"])
    assert kafka.read(consumer, 1)[0].partition() == 0
    grow(kafka, 2)
    kafka.produce("orders", [b"second"], partition=1)
    # Nothing was committed, so the first record comes again after the rebalance.
    assert {message.partition() for message in kafka.read(consumer, 2)} == {0, 1}


@pytest.mark.parametrize(
    ("count", "code"),
    [
        (2, KafkaError.INVALID_PARTITIONS),
        (1, KafkaError.INVALID_PARTITIONS),
        (99, KafkaError.POLICY_VIOLATION),
    ],
)
def test_partitions_that_cannot_be_had_are_refused(
    tmp_path: Path, kafka_at: Callable[[str], Any], count: int, code: int
) -> None:
    config = BrokerConfig(listen=Address("127.0.0.1", 0), partition_count_max=50)
    with Broker(tmp_path, config=config) as broker:
        kafka = kafka_at(broker.bootstrap)
        kafka.create_topic("orders", 2)
        with pytest.raises(KafkaException) as caught:
            grow(kafka, count)
        assert caught.value.args[0].code() == code
        assert partition_count(kafka) == 2


def test_aiokafka_adds_partitions(kafka: Any, broker: Broker) -> None:
    kafka.create_topic("orders")

    async def add() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
        await admin.start()
        try:
            await admin.create_partitions({"orders": AioPartitions(4)})
        finally:
            await admin.close()

    asyncio.run(add())
    assert partition_count(kafka) == 4


def test_what_clients_may_do_is_everything(kafka: Any) -> None:
    kafka.create_topic("orders")
    described = kafka.admin.describe_topics(TopicCollection(["orders"]), include_authorized_operations=True)[
        "orders"
    ].result(30)
    operations = {operation.name for operation in described.authorized_operations}
    assert operations == {
        "READ",
        "WRITE",
        "CREATE",
        "DELETE",
        "ALTER",
        "DESCRIBE",
        "DESCRIBE_CONFIGS",
        "ALTER_CONFIGS",
    }
    cluster = kafka.admin.describe_cluster(include_authorized_operations=True).result(30)
    assert "IDEMPOTENT_WRITE" in {operation.name for operation in cluster.authorized_operations}


def test_who_asks_for_access_rules_hears_that_there_are_none(raw: Any) -> None:
    answer = raw.request(
        29,
        3,
        resource_type_filter=2,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    assert answer.error_code is ErrorCode.security_disabled
    assert "no access rules" in answer.error_message


def test_there_are_no_quotas(raw: Any) -> None:
    answer = raw.request(48, 1, components=(), strict=False)
    assert (answer.error_code, answer.entries) == (ErrorCode.none, ())


def test_kafka_python_asks_about_directories_leaders_moves_and_pages(broker: Broker, kafka: Any) -> None:
    kafka.create_topic("orders", 2)
    kafka.produce("orders", [b"x" * 1_000], partition=1)
    with closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap)) as admin:
        assert admin.list_partition_reassignments() == {}
        (of_broker,) = admin.describe_log_dirs()
        (found,) = of_broker["log_dirs"]
        (topic,) = found["topics"]
        sizes = {each["partition_index"]: each["partition_size"] for each in topic["partitions"]}
        assert sizes[0] == 0
        assert sizes[1] > 1_000
        assert found["log_dir"] == str(broker.data_dir / "log")
        assert found["usable_bytes"] > 0
        (described,) = admin.describe_topic_partitions(["orders"])["topics"]
        assert [each["leader_id"] for each in described["partitions"]] == [1, 1]
        elected = admin.elect_leaders(0, {"orders": [0]})
        (result,) = elected.replica_election_results
        assert [each.error_code for each in result.partition_result] == [ErrorCode.election_not_needed.value]
        partition = PythonPartition("orders", 0)
        assert admin.alter_partition_reassignments({partition: [1]}) == {partition: None}
        assert admin.alter_partition_reassignments({partition: [2]}) == {
            partition: InvalidReplicationAssignmentError
        }


@pytest.mark.parametrize(("name", "other"), [("a.b", "a_b"), ("a_b.c", "a.b_c")])
def test_names_that_kafka_would_take_for_the_same_are_refused(kafka: Any, name: str, other: str) -> None:
    kafka.create_topic(name)
    with pytest.raises(KafkaException, match=f"collides with topic {name}") as caught:
        kafka.create_topic(other)
    assert caught.value.args[0].code() == KafkaError.TOPIC_EXCEPTION


def test_a_topic_is_deleted_by_its_name_or_by_its_id_and_once(kafka: Any, raw: Any) -> None:
    kafka.create_topic("orders")
    topic_id = kafka.admin.describe_topics(TopicCollection(["orders"]))["orders"].result(30).topic_id
    schemas: Any = kio.schema.delete_topics.v6.request
    by_id = UUID(bytes=urlsafe_b64decode(str(topic_id) + "=="))

    def delete(*topics: Any) -> list[str]:
        answer = raw.request(20, 6, topics=topics, timeout=dt.timedelta(seconds=30))
        return [each.error_code.name for each in answer.responses]

    neither = schemas.DeleteTopicState(name=None, topic_id=None)
    both = schemas.DeleteTopicState(name="orders", topic_id=by_id)
    named = schemas.DeleteTopicState(name="orders", topic_id=None)
    assert delete(neither) == delete(both) == delete(named, named) == ["invalid_request"]
    assert delete(schemas.DeleteTopicState(name=None, topic_id=by_id), neither) == ["none", "invalid_request"]
    assert delete(schemas.DeleteTopicState(name=None, topic_id=by_id)) == ["unknown_topic_id"]
