"""A broker process that is killed at any moment keeps what it acknowledged, once."""

from __future__ import annotations

import datetime as dt
import signal
import threading
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

RECORD_COUNT = 3_000
KILL_COUNT = 3


class SteadyProducer:
    """An idempotent producer that keeps on sending numbered records through restarts of the broker."""

    def __init__(self, kafka: Any) -> None:
        self.producer = kafka.producer(
            enable_idempotence=True,
            acks="all",
            message_timeout_ms=60_000,
            reconnect_backoff_ms=10,
            reconnect_backoff_max_ms=50,
            retry_backoff_ms=10,
            batch_num_messages=20,
        )
        self.acknowledged: dict[int, int] = {}
        self.errors: list[KafkaError] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def join(self) -> None:
        self._thread.join()
        assert len(self.producer) == 0

    def _run(self) -> None:
        for number in range(RECORD_COUNT):
            self.producer.produce(
                "orders",
                str(number).encode(),
                partition=0,
                on_delivery=lambda error, message, number=number: self._delivered(number, error, message),
            )
            self.producer.poll(0.0005)
        self.producer.flush(60)

    def _delivered(self, number: int, error: KafkaError | None, message: Any) -> None:
        if error is None:
            self.acknowledged[number] = message.offset()
        else:
            self.errors.append(error)


def test_every_acknowledged_record_survives_kills_exactly_once_and_in_order(
    broker_process: Any, kafka_at: Callable[[str], Any], wait_until: Callable[..., Any]
) -> None:
    kafka = kafka_at(broker_process.bootstrap)
    kafka.create_topic("orders")
    producer = SteadyProducer(kafka)
    for kill in range(1, KILL_COUNT + 1):
        seen = RECORD_COUNT * kill // (KILL_COUNT + 2)
        wait_until(lambda seen=seen: len(producer.acknowledged) >= seen, f"{seen} acknowledgements")
        broker_process.kill(signal.SIGKILL)
        broker_process.start()
    producer.join()
    assert producer.errors == []
    assert len(producer.acknowledged) == RECORD_COUNT
    consumer = kafka.consumer()
    consumer.assign([TopicPartition("orders", 0, 0)])
    read = kafka.read(consumer, RECORD_COUNT)
    assert [int(message.value()) for message in read] == list(range(RECORD_COUNT))
    assert {int(message.value()): message.offset() for message in read} == producer.acknowledged
    assert consumer.get_watermark_offsets(TopicPartition("orders", 0), timeout=30)[1] == RECORD_COUNT


def test_a_group_resumes_at_its_commit_after_a_kill(
    broker_process: Any, kafka_at: Callable[[str], Any]
) -> None:
    kafka = kafka_at(broker_process.bootstrap)
    kafka.create_topic("orders")
    kafka.produce("orders", [str(number).encode() for number in range(100)])
    consumer = kafka.consumer(session_timeout_ms=6_000, reconnect_backoff_ms=10, reconnect_backoff_max_ms=50)
    consumer.subscribe(["orders"])
    kafka.read(consumer, 40)
    consumer.commit(offsets=[TopicPartition("orders", 0, 40)], asynchronous=False)
    broker_process.kill(signal.SIGKILL)
    broker_process.start()
    consumer.close()
    successor = kafka.consumer(session_timeout_ms=6_000)
    successor.subscribe(["orders"])
    assert [message.offset() for message in kafka.read(successor, 60)] == list(range(40, 100))


def test_a_consumer_that_lives_through_a_restart_goes_on_where_it_was(
    broker_process: Any, kafka_at: Callable[[str], Any]
) -> None:
    kafka = kafka_at(broker_process.bootstrap)
    kafka.create_topic("orders")
    kafka.produce("orders", [str(number).encode() for number in range(50)])
    consumer = kafka.consumer(
        session_timeout_ms=6_000,
        heartbeat_interval_ms=200,
        reconnect_backoff_ms=10,
        reconnect_backoff_max_ms=50,
    )
    consumer.subscribe(["orders"])
    kafka.read(consumer, 50)
    consumer.commit(asynchronous=False)
    broker_process.kill(signal.SIGKILL)
    broker_process.start()
    kafka.produce("orders", [str(number).encode() for number in range(50, 60)])
    assert [message.offset() for message in kafka.read(consumer, 10)] == list(range(50, 60))


def test_producer_ids_are_not_given_out_again_after_a_kill(
    broker_process: Any, raw_at: Callable[[str], Any]
) -> None:
    def new_id() -> int:
        client = raw_at(broker_process.bootstrap)
        fields = {"transactional_id": None, "transaction_timeout": dt.timedelta(0)}
        return int(client.request(22, 4, **fields).producer_id)

    before = {new_id() for _ in range(3)}
    broker_process.kill(signal.SIGKILL)
    broker_process.start()
    assert not before & {new_id() for _ in range(3)}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_broker_cleanly(
    broker_process: Any, kafka_at: Callable[[str], Any], number: signal.Signals
) -> None:
    kafka = kafka_at(broker_process.bootstrap)
    kafka.create_topic("orders")
    kafka.produce("orders", [b"before"])
    assert broker_process.kill(number) == 0
    broker_process.start()
    assert kafka.produce("orders", [b"after"]) == [1]
