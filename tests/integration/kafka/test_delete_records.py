"""Records deleted up to an offset, through three admin clients."""

from __future__ import annotations

import asyncio
import datetime as dt
from contextlib import closing
from typing import TYPE_CHECKING, Any

import kio.schema.delete_records.v2.request
import pytest
from aiokafka import TopicPartition as AioPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewTopic
from kafka import TopicPartition as PythonPartition
from kafka.admin import KafkaAdminClient

from headrace.broker import Broker

if TYPE_CHECKING:
    from collections.abc import Callable

DELETE_RECORDS = 21
HIGH_WATERMARK = -1


def delete_below(kafka: Any, offset: int, partition: int = 0, topic: str = "orders") -> int:
    """Delete, and return where the log begins then."""
    asked = TopicPartition(topic, partition, offset)
    (future,) = kafka.admin.delete_records([asked]).values()
    low_watermark: int = future.result(30).low_watermark
    return low_watermark


def watermarks(kafka: Any) -> tuple[int, int]:
    found: tuple[int, int] = kafka.consumer().get_watermark_offsets(TopicPartition("orders", 0), timeout=30)
    return found


def test_records_below_an_offset_are_gone_and_the_others_keep_theirs(kafka: Any) -> None:
    kafka.create_topic("orders")
    for value in (b"a", b"b", b"c", b"d"):
        kafka.produce("orders", [value])
    assert delete_below(kafka, 2) == 2
    assert watermarks(kafka) == (2, 4)
    assert delete_below(kafka, 1) == 2, "what is gone already is no error"
    consumer = kafka.consumer()
    consumer.assign([TopicPartition("orders", 0, 0)])
    read = kafka.read(consumer, 2)
    assert [(message.offset(), message.value()) for message in read] == [(2, b"c"), (3, b"d")]
    assert delete_below(kafka, HIGH_WATERMARK) == 4
    assert kafka.produce("orders", [b"e"]) == [4]


@pytest.mark.parametrize(
    ("topic", "partition", "offset", "error"),
    [
        ("orders", 0, 2, "offset_out_of_range"),
        ("orders", 0, -2, "offset_out_of_range"),
        ("orders", 7, 0, "unknown_topic_or_partition"),
        ("nowhere", 0, 0, "unknown_topic_or_partition"),
        ("table", 0, 0, "policy_violation"),
        ("__consumer_offsets", 0, 0, "invalid_topic_exception"),
    ],
)
def test_what_can_not_be_deleted_is_refused(
    kafka: Any, raw: Any, topic: str, partition: int, offset: int, error: str
) -> None:
    kafka.create_topic("orders")
    kafka.produce("orders", [b"x"])
    table = NewTopic("table", 1, 1, config={"cleanup.policy": "compact"})
    kafka.admin.create_topics([table])["table"].result(30)
    kafka.consumer().commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)
    schemas: Any = kio.schema.delete_records.v2.request
    asked = schemas.DeleteRecordsPartition(partition_index=partition, offset=offset)
    topics = (schemas.DeleteRecordsTopic(name=topic, partitions=(asked,)),)
    answer = raw.request(DELETE_RECORDS, 2, topics=topics, timeout=dt.timedelta(seconds=30))
    (told,) = answer.topics[0].partitions
    assert (told.error_code.name, told.low_watermark) == (error, -1)


def test_a_deletion_that_was_answered_survives_a_kill(
    broker_process: Any, kafka_at: Callable[[str], Any]
) -> None:
    kafka = kafka_at(broker_process.bootstrap)
    kafka.create_topic("orders")
    kafka.produce("orders", [b"a", b"b", b"c"])
    delete_below(kafka, 2)
    broker_process.kill()
    broker_process.start()
    assert watermarks(kafka_at(broker_process.bootstrap)) == (2, 3)


def test_who_is_at_the_end_loses_nothing_when_all_records_go(kafka: Any) -> None:
    kafka.create_topic("orders")
    kafka.produce("orders", [b"a", b"b", b"c"])
    consumer = kafka.consumer(auto_offset_reset="error")
    consumer.assign([TopicPartition("orders", 0, 1)])
    assert kafka.read(consumer, 2)[-1].offset() == 2
    delete_below(kafka, HIGH_WATERMARK)
    kafka.produce("orders", [b"d"])
    assert kafka.read(consumer, 1)[0].value() == b"d"


def test_kafka_python_deletes_records(broker: Broker, kafka: Any) -> None:
    kafka.create_topic("orders")
    kafka.produce("orders", [b"a", b"b", b"c"])
    with closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap)) as admin:
        admin.delete_records({PythonPartition("orders", 0): 1})
    assert watermarks(kafka) == (1, 3)


def test_aiokafka_deletes_records(broker: Broker, kafka: Any) -> None:
    kafka.create_topic("orders")
    kafka.produce("orders", [b"a", b"b", b"c"])

    async def delete() -> Any:
        admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
        await admin.start()
        try:
            return await admin.delete_records({AioPartition("orders", 0): RecordsToDelete(before_offset=1)})
        finally:
            await admin.close()

    assert asyncio.run(delete()) == {AioPartition("orders", 0): 1}
    assert watermarks(kafka) == (1, 3)
