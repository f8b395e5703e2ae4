"""One pass over the partitions of a share fetch: what there is for a member, and what it takes of that.

A pass changes nothing. Once it has found enough, what it has found is taken, in the same step: nobody else
can have had it meanwhile.

Records are given out by whole batches, as they lie in the log. An answer has the bytes from the first batch
of which the member gets something to the last one; of what is in between, it gets what it is told.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from kio.schema.errors import ErrorCode

from headrace.config import MIB
from headrace.errors import CorruptBatch, HeadraceError, OffsetOutOfRange, PartitionClosed
from headrace.kafka.share.giving import Acquisition, Span
from headrace.kafka.share.positions import READ_COMMITTED
from headrace.kafka.share.records import ShareKey
from headrace.kafka.share.starting import first_deliveries
from headrace.log.batch import read_header

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.kafka.groups.settings import GroupSettings
    from headrace.kafka.messages.share_fetch import ShareFetchRequest
    from headrace.kafka.services import Services
    from headrace.kafka.share.deliveries import Deliveries
    from headrace.kafka.share.giving import Acquired
    from headrace.kafka.share.sessions import SharePartition, ShareSession
    from headrace.log.batch import BatchHeader
    from headrace.log.partition import PartitionLog

WHOLE_BATCHES: Final = 0
EXACT_MODE: Final = 1
PARTITION_BYTES_MAX: Final = 1 * MIB
"""What is read of one partition in one step, or one batch. The next one goes on behind it."""
BATCHES_PER_STEP_MAX: Final = 1_000
"""How many batches are looked at in one step: there may be very many small ones."""
STEPS_PER_PARTITION_MAX: Final = 4
"""How often one pass goes on behind what nobody is to see. Others must have their turn, too."""


class Batch(NamedTuple):
    """A batch among bytes that were read."""

    header: BatchHeader
    position: int


@dataclass(slots=True, kw_only=True)
class Found:
    """What there is of one partition."""

    partition: SharePartition
    error_code: ErrorCode = ErrorCode.none
    message: str | None = None
    records: bytes = b""
    acquired: tuple[Acquired, ...] = ()
    deliveries: Deliveries | None = None
    """What they become when it is taken."""


@dataclass(slots=True)
class ShareReading:
    """What there is to answer a share fetch with, now."""

    services: Services
    session: ShareSession
    request: ShareFetchRequest
    settings: GroupSettings
    found: list[Found] = field(default_factory=list)
    keys: list[ShareKey] = field(default_factory=list)
    """The partitions that may have more later."""
    is_behind: bool = False
    """Whether there is more to look at, at once, behind what nobody is to see."""
    _record_count: int = 0
    _size_bytes: int = 0

    @property
    def is_enough(self) -> bool:
        """Whether the fetch may be answered now."""
        has_error = any(each.error_code is not ErrorCode.none for each in self.found)
        wanted_bytes = max(min(self.request.min_bytes, self._room_bytes), 1)
        # What compaction has left out is given out without bytes.
        has_any = self.request.min_bytes <= 1 and any(each.acquired for each in self.found)
        return has_error or has_any or not self.keys or self._size_bytes >= wanted_bytes

    def read(self) -> ShareReading:
        """Look at all partitions, as far as there is room."""
        for partition in self.session.partitions:
            self.found.append(self._look_at(partition))
        return self

    def take(self) -> None:
        """Let the member have it."""
        self.services.shares.take(
            {self._key(each.partition): each.deliveries for each in self.found if each.deliveries is not None}
        )
        for each in self.found:
            log = self._log(each.partition)
            if each.acquired and log is not None:
                self.session.gave(each.partition)
                log.traffic.fetched_bytes += len(each.records)

    def keep_skipped(self) -> None:
        """Note what nobody is to see, so that the next pass goes on behind it; the member gets nothing."""
        skipped = (each for each in self.found if each.deliveries is not None and not each.acquired)
        self.services.shares.skip(
            {self._key(each.partition): each.deliveries for each in skipped if each.deliveries is not None}
        )

    def starting(self) -> dict[ShareKey, Deliveries]:
        """Where the group begins to read partitions of which it has no position yet."""
        begun = {}
        for partition in self.session.partitions:
            key, log = self._key(partition), self._log(partition)
            if log is None or self.services.shares.get(key) is not None or not self._may_begin(partition):
                continue
            end_offset = self.services.commit.high_watermark(log)
            begun[key] = first_deliveries(log, end_offset, self.settings, self.services.clock.now_ms())
        return begun

    @property
    def _room_bytes(self) -> int:
        allowed_bytes = min(self.request.max_bytes, self.services.config.fetch_bytes_max)
        return min(allowed_bytes, self.services.unsent_answers.room_bytes)

    def _key(self, partition: SharePartition) -> ShareKey:
        return ShareKey(self.session.key[0], *partition)

    def _log(self, partition: SharePartition) -> PartitionLog | None:
        topic_id, index = partition
        return self.services.partition("", topic_id, index)

    def _may_begin(self, partition: SharePartition) -> bool:
        """Whether the group reads the topic: only then its position is anybody's."""
        group = self.services.groups.coordinator.share_groups.get(self.session.key[0])
        topic = self.services.topic("", partition[0])
        return group is not None and topic is not None and group.is_subscribed(topic.name)

    def _look_at(self, partition: SharePartition) -> Found:
        key, log = self._key(partition), self._log(partition)
        if log is None:
            is_known = self.services.topic("", partition[0]) is not None
            code = ErrorCode.unknown_topic_or_partition if is_known else ErrorCode.unknown_topic_id
            return Found(partition=partition, error_code=code)
        deliveries = self.services.shares.get(key)
        if deliveries is None:
            return Found(
                partition=partition,
                error_code=ErrorCode.unknown_server_error,
                message=f"the group {key.group_id} is no share group that reads this topic",
            )
        self.keys.append(key)
        try:
            return self._read(partition, log, deliveries)
        except (OffsetOutOfRange, PartitionClosed):
            return Found(partition=partition, error_code=ErrorCode.unknown_topic_or_partition)
        except HeadraceError as error:
            is_corrupt = isinstance(error, CorruptBatch)
            code = ErrorCode.corrupt_message if is_corrupt else ErrorCode.kafka_storage_error
            return Found(partition=partition, error_code=code, message=str(error))

    def _read(self, partition: SharePartition, log: PartitionLog, before: Deliveries) -> Found:
        found = Found(partition=partition)
        deliveries = before.advance(log.start_offset)
        below_offset = self.services.shares.readable_below(self._key(partition), log)
        for _ in range(STEPS_PER_PARTITION_MAX):
            if not self._has_room or not deliveries.has_room(self.settings.share_partition_max_record_locks):
                break
            offset = deliveries.next_offset
            records = self._records(log, offset, below_offset)
            batches = list(islice(_batches(records), BATCHES_PER_STEP_MAX))
            after, found.acquired = deliveries.acquire(self._spans(log, batches, offset), self._wanted())
            if after == deliveries:
                break
            deliveries = after
            if found.acquired:
                found.records = _cut(records, batches, found.acquired)
                self._record_count += sum(each.offset_count for each in found.acquired)
                self._size_bytes += len(found.records)
                break
        else:
            self.is_behind = True
        if deliveries != before:
            found.deliveries = deliveries
        return found

    @property
    def _has_room(self) -> bool:
        is_first = self._size_bytes == 0
        return self._record_count < self.request.max_records and (
            self._size_bytes < self._room_bytes or (is_first and self._room_bytes > 0)
        )

    def _records(self, log: PartitionLog, offset: int, below_offset: int) -> bytes:
        """What lies there, if there is room for it: one batch at least, if it is the first."""
        if not log.start_offset <= offset < below_offset:
            return b""
        room_bytes = self._room_bytes - self._size_bytes
        records = log.read(
            offset, size_bytes_max=min(room_bytes, PARTITION_BYTES_MAX), below_offset=below_offset
        )
        return records if len(records) <= room_bytes or self._size_bytes == 0 else b""

    def _wanted(self) -> Acquisition:
        lock_ms = self.settings.share_record_lock_duration_ms
        return Acquisition(
            member_id=self.session.key[1],
            deadline_ms=self.services.shares.now_ms() + lock_ms,
            record_count_max=self.request.max_records - self._record_count,
            is_exact=self.request.share_acquire_mode == EXACT_MODE,
            batch_count=self.request.batch_size,
            in_flight_count_max=self.settings.share_partition_max_record_locks,
            delivery_count_max=self.settings.share_delivery_count_limit,
        )

    def _spans(self, log: PartitionLog, batches: list[Batch], offset: int) -> list[Span]:
        """The batches as offsets: those that compaction has left out go with the batch behind them."""
        hidden = self._aborted(log, batches, offset)
        spans: list[Span] = []
        first = offset
        for batch in batches:
            last = batch.header.last_offset
            is_hidden = batch.header.is_control or batch.header.base_offset in hidden
            spans.append(Span(first, last, is_hidden))
            first = last + 1
        return spans

    def _aborted(self, log: PartitionLog, batches: list[Batch], offset: int) -> set[int]:
        """Where batches of aborted transactions begin, if the group does not want to see them."""
        if self.settings.share_isolation_level != READ_COMMITTED or not batches:
            return set()
        by_producer: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
        for each in log.aborted_transactions(offset, batches[-1].header.last_offset + 1):
            by_producer[each.producer_id].append((each.first_offset, each.last_offset))
        for ranges in by_producer.values():
            ranges.sort()
        return {
            header.base_offset
            for header, _ in batches
            if header.is_transactional and _is_within(header.base_offset, by_producer[header.producer_id])
        }


def _is_within(offset: int, ranges: list[tuple[int, int]]) -> bool:
    """Whether one of the ranges has the offset; they don't overlap, and are in order."""
    index = bisect_right(ranges, offset, key=lambda each: each[0]) - 1
    return index >= 0 and offset <= ranges[index][1]


def _batches(records: bytes) -> Iterator[Batch]:
    position = 0
    while position < len(records):
        header = read_header(records, position)
        yield Batch(header, position)
        position += header.size_bytes


def _cut(records: bytes, batches: list[Batch], acquired: tuple[Acquired, ...]) -> bytes:
    """The batches of which the member gets something, and those in between."""
    wanted = [
        batch
        for batch in batches
        if batch.header.last_offset >= acquired[0].first and batch.header.base_offset <= acquired[-1].last
    ]
    if not wanted:
        # Only offsets that compaction has left out, which the member is to acknowledge as gaps.
        return b""
    begin = wanted[0].position
    end = wanted[-1].position + wanted[-1].header.size_bytes
    return records[begin:end]
