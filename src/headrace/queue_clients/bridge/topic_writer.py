"""Writes messages and their ids to Kafka in one transaction: all of it counts, or nothing does.

    fence all earlier writers of the bridge → read the journal
    begin → send records → send their ids to the journal → commit

Blocking: runs on a thread beside the event loop. One thread at a time owns a writer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.config import MIB, ToTopicConfig
from headrace.errors import BridgeFailed, BridgeReplaced, BrokerUnavailable, HeadraceError
from headrace.failpoints import hit
from headrace.queue_clients.bridge.records import record_of
from headrace.queue_clients.bridge.remembered import HandedOver, Remembered
from headrace.queue_clients.delivery import Delivery

ANSWER_S_MAX: Final = 30.0
"""How long a broker may take to answer; it may be restarting."""
ABORT_S_MAX: Final = 5.0
RECONNECT_MS_MAX: Final = 1000
"""How long a client waits, at most, before it looks for a broker again that was gone."""
REQUEST_BYTES_MAX: Final = 17 * MIB
_JOURNAL_SETTINGS: Final = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"}
_FENCED: Final = {
    KafkaError._FENCED,  # noqa: SLF001 - that is how the library names its local errors
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
}
_REFUSED: Final = {
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.RECORD_LIST_TOO_LARGE,
    KafkaError.INVALID_RECORD,
    KafkaError.INVALID_TIMESTAMP,
}
"""What a topic does not take of a record, and will not take the next time."""
_NOT_NOW: Final = {
    KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001 - as above
    KafkaError._TRANSPORT,  # noqa: SLF001
    KafkaError._TIMED_OUT,  # noqa: SLF001
    KafkaError._MSG_TIMED_OUT,  # noqa: SLF001
    KafkaError._STATE,  # noqa: SLF001
    KafkaError._PURGE_QUEUE,  # noqa: SLF001
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a batch."""

    written: int
    recognised: int
    """Had been handed over before."""
    without_id: int
    """Were written and would not be recognised, were they to come again."""
    refused: tuple[tuple[Delivery, str], ...]
    """What the topic does not take, and why."""


def journal_of(name: str) -> str:
    """The topic that remembers what a bridge has handed over."""
    return f"headrace.bridge.{name}"


