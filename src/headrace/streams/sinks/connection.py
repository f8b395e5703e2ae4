"""The Kafka clients of one writer of a share: a transactional producer, and the ledger's consumer.

Runs on executors, so it imports nothing of Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from headrace.config import MIB
from headrace.errors import BrokerUnavailable, FaultError, InvalidProducerEpoch, PipelineFailed
from headrace.streams.sinks.ledger import Entry, group_of, read_entry, transactional_id_of

ANSWER_S_MAX: Final = 60.0
"""How long the coordinator of a group or of a transaction may take; one may be restarting."""
REQUEST_BYTES_MAX: Final = 17 * MIB
"""The largest request that is sent: a record of 16 MiB, the most that a broker takes, and the headers that a
dead letter gets. With the producer's own 1 MiB, a larger one would end the query at each start."""
BUFFER_BYTES: Final = 4 * REQUEST_BYTES_MAX
_BUFFER_MESSAGES_MAX: Final = 1_000_000
_BUFFER_FULL_S: Final = 0.1
_GATHER_MS: Final = 100

_FENCED: Final = {
    KafkaError._FENCED,  # noqa: SLF001 - that is how the library names its local errors
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
}
_UNREACHABLE: Final = {
    KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001 - that is how the library names its local errors
    KafkaError._TRANSPORT,  # noqa: SLF001 - likewise
    KafkaError._TIMED_OUT,  # noqa: SLF001 - likewise
    KafkaError._MSG_TIMED_OUT,  # noqa: SLF001 - likewise
}

