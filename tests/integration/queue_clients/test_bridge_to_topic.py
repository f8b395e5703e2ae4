"""From a queue to a topic: each message becomes one record, whatever is killed."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pika.spec import BasicProperties

from headrace.config import ToTopicConfig
from headrace.errors import BridgeReplaced
from headrace.queue_clients.bridge.topic_writer import TopicWriter
from headrace.testing.deliveries import delivery
from headrace.testing.failpoints import kill_at
from headrace.testing.waiting import eventually

COUNT = 1200
STEPS = ("bridge.topic.sent", "bridge.topic.committed", "bridge.topic.acknowledged")


def records_of(bootstrap: str, topic: str) -> list[Any]:
    """All committed records of a topic's first partition."""
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
    found: list[Any] = []
    try:
        while True:
            message = consumer.poll(30)
            assert message is not None, "the broker does not answer"
            error = message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                return found
            assert error is None, error
            found.append(message)
    finally:
        consumer.close()


@pytest.fixture
def bridge(queues: Any, name: str, bootstrap: str, command: Any) -> Callable[..., Any]:
    """Starts a bridge from queue NAME to topic NAME."""

    def start(**environment: str) -> Any:
        arguments = ("--from-queue", name, "--to-topic", name, "--url", queues.url, "-b", bootstrap)
        return command("queues", "bridge", name, *arguments, environment=environment)

    return start


def test_each_message_becomes_one_record_wherever_the_bridge_is_killed(
    queues: Any, name: str, bootstrap: str, bridge: Callable[..., Any]
) -> None:
    queues.declare(name)
    bodies = [str(number).encode() for number in range(COUNT)]
    queues.publish(name, *bodies)
    for step in STEPS:
        with bridge(**kill_at(step)) as killed:
            killed.await_killed()
    with bridge() as last:
        last.await_ready()
        eventually(lambda: len(records_of(bootstrap, name)) >= COUNT, "all are there", within_s=300)
        assert last.end() == ""
    assert queues.count(name) == 0, "all is acknowledged: nothing comes back when the bridge has ended"
    records = records_of(bootstrap, name)
    assert [record.value() for record in records] == bodies
    assert len({dict(record.headers())["amqp.message_id"] for record in records}) == COUNT


@pytest.mark.parametrize("queues", ["embedded"], indirect=True)
def test_what_a_publisher_sends_twice_with_one_id_is_one_record(
    queues: Any, name: str, bootstrap: str, bridge: Callable[..., Any]
) -> None:
    queues.declare(name)

    async def publish_twice(connection: Any) -> None:
        channel = await connection.channel(confirms=True)
        for number in (1, 2, 1, 3, 2):
            properties = BasicProperties(message_id=f"m{number}", delivery_mode=2)
            await channel.publish(str(number).encode(), properties=properties, routing_key=name)

    queues.run(publish_twice)
    with bridge() as running:
        running.await_ready()
        eventually(lambda: len(records_of(bootstrap, name)) >= 3, "they are there", within_s=300)
        eventually(lambda: queues.count(name) == 0, "the queue is empty", within_s=300)
        running.end()
    assert [record.value() for record in records_of(bootstrap, name)] == [b"1", b"2", b"3"]


@pytest.mark.parametrize("queues", ["embedded"], indirect=True)
def test_what_the_topic_does_not_take_is_kept_with_the_cause_and_the_rest_goes_on(
    queues: Any, name: str, bootstrap: str, bridge: Callable[..., Any]
) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(name, 1, config={"max.message.bytes": "2000"})])[name].result()
    queues.declare(name)
    queues.publish(name, b"a", b"x" * 50_000, b"b")
    with bridge() as running:
        running.await_ready()
        eventually(lambda: len(records_of(bootstrap, name)) == 2, "the others are there", within_s=300)
        assert "does not take message" in running.end()
    assert [record.value() for record in records_of(bootstrap, name)] == [b"a", b"b"]
    [refused] = queues.take(f"{name}.refused")
    assert refused.body == b"x" * 50_000
    assert refused.headers["x-death"][0]["reason"] == "bridge-refused"
    assert "large" in refused.headers["x-headrace-cause"].lower()
    assert queues.take(name) == []


def test_an_exchange_feeds_a_topic(queues: Any, name: str, bootstrap: str, command: Any) -> None:
    async def prepare(connection: Any) -> None:
        await (await connection.channel()).declare_exchange(name, "topic")

    queues.run(prepare)
    arguments = ("--from-exchange", name, "--binding-key", "order.*", "--to-topic", name)
    with command("queues", "bridge", name, *arguments, "--url", queues.url, "-b", bootstrap) as running:
        running.await_ready()
        queues.declare(f"{name}.workers")

        async def bind(connection: Any) -> None:
            await (await connection.channel()).bind(f"{name}.workers", name, "#")

        queues.run(bind)
        queues.publish("order.new", b"1", exchange=name)
        queues.publish("invoice.new", b"2", exchange=name)
        queues.publish("order.paid", b"3", exchange=name)
        eventually(lambda: len(records_of(bootstrap, name)) == 2, "both are there", within_s=300)
        running.end()
    assert [(each.key(), each.value()) for each in records_of(bootstrap, name)] == [
        (b"order.new", b"1"),
        (b"order.paid", b"3"),
    ]
    assert [each.body for each in queues.take(f"{name}.workers")] == [b"1", b"2", b"3"]


@pytest.mark.parametrize("queues", ["embedded"], indirect=True)
def test_a_second_bridge_of_a_name_fences_the_first_and_nothing_is_doubled(
    queues: Any, name: str, bootstrap: str, bridge: Callable[..., Any]
) -> None:
    queues.declare(name)
    with bridge() as first, bridge() as second:
        first.await_ready()
        second.await_ready()
        queues.publish(name, *(str(number).encode() for number in range(COUNT)))
        ended = eventually(
            lambda: [each for each in (first, second) if each.process.poll() is not None],
            "one of them is fenced",
            within_s=300,
        )
        assert "taken over" in ended[0].end()
        values = eventually(lambda: _all_values(bootstrap, name), "all are there", within_s=300)
    assert sorted(values) == list(range(COUNT))


class _Forgetful:
    """A producer that loses its errors in `flush`, as the library does when callbacks run over them."""

    def __init__(self, producer: Any) -> None:
        self._producer = producer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)

    def flush(self, timeout_s: float) -> int:
        """Send all there is, and say nothing of how that went."""
        with suppress(KafkaException, SystemError):
            self._producer.flush(timeout_s)
        raise SystemError("<method 'flush'> returned NULL without setting an exception")


def test_a_writer_that_is_fenced_says_so_also_where_the_library_has_lost_the_error(
    name: str, bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = ToTopicConfig(name=name, topic=name, queue=name, bootstrap=bootstrap)
    first, second = TopicWriter(config), TopicWriter(config)
    monkeypatch.setattr(first, "_producer", _Forgetful(first._producer))
    with pytest.raises(BridgeReplaced, match="taken over"):
        first.hand_over([delivery(message_id="m")])
    assert second.hand_over([delivery(message_id="m")]).written == 1
    first.close()
    second.close()


def _all_values(bootstrap: str, topic: str) -> list[int]:
    values = [json.loads(record.value()) for record in records_of(bootstrap, topic)]
    return values if len(values) >= COUNT else []


@pytest.mark.parametrize("queues", ["embedded"], indirect=True)
def test_a_queue_that_is_not_there_is_said(queues: Any, name: str, bridge: Callable[..., Any]) -> None:
    with bridge() as running:
        said = running.process.communicate(timeout=400)[1]
    assert "no queue" in said
    assert running.process.returncode == 1
