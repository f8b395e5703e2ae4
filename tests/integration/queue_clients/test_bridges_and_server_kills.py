"""The server that has both queues and topics is killed at one step after the other while bridges run."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pika.spec import BasicProperties

from headrace.config import Address, BrokerConfig, QueueConfig
from headrace.errors import QueueServerUnavailable
from headrace.queue_clients.connection import QueueConnection
from headrace.testing.failpoints import kill_at
from headrace.testing.process import BrokerProcess
from headrace.testing.waiting import eventually

COUNT = 2000
TO_TOPIC = (
    "queue.delivered",
    "kafka.transaction.prepared",
    "kafka.transaction.completed",
    "queue.ack.before_sync",
)
TO_QUEUE = (
    "queue.flush",
    "queue.publish.before_sync",
    "queue.publish.before_confirm",
    "queue.ack.before_sync",
)
PASSED_WELL = 3
"""How often a step is passed before the server is killed there."""
PERSISTENT = 2


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """A broker with queues in a process of its own, on ports that stay the same."""
    anywhere = Address("127.0.0.1", 0)
    config = BrokerConfig(listen=anywhere, queues=QueueConfig(listen=anywhere))
    with BrokerProcess(tmp_path / "data", config=config) as broker:
        yield broker


class SteadyPublisher(threading.Thread):
    """Publishes numbered messages, each until it is confirmed: with the same id when it is sent again."""

    def __init__(self, url: str, queue: str) -> None:
        super().__init__()
        self._url, self._queue = url, queue
        self.confirmed_count = 0
        self.allowed_count = 0
        """How many may be published for now."""

    def run(self) -> None:
        """Publish all."""
        asyncio.run(self._publish_all())

    async def _publish_all(self) -> None:
        while self.confirmed_count < COUNT:
            try:
                async with await QueueConnection.open(self._url, name="publisher") as connection:
                    channel = await connection.channel(confirms=True)
                    while self.confirmed_count < COUNT:
                        if self.confirmed_count >= self.allowed_count:
                            await asyncio.sleep(0.01)
                            continue
                        number = self.confirmed_count
                        properties = BasicProperties(message_id=f"m{number}", delivery_mode=PERSISTENT)
                        body = str(number).encode()
                        await channel.publish(body, properties=properties, routing_key=self._queue)
                        self.confirmed_count += 1
            except QueueServerUnavailable:
                await asyncio.sleep(0.05)


def _values(bootstrap: str, topic: str) -> list[int]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "test",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[int] = []
    try:
        while (message := consumer.poll(30)) is not None:
            error = message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                return values
            assert error is None, error
            values.append(int(message.value() or b""))
    finally:
        consumer.close()
    raise AssertionError("the broker does not answer")


def _bodies(url: str, queue: str) -> list[int]:
    async def take() -> list[int]:
        async with await QueueConnection.open(url, name="test") as connection:
            channel = await connection.channel()
            taken = []
            while (delivery := await channel.get(queue)) is not None:
                taken.append(int(delivery.body))
                channel.ack(delivery.tag)
            await channel.close()
            return taken

    return asyncio.run(take())


def _count(url: str, queue: str) -> int:
    async def count() -> int:
        async with await QueueConnection.open(url, name="test") as connection:
            declared = await (await connection.channel()).declare_queue(queue)
            return int(declared.message_count)

    return asyncio.run(count())


def test_from_a_queue_each_message_becomes_one_record_wherever_the_server_is_killed(
    broker: BrokerProcess, name: str, command: Any
) -> None:
    _count(broker.amqp_url, name)
    publisher = SteadyPublisher(broker.amqp_url, name)
    publisher.start()
    arguments = ("--from-queue", name, "--to-topic", name, "--url", broker.amqp_url, "-b", broker.bootstrap)
    with command("queues", "bridge", name, *arguments) as bridge:
        bridge.await_ready()
        broker.stop()
        for number, step in enumerate(TO_TOPIC, start=1):
            broker.start(kill_at(step, after=PASSED_WELL))
            publisher.allowed_count = COUNT * number // (len(TO_TOPIC) + 1)
            broker.await_killed(timeout_s=300)
        broker.start()
        publisher.allowed_count = COUNT
        values = eventually(lambda: _all(broker.bootstrap, name), "all are there", within_s=300)
    publisher.join(300)
    assert values == list(range(COUNT))


def test_from_a_topic_each_record_becomes_one_message_wherever_the_server_is_killed(
    broker: BrokerProcess, name: str, command: Any
) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(name, 1)])[name].result()
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "log_level": 0})
    arguments = ("--from-topic", name, "--to-queue", name, "--url", broker.amqp_url, "-b", broker.bootstrap)
    with command("queues", "bridge", name, *arguments) as bridge:
        bridge.await_ready()
        broker.stop()
        for number, step in enumerate(TO_QUEUE):
            broker.start(kill_at(step, after=PASSED_WELL))
            for value in range(COUNT * number // len(TO_QUEUE), COUNT * (number + 1) // len(TO_QUEUE)):
                producer.produce(name, str(value).encode())
                producer.poll(0.001)
            broker.await_killed(timeout_s=300)
        broker.start()
        assert producer.flush(300) == 0
        eventually(lambda: _count(broker.amqp_url, name) >= COUNT, "all are there", within_s=300)
        bridge.end()
    assert _bodies(broker.amqp_url, name) == list(range(COUNT))


def _all(bootstrap: str, topic: str) -> list[int]:
    values = _values(bootstrap, topic)
    return values if len(values) >= COUNT else []