Headers = list[tuple[str, str | bytes | None]] | None
Record = tuple[str, bytes | None, bytes | None, Headers]
"""Topic, key, value and headers."""
Settings = Mapping[str, str | int | float | bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Connector:
    """How the writers of a pipeline reach the broker."""

    pipeline: str
    topic: str
    """The one that the pipeline writes; its partitions number the ledger's entries."""
    client_options: Mapping[str, str] = field(repr=False)
    """With the bootstrap servers among them."""
    transaction_s_max: int

    @property
    def clients(self) -> Settings:
        """What all clients are made with. Their own log would repeat what errors say."""
        return {**self.client_options, "log_level": 0}

    @property
    def producers(self) -> Settings:
        """What all producers are made with."""
        return {
            **self.clients,
            # As Java's clients do it, and with them Spark: a key stays in its partition.
            "partitioner": "murmur2_random",
            "enable.idempotence": True,
            "message.max.bytes": REQUEST_BYTES_MAX,
            "queue.buffering.max.kbytes": BUFFER_BYTES // 1024,
            "queue.buffering.max.messages": _BUFFER_MESSAGES_MAX,
            # Nobody sees a record before the commit, which waits for none to gather.
            "linger.ms": _GATHER_MS,
        }

    @contextmanager
    def told(self) -> Iterator[None]:
        """Say what failed in our own words."""
        try:
            yield
        except KafkaException as error:
            raise self._explained(error.args[0]) from error

    def _explained(self, error: KafkaError) -> FaultError:
        if error.code() in _FENCED:
            return InvalidProducerEpoch(
                f"a transaction of pipeline {self.pipeline} was given up: another writer has taken over (a "
                "second run, or a task that was started twice), or writing the batch took longer than the "
                f"{self.transaction_s_max} s that it may (--transaction-timeout)"
            )
        if error.code() in _UNREACHABLE:
            return BrokerUnavailable(
                f"pipeline {self.pipeline} can't write: no broker answers ({error.str()})"
            )
        return PipelineFailed(f"pipeline {self.pipeline} can't write: {error.str()}")


class Ledger:
    """Reads the ledger of a pipeline. See ledger.py for what it says."""

    def __init__(self, connector: Connector, *, stable: bool) -> None:
        """`stable` entries wait for open transactions to end; others are as they were before these."""
        self._connector = connector
        with connector.told():
            self._consumer = Consumer(
                {
                    **connector.clients,
                    "group.id": group_of(connector.pipeline),
                    "enable.auto.commit": False,
                    "isolation.level": "read_committed" if stable else "read_uncommitted",
                }
            )

    def entries(self, tasks: Sequence[int]) -> list[Entry | None]:
        """The entries of these tasks' shares."""
        asked = [TopicPartition(self._connector.topic, task) for task in tasks]
        with self._connector.told():
            answers = self._consumer.committed(asked, timeout=ANSWER_S_MAX)
            for answer in answers:
                if answer.error is not None:
                    raise KafkaException(answer.error)
        return [read_entry(self._connector.pipeline, each.offset, each.metadata) for each in answers]

    def group_metadata(self) -> Any:
        """What a producer commits the group's offsets with."""
        return self._consumer.consumer_group_metadata()

    def close(self) -> None:
        """Let go of the client."""
        self._consumer.close()


class ShareWriter:
    """Writes the share of one task in transactions. It has fenced all others that write it."""

    def __init__(
        self,
        connector: Connector,
        task: int,
        *,
        answer_s_max: float = ANSWER_S_MAX,
        abort_s_max: float = ANSWER_S_MAX,
    ) -> None:
        """How long the coordinator may take to shut others out, and to abort."""
        self._connector = connector
        self._task = task
        self._abort_s_max = abort_s_max
        with connector.told():
            self._producer = Producer(
                {
                    # A client that forgets its brokers when none answers goes on to ask the forgotten one
                    # to commit offsets, for ever: librdkafka keeps it as the group's coordinator.
                    "metadata.recovery.strategy": "none",
                    **connector.producers,
                    "transactional.id": transactional_id_of(connector.pipeline, task),
                    "transaction.timeout.ms": connector.transaction_s_max * 1000,
                }
            )
            self._producer.init_transactions(answer_s_max)
        self._ledger = Ledger(connector, stable=True)
        self._committed: Entry | None = None

    def entry(self) -> Entry | None:
        """What the ledger says of the share. What this writer has put there stays until it is fenced."""
        return self._committed or self._ledger.entries([self._task])[0]

    def first_entry(self) -> Entry | None:
        """What the ledger says of the first share of all."""
        return self._ledger.entries([0])[0]

    def begin(self) -> None:
        """Begin a transaction."""
        with self._connector.told():
            self._producer.begin_transaction()

    def send(self, records: Iterable[Record]) -> int:
        """Send records, and return their count. They count when the transaction is committed."""
        with self._connector.told():
            return send(self._producer, records)

    def commit(self, entry: Entry) -> None:
        """Commit the transaction, and with it the entry."""
        position = TopicPartition(
            self._connector.topic, self._task, entry.next_batch_id, metadata=entry.metadata
        )
        with self._connector.told():
            self._producer.send_offsets_to_transaction(
                [position], self._ledger.group_metadata(), ANSWER_S_MAX
            )
            self._producer.commit_transaction(self._connector.transaction_s_max)
        self._committed = entry

    def abort(self) -> None:
        """Give the transaction up, so that nobody has to wait for it to time out."""
        # Where that fails, the next writer of the share does it, or the broker when it times out.
        with suppress(KafkaException):
            self._producer.abort_transaction(self._abort_s_max)

    def close(self) -> None:
        """Let go of the clients."""
        self._ledger.close()


def send_plainly(connector: Connector, records: Iterable[Record]) -> int:
    """Send records without a transaction, and wait until all are taken or one is refused."""
    refused: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, _message: object) -> None:
        if error is not None:
            refused.append(error)

    with connector.told():
        producer = Producer({**connector.producers, "on_delivery": on_delivery})
        count = send(producer, records)
        left = producer.flush(connector.transaction_s_max)
        if refused:
            raise KafkaException(refused[0])
    if left:
        raise BrokerUnavailable(f"{connector.pipeline}: {left} of {count} records were not taken in time")
    return count


def send(producer: Producer, records: Iterable[Record]) -> int:
    """Hand records to the producer, waiting where it has no room; return their count."""
    # One call for each record is faster than `produce_batch`, which also can't send headers.
    produce, count = producer.produce, 0
    for topic, key, value, headers in records:
        while True:
            try:
                if headers is None:
                    produce(topic, value, key)
                else:
                    produce(topic, value, key, headers=headers)
            except BufferError:
                producer.poll(_BUFFER_FULL_S)
            else:
                break
        count += 1
    return count
