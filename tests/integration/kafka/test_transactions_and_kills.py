"""A broker process that is killed in the middle of transactions: each is read as a whole, or not at all."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

PARTITION_COUNT = 3
TRANSACTION_COUNT = 60
KILL_COUNT = 2
TIMEOUT_S = 60.0


class TransactionalWriter:
    """Writes each number into all partitions in one transaction, through kills of the broker."""

    def __init__(self, kafka: Any) -> None:
        self._producer = kafka.producer(
            transactional_id="writer",
            transaction_timeout_ms=60_000,
            reconnect_backoff_ms=10,
            reconnect_backoff_max_ms=50,
            retry_backoff_ms=10,
        )
        self._producer.init_transactions(TIMEOUT_S)
        self.committed: list[int] = []
        self.aborted: list[int] = []
        self.errors: list[BaseException] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def join(self) -> None:
        self._thread.join()
        assert self.errors == []

    def _run(self) -> None:
        try:
            for number in range(TRANSACTION_COUNT):
                self._write(number)
        except BaseException as error:  # noqa: BLE001  # told to the test's own thread
            self.errors.append(error)

    def _write(self, number: int) -> None:
        aborts_by_itself = number % 5 == 4
        while True:
            self._producer.begin_transaction()
            for partition in range(PARTITION_COUNT):
                self._producer.produce("orders", str(number).encode(), partition=partition)
            try:
                self._producer.flush(TIMEOUT_S)
                if aborts_by_itself:
                    self._retry(self._producer.abort_transaction)
                    self.aborted.append(number)
                else:
                    self._retry(self._producer.commit_transaction)
                    self.committed.append(number)
            except KafkaException as error:
                if not error.args[0].txn_requires_abort():
                    raise
                self._retry(self._producer.abort_transaction)
            else:
                return

    def _retry(self, end: Callable[[float], None]) -> None:
        while True:
            try:
                end(TIMEOUT_S)
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
            else:
                return


def test_each_transaction_is_seen_in_all_partitions_or_in_none(
    broker_process: Any,
    kafka_at: Callable[[str], Any],
    wait_until: Callable[..., Any],
) -> None:
    kafka = kafka_at(broker_process.bootstrap)
    kafka.create_topic("orders", PARTITION_COUNT)
    writer = TransactionalWriter(kafka)
    for kill in range(1, KILL_COUNT + 1):
        seen = TRANSACTION_COUNT * kill // (KILL_COUNT + 2)
        wait_until(
            lambda seen=seen: len(writer.committed) + len(writer.aborted) >= seen, f"{seen} transactions"
        )
        broker_process.kill()
        broker_process.start()
    writer.join()
    consumer = kafka.consumer(isolation_level="read_committed")
    consumer.assign([TopicPartition("orders", each, 0) for each in range(PARTITION_COUNT)])
    read = kafka.read(consumer, PARTITION_COUNT * len(writer.committed))
    counts = Counter((int(message.value()), message.partition()) for message in read)
    expected = {(each, partition) for each in writer.committed for partition in range(PARTITION_COUNT)}
    assert counts == dict.fromkeys(expected, 1)
    for partition in range(PARTITION_COUNT):
        order = [int(message.value()) for message in read if message.partition() == partition]
        assert order == writer.committed


def test_a_transaction_that_was_open_at_the_kill_goes_on_after_the_restart(
    broker_process: Any, kafka_at: Callable[[str], Any]
) -> None:
    kafka = kafka_at(broker_process.bootstrap)
    kafka.create_topic("orders")
    producer = kafka.producer(
        transactional_id="writer", reconnect_backoff_ms=10, reconnect_backoff_max_ms=50, retry_backoff_ms=10
    )
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce("orders", b"before", partition=0)
    producer.flush(TIMEOUT_S)
    broker_process.kill()
    broker_process.start()
    producer.produce("orders", b"after", partition=0)
    producer.commit_transaction(TIMEOUT_S)
    consumer = kafka.consumer(isolation_level="read_committed")
    consumer.assign([TopicPartition("orders", 0, 0)])
    assert [message.value() for message in kafka.read(consumer, 2)] == [b"before", b"after"]


def test_what_a_killed_producer_left_open_is_aborted_when_its_time_is_up_also_after_a_restart(
    broker_process: Any, kafka_at: Callable[[str], Any]
) -> None:
    kafka = kafka_at(broker_process.bootstrap)
    kafka.create_topic("orders")
    producer = kafka.producer(transactional_id="writer", transaction_timeout_ms=1_500)
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce("orders", b"left open", partition=0)
    producer.flush(TIMEOUT_S)
    broker_process.kill()
    broker_process.start()
    kafka.produce("orders", [b"other"])
    consumer = kafka.consumer(isolation_level="read_committed")
    consumer.assign([TopicPartition("orders", 0, 0)])
    assert [message.value() for message in kafka.read(consumer, 1)] == [b"other"]
