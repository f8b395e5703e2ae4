"""Transactions with kafka-python and aiokafka, which speak other versions of the protocol."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from aiokafka.errors import KafkaError as AioKafkaError
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata

if TYPE_CHECKING:
    from contextlib import ExitStack

COUNT = 10


@pytest.fixture
def python_producer(kafka: Any, stack: ExitStack) -> Any:
    def make(transactional_id: str) -> Any:
        producer = KafkaProducer(bootstrap_servers=kafka.bootstrap, transactional_id=transactional_id)
        stack.callback(producer.close, timeout=5)
        producer.init_transactions()
        return producer

    return make


def _read_with_kafka_python(bootstrap: str, topic: str) -> list[bytes]:
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap, isolation_level="read_committed", enable_auto_commit=False
    )
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    end = consumer.end_offsets([partition])[partition]
    values: list[bytes] = []
    while consumer.position(partition) < end:
        for records in consumer.poll(timeout_ms=200).values():
            values += [record.value for record in records]
    consumer.close()
    return values


def test_kafka_python_commits_aborts_and_reads_what_is_committed(kafka: Any, python_producer: Any) -> None:
    kafka.create_topic("orders")
    producer = python_producer("writer")
    for number in range(COUNT):
        producer.begin_transaction()
        producer.send("orders", str(number).encode()).get(timeout=30)
        if number % 2:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    expected = [str(number).encode() for number in range(0, COUNT, 2)]
    assert _read_with_kafka_python(kafka.bootstrap, "orders") == expected


def test_kafka_python_commits_offsets_in_a_transaction(kafka: Any, python_producer: Any) -> None:
    kafka.create_topic("orders")
    producer = python_producer("writer")
    partition = TopicPartition("orders", 0)
    producer.begin_transaction()
    producer.send("orders", b"value").get(timeout=30)
    producer.send_offsets_to_transaction({partition: OffsetAndMetadata(7, "", -1)}, "copiers")
    producer.commit_transaction()
    consumer = KafkaConsumer(bootstrap_servers=kafka.bootstrap, group_id="copiers", enable_auto_commit=False)
    assert consumer.committed(partition) == 7
    consumer.close()


def test_kafka_python_is_fenced_by_its_successor(kafka: Any, python_producer: Any) -> None:
    kafka.create_topic("orders")
    zombie = python_producer("writer")
    zombie.begin_transaction()
    zombie.send("orders", b"zombie").get(timeout=30)
    successor = python_producer("writer")
    successor.begin_transaction()
    successor.send("orders", b"successor").get(timeout=30)
    successor.commit_transaction()
    with pytest.raises(KafkaError):
        zombie.commit_transaction()
    assert _read_with_kafka_python(kafka.bootstrap, "orders") == [b"successor"]


def test_aiokafka_commits_aborts_and_is_fenced(kafka: Any) -> None:
    kafka.create_topic("orders")
    asyncio.run(_aiokafka_story(kafka.bootstrap))


async def _aiokafka_story(bootstrap: str) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id="writer")
    await producer.start()
    for number in range(COUNT):
        await producer.begin_transaction()
        await producer.send_and_wait("orders", str(number).encode())
        if number % 2:
            await producer.abort_transaction()
        else:
            await producer.send_offsets_to_transaction({AioTopicPartition("orders", 0): number}, "copiers")
            await producer.commit_transaction()
    await producer.begin_transaction()
    await producer.send_and_wait("orders", b"zombie")
    successor = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id="writer")
    await successor.start()
    with pytest.raises(AioKafkaError):
        await producer.commit_transaction()
    async with successor.transaction():
        await successor.send("orders", b"last")
    await successor.stop()
    await producer.stop()
    consumer = AIOKafkaConsumer(
        "orders",
        bootstrap_servers=bootstrap,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        group_id="copiers",
        enable_auto_commit=False,
    )
    await consumer.start()
    assert await consumer.committed(AioTopicPartition("orders", 0)) == COUNT - 2
    await consumer.seek_to_beginning()
    values: list[bytes] = []
    while not values or values[-1] != b"last":
        values += [
            record.value
            for records in (await consumer.getmany(timeout_ms=200)).values()
            for record in records
        ]
    await consumer.stop()
    assert values == [*(str(number).encode() for number in range(0, COUNT, 2)), b"last"]
