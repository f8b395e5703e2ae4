"""The topic that keeps share groups' positions: `__share_group_state`, one partition, compacted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.errors import StorageError
from headrace.failpoints import hit
from headrace.kafka.internal_batches import internal_batches
from headrace.kafka.services import SHARE_STATE_TOPIC
from headrace.kafka.share.records import decode, encode_key, encode_value
from headrace.log.batch import decode_records, encode_batch
from headrace.log.record import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from headrace.clock import Clock
    from headrace.errors import HeadraceError
    from headrace.kafka.commit import GroupCommit
    from headrace.kafka.share.records import Stored
    from headrace.log.partition import PartitionLog
    from headrace.log.store import LogStore

BATCH_BYTES_MAX: Final = 64 * 1024 * 1024
"""More than the positions of all partitions that one request can name."""


class ShareStateLog:
    """Belongs to the event loop's thread."""

    def __init__(self, store: LogStore, clock: Clock, commit: GroupCommit) -> None:
        self._store = store
        self._clock = clock
        self._commit = commit

    def read(self) -> Iterator[Stored]:
        """All records, in their order."""
        for _, batch in internal_batches(self._store, SHARE_STATE_TOPIC):
            for record in decode_records(batch):
                stored = decode(record.key or b"", record.value)
                if stored is not None:
                    yield stored

    def append(self, changes: Sequence[Stored]) -> int:
        """Write positions, and return the offset below which all must be durable for them to be.

        Raises what the log raises when it can't append.
        """
        log = self._partition()
        now_ms = self._clock.now_ms()
        hit("kafka.share.append")
        batch = encode_batch(
            [
                Record(timestamp_ms=now_ms, key=encode_key(each.key), value=encode_value(each, now_ms))
                for each in changes
            ]
        )
        appended = log.append(batch, size_bytes_max=BATCH_BYTES_MAX)
        self._commit.appended(log)
        return appended.last_offset + 1

    def when_durable(self, end_offset: int, then: Callable[[HeadraceError | None], None]) -> None:
        """Call back, in the order of the calls, once everything below the offset is durable."""
        if end_offset == 0:
            then(None)
        else:
            self._commit.when_durable(self._partition(), end_offset, then)

    def _partition(self) -> PartitionLog:
        topic = self._store.topics.get(SHARE_STATE_TOPIC)
        if topic is None:
            # Handlers that write are called after it has been created (see handlers/internal_topic.py).
            raise StorageError(f"topic {SHARE_STATE_TOPIC} could not be created; see the broker's log")
        return topic.partitions[0]
