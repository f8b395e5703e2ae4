"""The topic that keeps transactions: `__transaction_state`, in Kafka's own record format, one partition.

All records lie in one partition, so that what is durable of them is a beginning of what was decided, in the
order in which it was decided. A decision may build on one that is not durable yet: if a crash takes the
first, it has taken the second, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.errors import StorageError
from headrace.kafka.internal_batches import internal_batches
from headrace.kafka.services import TRANSACTIONS_TOPIC
from headrace.kafka.transactions.records import decode_transaction_record, encode_transaction_record
from headrace.log.batch import decode_records, encode_batch
from headrace.log.record import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from headrace.clock import Clock
    from headrace.errors import HeadraceError
    from headrace.kafka.commit import GroupCommit
    from headrace.kafka.transactions.records import TransactionRecord
    from headrace.log.partition import PartitionLog
    from headrace.log.store import LogStore

BATCH_BYTES_MAX: Final = 64 * 1024 * 1024
"""More than the record of a transaction that has every partition that a broker can have."""


class TransactionLog:
    """Belongs to the event loop's thread."""

    def __init__(self, store: LogStore, clock: Clock, commit: GroupCommit) -> None:
        self._store = store
        self._clock = clock
        self._commit = commit

    @property
    def has_failed(self) -> bool:
        """Whether no write is taken any more."""
        return self._store.failed is not None

    def read(self) -> Iterator[TransactionRecord]:
        """All records, in their order."""
        for header, batch in internal_batches(self._store, TRANSACTIONS_TOPIC):
            if not header.is_control:
                yield from _decode(batch)

    def append(self, records: Sequence[TransactionRecord]) -> int:
        """Write records, and return the offset below which all must be durable for them to be.

        Raises what the log raises when it can't append.
        """
        log = self._partition()
        pairs = (encode_transaction_record(record) for record in records)
        now_ms = self._clock.now_ms()
        batch = encode_batch([Record(timestamp_ms=now_ms, key=key, value=value) for key, value in pairs])
        appended = log.append(batch, size_bytes_max=BATCH_BYTES_MAX)
        self._commit.appended(log)
        return appended.last_offset + 1

    def is_durable(self, end_offset: int) -> bool:
        """Whether everything below the offset is durable."""
        return end_offset == 0 or self._commit.is_durable(self._partition(), end_offset)

    def when_durable(self, end_offset: int, then: Callable[[HeadraceError | None], None]) -> None:
        """Call back, in the order of the calls, once everything below the offset is durable."""
        if end_offset == 0:
            then(None)
        else:
            self._commit.when_durable(self._partition(), end_offset, then)

    def _partition(self) -> PartitionLog:
        topic = self._store.topics.get(TRANSACTIONS_TOPIC)
        if topic is None:
            # Handlers that write are called after it has been created (see handlers/internal_topic.py).
            raise StorageError(f"topic {TRANSACTIONS_TOPIC} could not be created; see the broker's log")
        return topic.partitions[0]


def _decode(batch: bytes) -> Iterator[TransactionRecord]:
    for record in decode_records(batch):
        decoded = decode_transaction_record(record.key or b"", record.value)
        if decoded is not None:
            yield decoded
