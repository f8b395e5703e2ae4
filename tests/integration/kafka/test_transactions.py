"""Transactions with confluent-kafka: all or nothing, once, by one producer at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

TIMEOUT_S = 30.0


def _producer(kafka: Any, transactional_id: str = "writer", **settings: Any) -> Any:
    producer = kafka.producer(transactional_id=transactional_id, retry_backoff_ms=5, **settings)
    producer.init_transactions(TIMEOUT_S)
    return producer


def _send(producer: Any, topic: str, *values: str, partition: int = 0) -> None:
    for value in values:
        producer.produce(topic, value.encode(), partition=partition)


def _reader(kafka: Any, topic: str, partitions: int = 1, isolation: str = "read_committed") -> Any:
    consumer = kafka.consumer(f"readers-{isolation}", isolation_level=isolation, enable_partition_eof=True)
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    return consumer


def _read_to_end(consumer: Any, partitions: int = 1) -> list[str]:
    """Everything up to where the consumer sees the end of its partitions."""
    values: list[str] = []
    ended: set[int] = set()
    while len(ended) < partitions:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None, "the end of the partition did not come"
        if message.error() is None:
            values.append(message.value().decode())
        else:
            assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
            ended.add(message.partition())
    return values


def test_what_is_committed_is_read_as_soon_as_the_commit_returns(kafka: Any) -> None:
    kafka.create_topic("orders", 2)
    producer = _producer(kafka)
    for number in range(5):
        producer.begin_transaction()
        _send(producer, "orders", f"{number}a", partition=0)
        _send(producer, "orders", f"{number}b", partition=1)
        producer.commit_transaction(TIMEOUT_S)
        seen = _read_to_end(_reader(kafka, "orders", 2), 2)
        assert sorted(seen) == sorted(f"{each}{letter}" for each in range(number + 1) for letter in "ab")


def test_what_is_aborted_is_never_read_by_a_consumer_of_committed_records(kafka: Any) -> None:
    kafka.create_topic("orders")
    producer = _producer(kafka)
    for outcome in ("aborted", "committed", "aborted", "committed"):
        producer.begin_transaction()
        _send(producer, "orders", outcome)
        producer.flush(TIMEOUT_S)
        if outcome == "committed":
            producer.commit_transaction(TIMEOUT_S)
        else:
            producer.abort_transaction(TIMEOUT_S)
    assert _read_to_end(_reader(kafka, "orders")) == ["committed", "committed"]
    everything = _read_to_end(_reader(kafka, "orders", isolation="read_uncommitted"))
    assert everything == ["aborted", "committed", "aborted", "committed"]


def test_an_open_transaction_holds_back_what_comes_after_it(kafka: Any) -> None:
    kafka.create_topic("orders")
    producer = _producer(kafka)
    producer.begin_transaction()
    _send(producer, "orders", "first")
    producer.flush(TIMEOUT_S)
    kafka.produce("orders", [b"second"])
    consumer = _reader(kafka, "orders")
    assert _read_to_end(consumer) == []
    assert consumer.get_watermark_offsets(TopicPartition("orders", 0), timeout=TIMEOUT_S) == (0, 0)
    producer.commit_transaction(TIMEOUT_S)
    assert [message.value() for message in _read_count(consumer, 2)] == [b"first", b"second"]


def _read_count(consumer: Any, count: int) -> list[Any]:
    messages: list[Any] = []
    while len(messages) < count:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None, f"{len(messages)} of {count} records came"
        if message.error() is None:
            messages.append(message)
    return messages


def test_a_parked_fetch_wakes_when_the_transaction_ends(kafka: Any) -> None:
    kafka.create_topic("orders")
    producer = _producer(kafka)
    producer.begin_transaction()
    _send(producer, "orders", "first")
    producer.flush(TIMEOUT_S)
    consumer = _reader(kafka, "orders", isolation="read_committed")
    consumer.poll(0.2)
    producer.commit_transaction(TIMEOUT_S)
    assert [message.value() for message in _read_count(consumer, 1)] == [b"first"]


def test_a_new_producer_fences_the_one_before_and_aborts_what_it_left_open(kafka: Any) -> None:
    kafka.create_topic("orders")
    zombie = _producer(kafka)
    zombie.begin_transaction()
    _send(zombie, "orders", "zombie")
    zombie.flush(TIMEOUT_S)
    successor = _producer(kafka)
    successor.begin_transaction()
    _send(successor, "orders", "successor")
    successor.commit_transaction(TIMEOUT_S)
    with pytest.raises(KafkaException) as caught:
        zombie.commit_transaction(TIMEOUT_S)
    assert caught.value.args[0].fatal()
    assert caught.value.args[0].code() == KafkaError._FENCED
    assert _read_to_end(_reader(kafka, "orders")) == ["successor"]


def test_offsets_that_a_transaction_commits_count_when_it_does(kafka: Any) -> None:
    kafka.create_topic("input")
    kafka.create_topic("output")
    kafka.produce("input", [str(number).encode() for number in range(10)])
    consumer = kafka.consumer("copiers", isolation_level="read_committed")
    consumer.subscribe(["input"])
    producer = _producer(kafka)
    partition = TopicPartition("input", 0)

    def copy(count: int) -> None:
        producer.begin_transaction()
        for message in kafka.read(consumer, count):
            producer.produce("output", message.value())
        offsets = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), TIMEOUT_S)

    copy(4)
    producer.commit_transaction(TIMEOUT_S)
    assert consumer.committed([partition], timeout=TIMEOUT_S)[0].offset == 4
    copy(3)
    producer.abort_transaction(TIMEOUT_S)
    assert consumer.committed([partition], timeout=TIMEOUT_S)[0].offset == 4
    consumer.seek(TopicPartition("input", 0, 4))
    copy(6)
    producer.commit_transaction(TIMEOUT_S)
    assert consumer.committed([partition], timeout=TIMEOUT_S)[0].offset == 10
    assert _read_to_end(_reader(kafka, "output")) == [str(number) for number in range(10)]


def test_a_member_that_was_removed_from_its_group_commits_nothing(kafka: Any) -> None:
    kafka.create_topic("input")
    kafka.produce("input", [b"0"])
    consumer = kafka.consumer("copiers")
    consumer.subscribe(["input"])
    kafka.read(consumer, 1)
    metadata = consumer.consumer_group_metadata()
    consumer.close()
    other = kafka.consumer("copiers")
    other.subscribe(["input"])
    kafka.read(other, 1)
    producer = _producer(kafka)
    producer.begin_transaction()
    with pytest.raises(KafkaException) as caught:
        producer.send_offsets_to_transaction([TopicPartition("input", 0, 1)], metadata, TIMEOUT_S)
    assert caught.value.args[0].txn_requires_abort()
    producer.abort_transaction(TIMEOUT_S)
    assert other.committed([TopicPartition("input", 0)], timeout=TIMEOUT_S)[0].offset < 0


def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced(
    kafka: Any, wait_until: Callable[..., Any]
) -> None:
    kafka.create_topic("orders")
    producer = _producer(kafka, transaction_timeout_ms=1_000)
    producer.begin_transaction()
    _send(producer, "orders", "late")
    producer.flush(TIMEOUT_S)
    kafka.produce("orders", [b"other"])
    consumer = _reader(kafka, "orders")
    assert [message.value() for message in _read_count(consumer, 1)] == [b"other"]
    with pytest.raises(KafkaException):
        producer.commit_transaction(TIMEOUT_S)


def test_a_deleted_topic_does_not_hold_up_its_transaction(kafka: Any) -> None:
    kafka.create_topic("gone")
    kafka.create_topic("kept")
    producer = _producer(kafka)
    producer.begin_transaction()
    _send(producer, "gone", "1")
    _send(producer, "kept", "1")
    producer.flush(TIMEOUT_S)
    kafka.admin.delete_topics(["gone"])["gone"].result(TIMEOUT_S)
    producer.commit_transaction(TIMEOUT_S)
    assert _read_to_end(_reader(kafka, "kept")) == ["1"]


def test_a_timeout_longer_than_the_broker_allows_is_refused(kafka: Any) -> None:
    producer = kafka.producer(transactional_id="slow", transaction_timeout_ms=900_001)
    with pytest.raises(KafkaException) as caught:
        producer.init_transactions(TIMEOUT_S)
    assert caught.value.args[0].code() == KafkaError.INVALID_TRANSACTION_TIMEOUT
