"""From a topic to a queue: each record becomes one message, wherever a kill strikes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from headrace.config import MIB
from headrace.testing.failpoints import kill_at
from headrace.testing.waiting import eventually

COUNT = 1200
STEPS = ("bridge.queue.published", "bridge.queue.committed")


def produce(bootstrap: str, topic: str, *values: bytes, **settings: str) -> None:
    """Write records, and wait until they are there."""
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, **settings})
    for value in values:
        producer.produce(topic, value, b"key", headers=[("h", b"x")])
    assert producer.flush(30) == 0


@pytest.fixture
def topic(name: str, bootstrap: str) -> str:
    """A topic called NAME with two partitions."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(name, 2)])[name].result()
    return name


@pytest.fixture
def bridge(queues: Any, topic: str, bootstrap: str, command: Any) -> Callable[..., Any]:
    """Starts a bridge from topic NAME to queue NAME."""

    def start(*more: str, **environment: str) -> Any:
        target = more or ("--to-queue", topic)
        arguments = ("--from-topic", topic, *target, "--url", queues.url, "-b", bootstrap)
        return command("queues", "bridge", topic, *arguments, environment=environment)

    return start


def test_each_record_becomes_one_message_wherever_the_bridge_is_killed(
    queues: Any, topic: str, bootstrap: str, bridge: Callable[..., Any]
) -> None:
    values = [str(number).encode() for number in range(COUNT)]
    produce(bootstrap, topic, *values)
    for step in STEPS:
        with bridge(**kill_at(step)) as killed:
            killed.await_killed()
    with bridge() as last:
        last.await_ready()
        eventually(lambda: queues.count(topic) >= COUNT, "all are there", within_s=300)
        assert last.end() == ""
    messages = queues.take(topic)
    # No server was killed here, so that RabbitMQ's transactions are whole, too.
    assert [message.body for message in messages] == values
    assert len({message.message_id for message in messages}) == COUNT
    assert messages[0].headers["kafka.key"] == "key"
    assert messages[0].headers["h"] == "x"


def _bodies(queues: Any, queue: str, seen: list[bytes]) -> list[bytes]:
    """What was in a queue so far; it is taken out."""
    seen += [message.body for message in queues.take(queue)]
    return seen


def _has(queues: Any, queue: str, count: int) -> bool:
    return bool(queues.count(queue) == count)


@pytest.mark.parametrize("queues", ["embedded"], indirect=True)
def test_a_bridge_goes_on_where_it_was_and_waits_for_what_comes(
    queues: Any, topic: str, bootstrap: str, bridge: Callable[..., Any]
) -> None:
    for number in range(3):
        with bridge() as running:
            running.await_ready()
            produce(bootstrap, topic, str(number).encode())
            eventually(partial(_has, queues, topic, number + 1), "it is there", within_s=300)
            running.end()
    assert [message.body for message in queues.take(topic)] == [b"0", b"1", b"2"]
    position = queues.take(f"headrace.bridge.{topic}.position")
    assert len(position) == 1


@pytest.mark.parametrize("queues", ["embedded"], indirect=True)
def test_a_bridge_that_begins_at_the_end_hands_over_what_comes_only(
    queues: Any, topic: str, bootstrap: str, bridge: Callable[..., Any]
) -> None:
    produce(bootstrap, topic, b"old")
    latest = ("--to-queue", topic, "--start", "latest")
    with bridge(*latest) as running:
        running.await_ready()
        running.kill()
    produce(bootstrap, topic, b"new")
    with bridge(*latest) as running:
        running.await_ready()
        eventually(lambda: queues.count(topic) == 1, "the new one is there", within_s=300)
        running.end()
    assert [message.body for message in queues.take(topic)] == [b"new"]


def test_a_second_bridge_of_a_name_waits_and_takes_over(
    queues: Any, topic: str, bootstrap: str, bridge: Callable[..., Any]
) -> None:
    with bridge() as first:
        first.await_ready()
        produce(bootstrap, topic, b"1")
        eventually(lambda: queues.count(topic) == 1, "the first one works", within_s=300)
        with bridge() as second:
            assert second.process.stderr is not None
            assert "goes on in" in second.process.stderr.readline()
            first.kill()
            second.await_ready()
            produce(bootstrap, topic, b"2")
            eventually(lambda: queues.count(topic) == 2, "the second one works", within_s=300)
    assert [message.body for message in queues.take(topic)] == [b"1", b"2"]


