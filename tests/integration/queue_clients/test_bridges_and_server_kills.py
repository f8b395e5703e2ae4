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
PAUSE_S = 0.005
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
    """Publishes numbers until it is stopped, each with the same id until it is confirmed."""

    def __init__(self, url: str, queue: str) -> None:
        super().__init__()
        self._url, self._queue = url, queue
        self.stopping = threading.Event()
        self.count = 0

    def run(self) -> None:
        """Publish."""
        asyncio.run(self._publish())

    async def _publish(self) -> None:
        is_pending = False
        while is_pending or not self.stopping.is_set():
            try:
                async with await QueueConnection.open(self._url, name="publisher") as connection:
                    channel = await connection.channel(confirms=True)
                    while is_pending or not self.stopping.is_set():
                        is_pending = True
                        properties = BasicProperties(message_id=f"m{self.count}", delivery_mode=PERSISTENT)
                        body = str(self.count).encode()
                        await channel.publish(body, properties=properties, routing_key=self._queue)
                        self.count += 1
                        is_pending = False
            except QueueServerUnavailable:
                await asyncio.sleep(0.05)


class SteadyProducer(threading.Thread):
    """Writes numbers to a topic until it is stopped, a few at a time, so that they come in many batches."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__()
        settings = {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "log_level": 0,
            "linger.ms": 0,
        }
        self._producer = Producer(settings)
        self._topic = topic
        self.stopping = threading.Event()
        self.count = 0

    def run(self) -> None:
        """Write."""
        while not self.stopping.wait(PAUSE_S):
            self._producer.produce(self._topic, str(self.count).encode())
            self._producer.poll(0)
            self.count += 1
        assert self._producer.flush(300) == 0


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


@pytest.mark.long
def test_from_a_queue_each_message_becomes_one_record_wherever_the_server_is_killed(
    broker: BrokerProcess, name: str, command: Any
) -> None:
    _count(broker.amqp_url, name)
    publisher = SteadyPublisher(broker.amqp_url, name)
    arguments = ("--from-queue", name, "--to-topic", name, "--url", broker.amqp_url, "-b", broker.bootstrap)
    with command("queues", "bridge", name, *arguments) as bridge:
        bridge.await_ready()
        _kill_at_each(TO_TOPIC, broker, publisher)
        values = eventually(lambda: _all(broker.bootstrap, name, publisher.count), within_s=300)
    assert values == list(range(publisher.count))


@pytest.mark.long
def test_from_a_topic_each_record_becomes_one_message_wherever_the_server_is_killed(
    broker: BrokerProcess, name: str, command: Any
) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(name, 1)])[name].result()
    producer = SteadyProducer(broker.bootstrap, name)
    arguments = ("--from-topic", name, "--to-queue", name, "--url", broker.amqp_url, "-b", broker.bootstrap)
    with command("queues", "bridge", name, *arguments) as bridge:
        bridge.await_ready()
        _kill_at_each(TO_QUEUE, broker, producer)
        eventually(lambda: _count(broker.amqp_url, name) >= producer.count, "all are there", within_s=300)
        bridge.end()
    assert _bodies(broker.amqp_url, name) == list(range(producer.count))


def _kill_at_each(
    steps: tuple[str, ...], broker: BrokerProcess, source: SteadyPublisher | SteadyProducer
) -> None:
    """Let the source work while the broker dies at one step after the other, and then end."""
    broker.stop()
    source.start()
    try:
        for step in steps:
            broker.start(kill_at(step, after=PASSED_WELL))
            broker.await_killed(timeout_s=120)
    finally:
        source.stopping.set()
    broker.start()
    source.join(200)
    assert source.count > 0


def _all(bootstrap: str, topic: str, count: int) -> list[int]:
    values = _values(bootstrap, topic)
    return values if len(values) >= count else []
