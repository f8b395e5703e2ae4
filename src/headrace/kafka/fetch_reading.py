"""One pass over the partitions of a fetch.

The first partition that has anything gives at least one whole batch, whatever the limits say: a consumer
must be able to get past a batch that is larger than its buffer (KIP-74). The others give theirs, even one
that is above the partition's own limit, while the answer has room. The first batch that does not fit ends
the reading: at most one batch per answer is read in vain.

A consumer that reads committed records only gets none beyond the last stable offset, where the first open
transaction begins, and the list of the aborted transactions among what it gets: it skips those itself.

In a session, most partitions have nothing new most of the time. One from which there was nothing to read, and
of which the client knows all, is marked; the next pass only looks whether the mark still holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kio.schema.errors import ErrorCode

from headrace.errors import CorruptBatch, HeadraceError, OffsetOutOfRange, PartitionClosed
from headrace.kafka.fetch_sessions import Told
from headrace.kafka.handlers.leader_epoch import check_leader_epoch
from headrace.kafka.messages.fetch import AbortedTransaction, PartitionData
from headrace.log.batch import read_header
from headrace.log.partition import PartitionLog

if TYPE_CHECKING:
    from headrace.kafka.fetch_sessions import CachedPartition, FetchContext
    from headrace.kafka.messages.fetch import FetchPartition, FetchRequest
    from headrace.kafka.services import Services
    from headrace.log.stored_batches import StoredBatches

READ_COMMITTED: Final = 1


class IdleMark(NamedTuple):
    """A partition from which there was nothing to read: nor is there, while its extent stays as it was."""

    log: PartitionLog
    extent: tuple[int, int, int, bool]
    reads_committed: bool


class FetchReading:
    """What there is to answer a fetch with, now."""

    def __init__(self, services: Services, request: FetchRequest, context: FetchContext) -> None:
        self._services = services
        self._partitions = context.partitions
        self._reads_committed = request.isolation_level == READ_COMMITTED
        allowed_bytes = min(request.max_bytes, services.config.fetch_bytes_max)
        self._room_bytes = min(allowed_bytes, services.unsent_answers.room_bytes)
        # A fetch starts where there is some room, and then one batch comes, however large: it is worth
        # waiting for. One that has waited for data may find no room: it gets nothing.
        self._wanted_bytes = min(request.min_bytes, allowed_bytes, max(self._room_bytes, 1))
        self._has_room = self._services.unsent_answers.room_bytes > 0
        self._size_bytes = 0
        self._is_full = False
        self._has_error = False
        self._served: list[tuple[PartitionLog, int]] = []
        self.logs: list[PartitionLog] = []
        """The partitions that may have more later."""

    @property
    def is_enough(self) -> bool:
        """Whether the fetch may be answered now."""
        is_nothing_asked = not self.logs
        return self._has_error or is_nothing_asked or self._size_bytes >= self._wanted_bytes

    def read(self) -> list[PartitionData | None]:
        """Read all partitions, as far as there is room; None of one that has nothing new."""
        return [
            None if self._is_still_idle(cached.idle_mark) else self._read_partition(cached)
            for cached in self._partitions
        ]

    def count(self) -> None:
        """Note that the consumer gets what has been read."""
        for log, size_bytes in self._served:
            log.traffic.fetched_bytes += size_bytes

    def _is_still_idle(self, mark: IdleMark | None) -> bool:
        if mark is None or mark.log.extent != mark.extent or mark.reads_committed != self._reads_committed:
            return False
        self.logs.append(mark.log)
        return True

    def _read_partition(self, cached: CachedPartition) -> PartitionData | None:
        cached.idle_mark = None
        topic, topic_id, partition = cached.wanted
        log = self._services.partition(topic, topic_id, partition.partition)
        if log is None:
            is_unknown_id = topic_id is not None and self._services.topic("", topic_id) is None
            return self._failed(
                partition,
                ErrorCode.unknown_topic_id if is_unknown_id else ErrorCode.unknown_topic_or_partition,
            )
        error_code = check_leader_epoch(partition.current_leader_epoch)
        if error_code is not ErrorCode.none:
            return self._failed(partition, error_code)
        try:
            return self._read_log(cached, log)
        except OffsetOutOfRange:
            return self._failed(partition, ErrorCode.offset_out_of_range, log)
        except PartitionClosed:
            return self._failed(partition, ErrorCode.unknown_topic_or_partition)
        except HeadraceError as error:
            is_corrupt = isinstance(error, CorruptBatch)
            code = ErrorCode.corrupt_message if is_corrupt else ErrorCode.kafka_storage_error
            return self._failed(partition, code, log)

    def _read_log(self, cached: CachedPartition, log: PartitionLog) -> PartitionData | None:
        partition = cached.wanted.partition
        # Before all else that is looked at: a sync may end, on its thread, in between.
        extent = log.extent
        offset, start_offset = partition.fetch_offset, log.start_offset
        high_watermark = self._services.commit.high_watermark(log)
        stable_offset = log.last_stable_offset(high_watermark)
        below_offset = stable_offset if self._reads_committed else high_watermark
        if not start_offset <= offset <= log.end_offset:
            raise OffsetOutOfRange(f"offset {offset} is not in {start_offset}..{log.end_offset}")
        self.logs.append(log)
        has_more = offset < below_offset
        if not has_more and cached.told == Told(high_watermark, stable_offset, start_offset):
            cached.idle_mark = IdleMark(log, extent, self._reads_committed)
            return None
        records = self._records(log, partition, below_offset) if has_more else b""
        aborted: tuple[AbortedTransaction, ...] | None = None
        if self._reads_committed:
            aborted, records = _aborted(log, offset, records)
        return PartitionData(
            partition_index=partition.partition,
            high_watermark=high_watermark,
            last_stable_offset=stable_offset,
            log_start_offset=start_offset,
            aborted_transactions=aborted,
            records=records,
        )

    def _records(
        self, log: PartitionLog, partition: FetchPartition, below_offset: int
    ) -> bytes | StoredBatches:
        """What there is room for."""
        room_bytes = self._room_bytes - self._size_bytes
        if not self._has_room or self._is_full or (room_bytes <= 0 and self._size_bytes > 0):
            return b""
        records = log.lend(
            partition.fetch_offset,
            size_bytes_max=max(min(room_bytes, partition.partition_max_bytes), 0),
            below_offset=below_offset,
        )
        if len(records) > room_bytes and self._size_bytes > 0:
            self._is_full = True
            return b""
        if records:
            self._size_bytes += len(records)
            self._served.append((log, len(records)))
        return records

    def _failed(
        self, partition: FetchPartition, error_code: ErrorCode, log: PartitionLog | None = None
    ) -> PartitionData:
        self._has_error = True
        return PartitionData(
            partition_index=partition.partition,
            error_code=error_code,
            high_watermark=-1 if log is None else self._services.commit.high_watermark(log),
            log_start_offset=-1 if log is None else log.start_offset,
            records=b"",
        )


def _aborted(
    log: PartitionLog, offset: int, records: bytes | StoredBatches
) -> tuple[tuple[AbortedTransaction, ...], bytes | StoredBatches]:
    """The aborted transactions among the records, and the records: read, where that is how to find out."""
    found = log.aborted_transactions(offset, log.end_offset) if records else []
    if not found:
        return (), records
    read = records if isinstance(records, bytes) else records.read()
    end_offset = _end_offset(read)
    aborted = tuple(
        AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
        for each in found
        if each.first_offset < end_offset
    )
    return aborted, read


def _end_offset(records: bytes) -> int:
    """The offset after the last batch."""
    position = end_offset = 0
    while position < len(records):
        header = read_header(records, position)
        position, end_offset = position + header.size_bytes, header.last_offset + 1
    return end_offset