@pytest.mark.parametrize("queues", ["embedded"], indirect=True)
def test_records_of_partitions_that_are_added_and_of_aborted_transactions(
    queues: Any, topic: str, bootstrap: str, bridge: Callable[..., Any]
) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(30)
    for value, is_committed in ((b"aborted", False), (b"committed", True)):
        producer.begin_transaction()
        producer.produce(topic, value)
        producer.flush(30)
        if is_committed:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result()
    with bridge() as running:
        running.await_ready()
        producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
        producer.produce(topic, b"added", partition=2)
        assert producer.flush(30) == 0
        eventually(lambda: queues.count(topic) >= 2, "both are there", within_s=300)
        running.end()
    assert {message.body for message in queues.take(topic)} == {b"committed", b"added"}


def test_large_records_are_handed_over_once_wherever_the_bridge_is_killed(
    queues: Any, name: str, bootstrap: str, bridge: Callable[..., Any], topic: str
) -> None:
    values = [bytes([number]) * 20_000 for number in range(250)] + [b"l" * 6 * MIB, b"last"]
    produce(bootstrap, topic, *values, **{"message.max.bytes": str(16 * MIB)})
    with bridge(**kill_at("bridge.queue.committed", after=3)) as killed:
        killed.await_killed()
    with bridge() as last:
        last.await_ready()
        eventually(lambda: queues.count(topic) >= len(values), "all are there", within_s=300)
        assert last.end() == ""
    assert [message.body for message in queues.take(topic)] == values


@pytest.fixture
def exchange(queues: Any, topic: str) -> tuple[str, ...]:
    """Exchange NAME, which feeds no queue, as the target of a bridge."""

    async def declare(connection: Any) -> None:
        await (await connection.channel()).declare_exchange(topic, "direct")

    queues.run(declare)
    return ("--to-exchange", topic, "--routing-key", "k")


def _bind(queues: Any, topic: str) -> None:
    async def bind(connection: Any) -> None:
        channel = await connection.channel()
        await channel.declare_queue(topic)
        await channel.bind(topic, topic, "k")

    queues.run(bind)


def test_a_message_that_no_queue_takes_stops_the_bridge_and_is_handed_over_by_the_next(
    queues: Any, topic: str, bootstrap: str, bridge: Callable[..., Any], exchange: tuple[str, ...]
) -> None:
    produce(bootstrap, topic, b"1", b"2")
    with bridge(*exchange) as running:
        said = running.process.communicate(timeout=400)[1]
    assert "NO_ROUTE" in said
    assert running.process.returncode == 1
    _bind(queues, topic)
    with bridge(*exchange) as running:
        running.await_ready()
        eventually(lambda: queues.count(topic) == 2, "both are there", within_s=300)
        running.end()
    assert [message.body for message in queues.take(topic)] == [b"1", b"2"]


def test_a_message_that_no_queue_takes_is_not_passed_over_by_a_bridge_that_is_killed(
    queues: Any, topic: str, bootstrap: str, bridge: Callable[..., Any], exchange: tuple[str, ...]
) -> None:
    seen: list[bytes] = []
    produce(bootstrap, topic, b"1", b"2")
    with bridge(*exchange, **kill_at("bridge.queue.committed")) as killed:
        killed.await_killed()
    _bind(queues, topic)
    produce(bootstrap, topic, b"3")
    with bridge(*exchange, **kill_at("bridge.queue.committed")) as killed:
        killed.await_killed()
    with bridge(*exchange) as running:
        running.await_ready()
        produce(bootstrap, topic, b"4")
        eventually(lambda: b"4" in _bodies(queues, topic, seen), "the last one is there", within_s=300)
        running.end()
    assert sorted(set(seen)) == [b"1", b"2", b"3", b"4"]
    assert seen.count(b"4") == 1


@pytest.mark.parametrize("queues", ["embedded"], indirect=True)
def test_records_that_were_deleted_before_they_were_handed_over_stop_the_bridge(
    queues: Any, topic: str, bootstrap: str, bridge: Callable[..., Any]
) -> None:
    with bridge() as running:
        running.await_ready()
        running.end()
    produce(bootstrap, topic, b"1", b"2", b"3")
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    places = [TopicPartition(topic, partition, -1) for partition in (0, 1)]
    for future in admin.delete_records(places).values():
        future.result()
    with bridge() as running:
        said = running.process.communicate(timeout=400)[1]
    assert "were deleted before bridge" in said


@pytest.mark.parametrize("queues", ["embedded"], indirect=True)
def test_a_topic_that_is_not_there_is_said(queues: Any, name: str, bootstrap: str, command: Any) -> None:
    arguments = ("--from-topic", f"{name}.nowhere", "--to-queue", name, "--url", queues.url, "-b", bootstrap)
    with command("queues", "bridge", name, *arguments) as running:
        said = running.process.communicate(timeout=400)[1]
    assert "no topic" in said
    assert running.process.returncode == 2
