"""Fetch: batches as they lie on disk, up to the high watermark.

A consumer that reads committed records only gets none beyond the last stable offset, where the first open
transaction begins, and the list of the aborted transactions among what it gets: it skips those itself.

A fetch that finds less than `min_bytes` is parked. It looks again whenever one of its partitions can be
read further, and answers with what there is when `max_wait_ms` has passed.

The first partition that has anything gives at least one whole batch, whatever the limits say: a consumer
must be able to get past a batch that is larger than its buffer (KIP-74). The others give theirs, even one
that is above the partition's own limit, while the answer has room. The first batch that does not fit ends
the reading: at most one batch per answer is read in vain.

In a session (see fetch_sessions.py) all of its partitions are read, whichever the request names, and the
answer leaves out what the client knows already.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final

from kio.schema.errors import ErrorCode

from headrace.errors import HeadraceError, OffsetOutOfRange, PartitionClosed
from headrace.kafka.answer import Pending
from headrace.kafka.handlers.leader_epoch import check_leader_epoch
from headrace.kafka.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from headrace.log.batch import read_header

if TYPE_CHECKING:
    from headrace.kafka.fetch_sessions import FetchContext, Wanted
    from headrace.kafka.messages.fetch import FetchPartition, FetchRequest
    from headrace.kafka.services import Call, Services, Timer
    from headrace.log.partition import PartitionLog

READ_COMMITTED: Final = 1
FIRST_VERSION_WITH_TOPIC_IDS: Final = 13


def handle_fetch(call: Call, request: FetchRequest) -> FetchResponse | Pending[FetchResponse]:
    """Read batches, now or when there are some."""
    services = call.services
    context = services.fetch_sessions.open(
        request,
        uses_topic_ids=call.api_version >= FIRST_VERSION_WITH_TOPIC_IDS,
        now_ms=int(services.clock.monotonic_s() * 1000),
    )
    if isinstance(context, ErrorCode):
        return FetchResponse(error_code=context, responses=())
    reading = _Reading(services, request, context)
    data = reading.read()
    if reading.is_enough or request.max_wait_ms <= 0:
        reading.count()
        return _response(context, data)
    return _ParkedFetch(services, request, context, reading.logs).pending


def _response(context: FetchContext, data: list[PartitionData]) -> FetchResponse:
    answer = context.answer(data)
    if isinstance(answer, ErrorCode):
        return FetchResponse(error_code=answer, responses=())
    return FetchResponse(
        session_id=context.session_id,
        responses=tuple(
            FetchableTopicResponse(
                topic=topic, topic_id=topic_id, partitions=tuple(each for _, each in partitions)
            )
            for (topic, topic_id), partitions in groupby(answer, key=lambda each: each[0][:2])
        ),
    )


class _Reading:
    """One pass over the partitions of a fetch."""

    def __init__(self, services: Services, request: FetchRequest, context: FetchContext) -> None:
        self._services = services
        self._request = request
        self._wanted = context.wanted
        self._room_bytes = min(request.max_bytes, services.config.fetch_bytes_max)
        self._size_bytes = 0
        self._is_full = False
        self._has_error = False
        self._served: list[tuple[PartitionLog, int]] = []
        self.logs: list[PartitionLog] = []

    @property
    def is_enough(self) -> bool:
        """Whether the fetch may be answered now."""
        is_nothing_asked = not self.logs
        return (
            self._has_error
            or is_nothing_asked
            or self._size_bytes >= min(self._request.min_bytes, self._room_bytes)
        )

    def read(self) -> list[PartitionData]:
        """Read all partitions, as far as there is room."""
        return [self._read_partition(wanted) for wanted in self._wanted]

    def count(self) -> None:
        """Note that the consumer gets what has been read."""
        for log, size_bytes in self._served:
            log.traffic.fetched_bytes += size_bytes

    def _read_partition(self, wanted: Wanted) -> PartitionData:
        topic, topic_id, partition = wanted
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
            records = self._read_log(log, partition)
        except OffsetOutOfRange:
            return self._failed(partition, ErrorCode.offset_out_of_range, log)
        except PartitionClosed:
            return self._failed(partition, ErrorCode.unknown_topic_or_partition)
        except HeadraceError:
            return self._failed(partition, ErrorCode.kafka_storage_error, log)
        self.logs.append(log)
        if records:
            self._size_bytes += len(records)
            self._served.append((log, len(records)))
        high_watermark = self._services.commit.high_watermark(log)
        return PartitionData(
            partition_index=partition.partition,
            high_watermark=high_watermark,
            last_stable_offset=log.last_stable_offset(high_watermark),
            log_start_offset=log.start_offset,
            aborted_transactions=self._aborted(log, partition.fetch_offset, records),
            records=records,
        )

    def _read_log(self, log: PartitionLog, partition: FetchPartition) -> bytes:
        below_offset = self._services.commit.high_watermark(log)
        if self._request.isolation_level == READ_COMMITTED:
            below_offset = log.last_stable_offset(below_offset)
        offset = partition.fetch_offset
        if not log.start_offset <= offset <= log.end_offset:
            raise OffsetOutOfRange(f"offset {offset} is not in {log.start_offset}..{log.end_offset}")
        if offset >= below_offset:
            return b""
        room_bytes = self._room_bytes - self._size_bytes
        if self._is_full or (room_bytes <= 0 and self._size_bytes > 0):
            return b""
        wanted_bytes = max(min(room_bytes, partition.partition_max_bytes), 0)
        records = log.read(offset, size_bytes_max=wanted_bytes, below_offset=below_offset)
        if len(records) <= room_bytes or self._size_bytes == 0:
            return records
        self._is_full = True
        return b""

    def _aborted(
        self, log: PartitionLog, offset: int, records: bytes
    ) -> tuple[AbortedTransaction, ...] | None:
        """The aborted transactions among the records; nothing for who reads uncommitted ones, too."""
        if self._request.isolation_level != READ_COMMITTED:
            return None
        found = log.aborted_transactions(offset, log.end_offset) if records else []
        end_offset = _end_offset(records) if found else 0
        return tuple(
            AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset)
            for each in found
            if each.first_offset < end_offset
        )

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


class _ParkedFetch:
    """A fetch that waits for more."""

    def __init__(
        self, services: Services, request: FetchRequest, context: FetchContext, logs: list[PartitionLog]
    ) -> None:
        self.pending: Pending[FetchResponse] = Pending()
        self._services = services
        self._request = request
        self._context = context
        self._logs = logs
        wait_ms = min(request.max_wait_ms, services.config.fetch_wait_ms_max)
        services.watchers.watch(logs, self._look_again)
        self._timer: Timer = services.scheduler.call_later(wait_ms / 1000, self._give_up)
        self.pending.on_abandoned = self._stop

    def _look_again(self) -> None:
        reading = _Reading(self._services, self._request, self._context)
        data = reading.read()
        if reading.is_enough:
            self._answer(reading, data)

    def _give_up(self) -> None:
        reading = _Reading(self._services, self._request, self._context)
        self._answer(reading, reading.read())

    def _answer(self, reading: _Reading, data: list[PartitionData]) -> None:
        reading.count()
        self._stop()
        self.pending.resolve(_response(self._context, data))

    def _stop(self) -> None:
        self._services.watchers.unwatch(self._logs, self._look_again)
        self._timer.cancel()


def _end_offset(records: bytes) -> int:
    """The offset after the last batch."""
    position = end_offset = 0
    while position < len(records):
        header = read_header(records, position)
        position, end_offset = position + header.size_bytes, header.last_offset + 1
    return end_offset