class TopicWriter:
    """The one writer of a bridge to a topic."""

    def __init__(self, config: ToTopicConfig) -> None:
        """Fence all earlier writers of the name, and read what they have handed over."""
        self._config = config
        self._journal = journal_of(config.name)
        self._failures: list[KafkaError] = []
        with self._told():
            self._make_topics()
            self._open()

    def hand_over(self, deliveries: Sequence[Delivery]) -> Outcome:
        """Write those that were not written before; when this returns they are committed."""
        fresh = self._fresh(deliveries)
        refused = self._write_all(fresh)
        tags = {delivery.tag for delivery, _ in refused}
        written = [delivery for delivery in fresh if delivery.tag not in tags]
        return Outcome(
            written=len(written),
            recognised=len(deliveries) - len(fresh),
            without_id=sum(delivery.message_id is None for delivery in written),
            refused=tuple(refused),
        )

    def close(self) -> None:
        """Give up what is not committed."""
        with suppress(KafkaException):
            self._producer.abort_transaction(ABORT_S_MAX)

    def _open(self) -> None:
        """Fence whoever writes for the bridge, and read what was handed over up to then."""
        self._producer = Producer(
            {
                **self._clients,
                "partitioner": "murmur2_random",
                "enable.idempotence": True,
                "message.max.bytes": REQUEST_BYTES_MAX,
                "transactional.id": f"headrace.bridge.{self._config.name}",
                "transaction.timeout.ms": self._config.transaction_s_max * 1000,
            }
        )
        self._producer.init_transactions(ANSWER_S_MAX)
        self._remembered = Remembered.of(self._read_journal(), self._config.remembered_batch_count)

    def _fresh(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        fresh, ids = [], set[str]()
        for delivery in deliveries:
            known = delivery.message_id
            if known is not None and (known in ids or known in self._remembered):
                continue
            if known is not None:
                ids.add(known)
            fresh.append(delivery)
        return fresh

    def _write_all(self, deliveries: Sequence[Delivery]) -> list[tuple[Delivery, str]]:
        """Write what can be written, in order; return what is refused.

        The broker refuses whole batches of records, and says so of each record in them. So the halves are
        tried on their own, down to the one that is at fault.
        """
        if not deliveries:
            return []
        cause = self._write(deliveries)
        if cause is None:
            return []
        if len(deliveries) == 1:
            return [(deliveries[0], cause)]
        half = len(deliveries) // 2
        return self._write_all(deliveries[:half]) + self._write_all(deliveries[half:])

    def _write(self, deliveries: Sequence[Delivery]) -> str | None:
        """Write all in one transaction; or, where something is refused for good, none, and say why."""
        ids = [delivery.message_id for delivery in deliveries if delivery.message_id is not None]
        batch = self._remembered.next_batch(ids)
        self._failures.clear()
        with self._told():
            self._producer.begin_transaction()
            for delivery in deliveries:
                self._send(delivery)
            if ids:
                self._produce(self._journal, batch.value(), self._remembered.key_of(batch))
            self._await_sent()
            cause = self._refused()
            if cause is not None:
                self._producer.abort_transaction(ANSWER_S_MAX)
                # What was refused has left a gap in the numbers of this producer's batches.
                self._open()
                return cause
            hit("bridge.topic.sent")
            self._producer.commit_transaction(self._config.transaction_s_max)
        if ids:
            self._remembered.add(batch)
        return None

    def _send(self, delivery: Delivery) -> None:
        record = record_of(delivery, self._config.topic, self._config.key)
        options: dict[str, Any] = {"headers": list(record.headers)}
        if record.timestamp_ms is not None:
            options["timestamp"] = record.timestamp_ms
        options["on_delivery"] = self._on_delivery
        try:
            self._produce(record.topic, record.value, record.key, **options)
        except KafkaException as error:
            # The library itself refuses what is too large for any request.
            if error.args[0].code() not in _REFUSED:
                raise
            self._failures.append(error.args[0])

    def _produce(self, topic: str, value: bytes | None, key: bytes | None, **options: Any) -> None:
        while True:
            try:
                self._producer.produce(topic, value, key, **options)
            except BufferError:
                self._producer.poll(0.1)
            else:
                return

    def _on_delivery(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            self._failures.append(error)

    def _await_sent(self) -> None:
        """Wait until it is known of each record whether it was taken; a commit would fail before that."""
        if self._producer.flush(self._config.transaction_s_max):
            raise KafkaException(self._cause(KafkaError(KafkaError._TIMED_OUT)))  # noqa: SLF001 - as above

    def _cause(self, error: KafkaError) -> KafkaError:
        """Why the transaction has failed, where a record only tells that it was given up with it."""
        try:
            # Not done in this state, and refused with the reason.
            self._producer.begin_transaction()
        except KafkaException as reason:
            found: KafkaError = reason.args[0]
            return error if found.code() == KafkaError._STATE else found  # noqa: SLF001 - as above
        return error

    def _refused(self) -> str | None:
        """What the topic has refused for good; raises where something has failed otherwise."""
        for error in self._failures:
            if error.code() not in _REFUSED:
                raise KafkaException(self._cause(error))
        return self._failures[0].str() if self._failures else None

    @property
    def _clients(self) -> dict[str, Any]:
        return {
            "metadata.recovery.strategy": "none",
            "reconnect.backoff.max.ms": RECONNECT_MS_MAX,
            **self._config.client_options,
            "bootstrap.servers": self._config.bootstrap,
            "log_level": 0,
        }

    def _make_topics(self) -> None:
        admin = AdminClient(self._clients)
        known = admin.list_topics(timeout=ANSWER_S_MAX).topics
        make_topic(admin, NewTopic(self._journal, 1, config=_JOURNAL_SETTINGS), known)
        make_topic(admin, NewTopic(self._config.topic, self._config.partition_count), known)

    def _read_journal(self) -> list[HandedOver]:
        reader = Consumer(
            {
                **self._clients,
                "group.id": self._journal,
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 50,
            }
        )
        try:
            reader.assign([TopicPartition(self._journal, 0, OFFSET_BEGINNING)])
            return list(self._batches(reader))
        finally:
            reader.close()

    def _batches(self, reader: Consumer) -> Iterator[HandedOver]:
        while True:
            message = reader.poll(ANSWER_S_MAX)
            if message is None:
                raise KafkaException(KafkaError(KafkaError._TIMED_OUT))  # noqa: SLF001 - as above
            error = message.error()
            if error is None:
                value = message.value()
                if value is not None:
                    yield HandedOver.read(value, self._journal)
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - as above
                return
            else:
                raise KafkaException(error)

    @contextmanager
    def _told(self) -> Iterator[None]:
        with bridge_errors(self._config.name, self._config.bootstrap):
            yield


@contextmanager
def bridge_errors(name: str, bootstrap: str) -> Iterator[None]:
    """Turn the library's exceptions into errors that say what to do."""
    try:
        yield
    except KafkaException as exception:
        raise explained(name, bootstrap, exception.args[0]) from exception
    except SystemError as error:
        # The library calls back about records while it has an exception to raise, which Python takes ill.
        cause = _kafka_exception_behind(error)
        if cause is None:
            raise
        raise explained(name, bootstrap, cause.args[0]) from error


def _kafka_exception_behind(error: BaseException | None) -> KafkaException | None:
    """What the library has raised before others were raised over it."""
    while error is not None and not isinstance(error, KafkaException):
        error = error.__cause__ or error.__context__
    return error


def explained(name: str, bootstrap: str, error: KafkaError) -> HeadraceError:
    """Our error for one of the library's."""
    if error.code() in _FENCED:
        return BridgeReplaced(
            f"bridge {name} was taken over by another process of the same name, or a transaction took longer "
            "than transaction_s_max: let only one run"
        )
    if error.code() in _NOT_NOW or error.retriable() or error.txn_requires_abort():
        return BrokerUnavailable(f"bridge {name} can't go on with {bootstrap} for now: {error.str()}")
    return BridgeFailed(f"bridge {name} can't go on with {bootstrap}: {error.str()} ({error.name()})")


def make_topic(admin: AdminClient, topic: NewTopic, known: Mapping[str, object]) -> None:
    """Have a topic."""
    if topic.topic in known:
        return
    [made] = admin.create_topics([topic], operation_timeout=ANSWER_S_MAX).values()
    try:
        made.result(ANSWER_S_MAX)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
