"""A broker that is told to stop: what is under way ends well, and the next one takes over."""

from __future__ import annotations

import signal
import socket
import threading
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaException, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

QUEUED_COUNT_MAX = 5_000


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_broker_that_is_told_to_stop_ends_with_code_0_while_clients_wait(
    broker_process: Any, kafka_at: Callable[[str], Any], number: int
) -> None:
    kafka = kafka_at(broker_process.bootstrap)
    kafka.create_topic("orders")
    consumer = kafka.consumer("readers", fetch_wait_max_ms=20_000)
    consumer.subscribe(["orders"])
    consumer.poll(0.5)
    idle = [socket.create_connection(("127.0.0.1", broker_process.address.port)) for _ in range(5)]
    assert broker_process.kill(number) == 0
    for each in idle:
        each.close()


def test_the_next_broker_takes_the_same_port_at_once_and_clients_go_on(
    broker_process: Any, kafka_at: Callable[[str], Any]
) -> None:
    kafka = kafka_at(broker_process.bootstrap)
    producer = kafka.producer()
    for number in range(2):
        producer.produce("orders", b"%d" % number)
        assert producer.flush(30) == 0
        assert broker_process.kill(signal.SIGTERM) == 0
        broker_process.start()
    values = [message.value() for message in kafka.read(subscribed(kafka), 2)]
    assert values == [b"0", b"1"]


def subscribed(kafka: Any) -> Any:
    consumer = kafka.consumer("readers", isolation_level="read_committed")
    consumer.subscribe(["orders"])
    return consumer


def test_a_transaction_that_is_open_when_the_broker_stops_can_be_committed_after(
    broker_process: Any, kafka_at: Callable[[str], Any]
) -> None:
    kafka = kafka_at(broker_process.bootstrap)
    kafka.create_topic("orders")
    producer = kafka.producer(transactional_id="till")
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("orders", b"paid")
    assert producer.flush(30) == 0
    assert broker_process.kill(signal.SIGTERM) == 0
    broker_process.start()
    producer.commit_transaction(30)
    assert [message.value() for message in kafka.read(subscribed(kafka), 1)] == [b"paid"]


def test_a_transaction_that_nobody_ends_after_the_restart_is_not_shown(
    broker_process: Any, kafka_at: Callable[[str], Any]
) -> None:
    kafka = kafka_at(broker_process.bootstrap)
    kafka.create_topic("orders")
    forgotten = kafka.producer(transactional_id="till")
    forgotten.init_transactions(30)
    forgotten.begin_transaction()
    forgotten.produce("orders", b"never")
    assert forgotten.flush(30) == 0
    assert broker_process.kill(signal.SIGTERM) == 0
    broker_process.start()
    successor = kafka.producer(transactional_id="till")
    successor.init_transactions(30)
    successor.begin_transaction()
    successor.produce("orders", b"paid")
    successor.commit_transaction(30)
    assert [message.value() for message in kafka.read(subscribed(kafka), 1)] == [b"paid"]
    with pytest.raises(KafkaException):
        forgotten.commit_transaction(5)


def test_everything_acknowledged_before_the_stop_is_there_after_it(
    broker_process: Any, kafka_at: Callable[[str], Any]
) -> None:
    kafka = kafka_at(broker_process.bootstrap)
    kafka.create_topic("orders")
    producer = kafka.producer(message_timeout_ms=3_000)
    acknowledged: list[bytes] = []
    stopping = threading.Event()

    def note(error: Any, message: Any) -> None:
        if error is None:
            acknowledged.append(message.value())

    def produce() -> None:
        number = 0
        while not stopping.is_set():
            producer.poll(0 if len(producer) < QUEUED_COUNT_MAX else 0.01)
            if len(producer) < QUEUED_COUNT_MAX:
                producer.produce("orders", b"%d" % number, on_delivery=note)
                number += 1

    thread = threading.Thread(target=produce)
    thread.start()
    while len(acknowledged) < 1_000:
        stopping.wait(0.01)
    assert broker_process.kill(signal.SIGTERM) == 0
    stopping.set()
    thread.join()
    broker_process.start()
    producer.flush(30)
    consumer = subscribed(kafka)
    # What was written and not acknowledged in time is there, too.
    _, end_offset = consumer.get_watermark_offsets(TopicPartition("orders", 0), timeout=30)
    values = {message.value() for message in kafka.read(consumer, end_offset)}
    assert set(acknowledged) <= values
