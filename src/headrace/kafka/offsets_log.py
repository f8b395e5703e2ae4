"""The topic `__consumer_offsets`: what is appended to it, when that is durable, and reading it back.

Records of groups and of offsets lie in one partition, in the order in which they were decided. So whatever is
durable, all that it rests on is durable, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import StorageError
from headrace.failpoints import hit
from headrace.kafka.groups.offsets import (
    OffsetCommitted,
    OffsetPending,
    OffsetsSettled,
    decode_offset_record,
)
from headrace.kafka.internal_batches import internal_batches
from headrace.kafka.services import OFFSETS_TOPIC
from headrace.log.batch import TRANSACTIONAL, decode_records, encode_batch
from headrace.log.marker import decode_marker
from headrace.log.record import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.errors import HeadraceError
    from headrace.kafka.commit import GroupCommit
    from headrace.kafka.groups.coordinator import GroupCoordinator
    from headrace.kafka.groups.loading import GroupLoader
    from headrace.kafka.groups.record_codec import Encoded
    from headrace.log.partition import PartitionLog
    from headrace.log.store import LogStore


class OffsetsLog:
    """Belongs to the event loop's thread. Appending raises what the log raises when it can't."""

    def __init__(self, store: LogStore, commit: GroupCommit, *, size_bytes_max: int) -> None:
        self._store = store
        self._commit = commit
        self._size_bytes_max = size_bytes_max

    def append(self, records: Sequence[Encoded], now_ms: int) -> int:
        """Append records, and return the offset after them."""
        log = self._log()
        hit("kafka.offsets.append")
        appended = log.append(_batch(records, now_ms), size_bytes_max=self._size_bytes_max)
        self._commit.appended(log)
        return appended.last_offset + 1

    def append_pending(
        self, producer_id: int, producer_epoch: int, records: Sequence[Encoded], now_ms: int
    ) -> int:
        """Append records that count once the producer's transaction does; return the offset after them."""
        log = self._log()
        batch = _batch(
            records,
            now_ms,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            attributes=TRANSACTIONAL,
        )
        hit("kafka.offsets.append")
        appended = log.append(batch, size_bytes_max=self._size_bytes_max, is_sequenced=False)
        self._commit.appended(log)
        return appended.last_offset + 1

    def append_marker(self, producer_id: int, producer_epoch: int, *, commits: bool) -> int:
        """Append the marker that ends a producer's transaction, and return the offset after it."""
        log = self._log()
        hit("kafka.offsets.append")
        appended = log.append_marker(producer_id, producer_epoch, commits=commits)
        self._commit.appended(log)
        return appended.last_offset + 1

    def when_durable(self, end_offset: int, waiter: Callable[[HeadraceError | None], None]) -> None:
        """Call back once all below the offset is durable, or never will be."""
        self._commit.when_durable(self._log(), end_offset, waiter)

    def replay(self, coordinator: GroupCoordinator, loader: GroupLoader) -> None:
        """Apply all offsets to the coordinator, and give all records of groups to the loader."""
        for header, batch in internal_batches(self._store, OFFSETS_TOPIC):
            if header.is_control:
                marker = decode_marker(header, batch)
                if marker is not None:
                    coordinator.apply(OffsetsSettled(producer_id=header.producer_id, commits=marker.commits))
                continue
            for record in decode_records(batch):
                decoded = decode_offset_record(record.key or b"", record.value)
                if decoded is None:
                    loader.take(record.key or b"", record.value)
                elif isinstance(decoded, OffsetCommitted) and header.is_transactional:
                    coordinator.apply(OffsetPending(producer_id=header.producer_id, committed=decoded))
                else:
                    coordinator.apply(decoded)

    def _log(self) -> PartitionLog:
        topic = self._store.topics.get(OFFSETS_TOPIC)
        if topic is None:
            # Handlers that write are called after it has been created (see handlers/internal_topic.py).
            raise StorageError(f"topic {OFFSETS_TOPIC} could not be created; see the broker's log")
        return topic.partitions[0]


def _batch(records: Sequence[Encoded], now_ms: int, **batch: int) -> bytes:
    pairs = [Record(timestamp_ms=now_ms, key=key, value=value) for key, value in records]
    return encode_batch(pairs, **batch)
