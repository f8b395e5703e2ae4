"""A broker process that dies where it is told to, and clients that write down what they see."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.config import Address, BrokerConfig, LogConfig
from headrace.testing import history as hs
from headrace.testing.process import BrokerProcess

DEADLINE_S = 60.0
RECORDS_DELETED = 5
LOG_OF_MANY_FILES = LogConfig(
    segment_bytes_max=50_000,
    index_interval_bytes=1_000,
    checkpoint_bytes=30_000,
    cleaner_interval_ms=100,
    min_cleanable_dirty_ratio=0.01,
)
PASSING = {KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT}
RECONNECT: dict[str, Any] = {"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 50, "log_level": 0}


class Worker(threading.Thread):
    """A client that does its work again and again, until it is told to stop. Its error fails the test."""

    def __init__(self, history: hs.History, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self.history = history
        self.bootstrap = bootstrap
        self.is_stopping = False
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.is_stopping:
                self.step()
            self.finish()
        except BaseException as error:  # noqa: BLE001  # it is raised again by `stop`
            self.error = error

    def step(self) -> None:
        raise NotImplementedError

    def finish(self) -> None:
        pass

    def stop(self) -> None:
        self.is_stopping = True
        self.join(2 * DEADLINE_S)
        if self.error is not None:
            raise self.error
        assert not self.is_alive(), f"{type(self).__name__} does not come to its end"

    def note(self, kind: Any, invoked: int, outcome: hs.Outcome = hs.Outcome.OK, **fields: Any) -> None:
        completed = self.history.tick()
        name = fields.pop("process", type(self).__name__)
        self.history.add(kind(process=name, invoked=invoked, completed=completed, outcome=outcome, **fields))


class SteadyProducer(Worker):
    """An idempotent producer that sends numbered records, no faster than it is allowed to."""

    def __init__(self, history: hs.History, bootstrap: str, topic: str, partition_count: int) -> None:
        super().__init__(history, bootstrap)
        self.count = 0
        self.allowed_count = 0
        self.acknowledged_count = 0
        self._topic = topic
        self._partition_count = partition_count
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "message.timeout.ms": 120_000,
                "retry.backoff.ms": 10,
                "linger.ms": 2,
                "batch.num.messages": 50,
                **RECONNECT,
            }
        )

    def step(self) -> None:
        self._producer.poll(0 if self.count < self.allowed_count else 0.01)
        if self.count < self.allowed_count:
            self._send(self.count)
            self.count += 1

    def finish(self) -> None:
        assert self._producer.flush(DEADLINE_S) == 0

    def _send(self, number: int) -> None:
        partition = number % self._partition_count
        invoked = self.history.tick()

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            assert error is None, error
            self.acknowledged_count += 1
            self.note(
                hs.Send,
                invoked,
                partition=hs.TopicPartition(self._topic, partition),
                values=(number,),
                offset=message.offset(),
            )

        self._producer.produce(self._topic, b"%d" % number, partition=partition, on_delivery=on_delivery)


class Reader(Worker):
    """Reads all partitions of some topics from their start on."""

    def __init__(
        self,
        history: hs.History,
        bootstrap: str,
        partitions: list[hs.TopicPartition],
        *,
        name: str = "reader",
        is_read_committed: bool = True,
    ) -> None:
        super().__init__(history, bootstrap)
        self.reader_name = name
        self.partitions = partitions
        self._is_read_committed = is_read_committed
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": name,
                "enable.auto.commit": False,
                "isolation.level": "read_committed" if is_read_committed else "read_uncommitted",
                "auto.offset.reset": "error",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 50,
                **RECONNECT,
            }
        )
        self._consumer.assign([TopicPartition(each.topic, each.partition, 0) for each in partitions])
        self._at_end: set[hs.TopicPartition] = set()
        self._placed: tuple[tuple[hs.TopicPartition, int], ...] = tuple((each, 0) for each in partitions)

    def step(self) -> None:
        invoked = self.history.tick()
        polled = []
        for message in self._consumer.consume(1_000, 0.05):
            partition = hs.TopicPartition(message.topic() or "", message.partition() or 0)
            error = message.error()
            if error is None:
                self._at_end.discard(partition)
                offset, value = message.offset(), message.value()
                assert offset is not None
                assert value is not None
                polled.append(hs.Polled(partition, offset, int(value)))
            elif error.code() == KafkaError._PARTITION_EOF:
                self._at_end.add(partition)
            else:
                assert error.retriable() or error.code() in PASSING, error
        if polled:
            self.note(
                hs.Poll,
                invoked,
                process=self.reader_name,
                records=tuple(polled),
                is_read_committed=self._is_read_committed,
                positions=self._placed,
            )
            self._placed = ()

    def finish(self) -> None:
        """Read on to the end of all partitions, which nobody writes to any more."""
        self._at_end.clear()
        self._consumer.assign(self._consumer.position([TopicPartition(*each) for each in self.partitions]))
        deadline_s = time.monotonic() + DEADLINE_S
        while len(self._at_end) < len(self.partitions):
            assert time.monotonic() < deadline_s, "the reader does not come to the end"
            self.step()
        self._consumer.close()
        self.note(
            hs.Drained,
            self.history.tick(),
            process=self.reader_name,
            partitions=tuple(self.partitions),
            is_read_committed=self._is_read_committed,
        )


class Accountant(Worker):
    """Writes transactions over all partitions of a topic, and aborts some.

    They have no offsets of a group: librdkafka 2.16 waits for ever in `send_offsets_to_transaction` when the
    connection to the coordinator has broken before, without sending anything.
    """

    def __init__(self, history: hs.History, bootstrap: str, topic: str, partition_count: int) -> None:
        super().__init__(history, bootstrap)
        self.committed_count = 0
        self._topic = topic
        self._partition_count = partition_count
        self._number = 0
        self._producer: Producer | None = None

    def step(self) -> None:
        try:
            self._do_transaction(self._open())
        except KafkaException:
            # A producer that can't go on is given up; the next one of the same id fences it.
            self._producer = None

    def finish(self) -> None:
        self._open().flush(DEADLINE_S)

    def _open(self) -> Producer:
        if self._producer is None:
            invoked = self.history.tick()
            producer = Producer(
                {
                    "bootstrap.servers": self.bootstrap,
                    "transactional.id": "accountant",
                    "transaction.timeout.ms": 30_000,
                    "message.timeout.ms": 30_000,
                    "retry.backoff.ms": 10,
                    **RECONNECT,
                }
            )
            producer.init_transactions(DEADLINE_S)
            self.note(hs.ProducerInit, invoked, transactional_id="accountant")
            self._producer = producer
        return self._producer

    def _do_transaction(self, producer: Producer) -> None:
        self._number += 1
        transaction, commits = f"transaction {self._number}", self._number % 4 != 0
        producer.begin_transaction()
        for partition in range(self._partition_count):
            self._send(producer, transaction, partition)
        invoked = self.history.tick()
        try:
            if commits:
                producer.commit_transaction(DEADLINE_S)
            else:
                producer.abort_transaction(DEADLINE_S)
        except KafkaException:
            self._note_end(invoked, transaction, commits, hs.Outcome.UNKNOWN)
            raise
        self.committed_count += commits
        self._note_end(invoked, transaction, commits, hs.Outcome.OK)

    def _send(self, producer: Producer, transaction: str, partition: int) -> None:
        invoked = self.history.tick()
        value = -self._number * self._partition_count - partition

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            self.note(
                hs.Send,
                invoked,
                hs.Outcome.OK if error is None else hs.Outcome.UNKNOWN,
                partition=hs.TopicPartition(self._topic, partition),
                values=(value,),
                offset=message.offset() if error is None else None,
                transaction=transaction,
            )

        producer.produce(self._topic, b"%d" % value, partition=partition, on_delivery=on_delivery)

    def _note_end(self, invoked: int, transaction: str, commits: bool, outcome: hs.Outcome) -> None:
        self.note(
            hs.TransactionEnd,
            invoked,
            outcome,
            transaction=transaction,
            transactional_id="accountant",
            commits=commits,
        )


class Clerk(Worker):
    """Commits ever higher offsets of a group, and asks for them."""

    GROUP = "clerks"

    def __init__(self, history: hs.History, bootstrap: str, partition: hs.TopicPartition) -> None:
        super().__init__(history, bootstrap)
        self._partition = partition
        self._offset = 0
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": self.GROUP, "enable.auto.commit": False, **RECONNECT}
        )

    def step(self) -> None:
        self._offset += 1
        invoked = self.history.tick()
        outcome = hs.Outcome.OK
        try:
            asked = [TopicPartition(*self._partition, self._offset)]
            self._consumer.commit(offsets=asked, asynchronous=False)
        except KafkaException:
            outcome = hs.Outcome.UNKNOWN
        fields: Any = {"group": self.GROUP, "partition": self._partition, "offset": self._offset}
        self.note(hs.OffsetCommit, invoked, outcome, **fields)
        if self._offset % 10 == 0:
            with suppress(KafkaException):
                self._ask()

    def finish(self) -> None:
        self._ask()
        self._consumer.close()

    def _ask(self) -> None:
        invoked = self.history.tick()
        (answer,) = self._consumer.committed([TopicPartition(*self._partition)], timeout=DEADLINE_S)
        offset = None if answer.offset < 0 else answer.offset
        self.note(hs.OffsetFetch, invoked, group=self.GROUP, partition=self._partition, offset=offset)


class Bookkeeper(Worker):
    """Keeps a compacted topic of few keys, each with the newest value."""

    KEY_COUNT = 50

    def __init__(self, history: hs.History, bootstrap: str, partition: hs.TopicPartition) -> None:
        super().__init__(history, bootstrap)
        self._partition = partition
        self._number = 10_000_000
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "message.timeout.ms": 120_000,
                "retry.backoff.ms": 10,
                "batch.num.messages": 10,
                **RECONNECT,
            }
        )

    def step(self) -> None:
        for _ in range(100):
            self._send(self._number)
            self._number += 1
        assert self._producer.flush(DEADLINE_S) == 0

    def _send(self, number: int) -> None:
        invoked = self.history.tick()
        key = number % self.KEY_COUNT

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            assert error is None, error
            self.note(
                hs.Send,
                invoked,
                partition=self._partition,
                values=(number,),
                keys=(key,),
                offset=message.offset(),
            )

        self._producer.produce(
            self._partition.topic,
            b"%d" % number,
            b"%d" % key,
            partition=self._partition.partition,
            on_delivery=on_delivery,
        )


class Administrator(Worker):
    """Makes and deletes topics, and deletes records."""

    def __init__(self, history: hs.History, bootstrap: str, partition: hs.TopicPartition) -> None:
        super().__init__(history, bootstrap)
        self.admin = AdminClient({"bootstrap.servers": bootstrap, **RECONNECT})
        self._partition = partition
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1, **RECONNECT})
        self._number = 0
        self._deleted_below = 0

    def create_topics(self, compacted: str, **partition_counts: int) -> None:
        topics = [NewTopic(name, count, 1) for name, count in partition_counts.items()]
        topics.append(NewTopic(compacted, 1, 1, config={"cleanup.policy": "compact"}))
        for future in self.admin.create_topics(topics).values():
            future.result(DEADLINE_S)

    def step(self) -> None:
        self._number += 1
        name = f"scratch-{self._number}"
        with suppress(KafkaException):
            for future in self.admin.create_topics([NewTopic(name, 1, 1)], request_timeout=5).values():
                future.result(DEADLINE_S)
        with suppress(KafkaException):
            for future in self.admin.delete_topics([name], request_timeout=5).values():
                future.result(DEADLINE_S)
        for _ in range(RECORDS_DELETED):
            self._producer.produce(self._partition.topic, b"old", partition=self._partition.partition)
        if self._producer.flush(5) == 0:
            self._delete_records()

    def _delete_records(self) -> None:
        invoked = self.history.tick()
        below = self._deleted_below + RECORDS_DELETED
        outcome = hs.Outcome.OK
        try:
            asked = [TopicPartition(*self._partition, below)]
            for deleted in self.admin.delete_records(asked, request_timeout=5).values():
                deleted.result(DEADLINE_S)
            self._deleted_below = below
        except KafkaException as error:
            out_of_range = error.args[0].code() == KafkaError.OFFSET_OUT_OF_RANGE
            outcome = hs.Outcome.FAILED if out_of_range else hs.Outcome.UNKNOWN
        self.note(hs.Deletion, invoked, outcome, partition=self._partition, below_offset=below)


@pytest.fixture(autouse=True)
def clients_end_with_their_test() -> Iterator[None]:
    """Collects clients that a traceback keeps alive."""
    yield
    gc.collect()


@pytest.fixture
def broker_process(tmp_path: Path) -> Iterator[BrokerProcess]:
    config = BrokerConfig(listen=Address("127.0.0.1", 0), log=LOG_OF_MANY_FILES)
    with BrokerProcess(tmp_path / "data", config=config) as broker:
        yield broker


@pytest.fixture
def clients() -> Callable[[str], Any]:
    """The class of a client by its name: test modules can't import from here."""
    return lambda name: globals()[name]
