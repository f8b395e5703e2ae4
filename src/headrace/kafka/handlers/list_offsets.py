"""ListOffsets: where a partition begins and ends, and where a time is in it.

Nothing is told about records that are not durable yet, nor to a client that reads committed records only
about those beyond the last stable offset. A client that asks for the highest timestamp waits until that
record is durable; to call the partition empty instead would be wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kio.schema.errors import ErrorCode

from headrace.errors import HeadraceError
from headrace.kafka.answer import Pending
from headrace.kafka.handlers.leader_epoch import check_leader_epoch
from headrace.kafka.handlers.produce import error_code_of
from headrace.kafka.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from headrace.log.batch import LEADER_EPOCH

if TYPE_CHECKING:
    from headrace.kafka.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest
    from headrace.kafka.services import Call, Services
    from headrace.log.partition import PartitionLog
    from headrace.log.timestamps import TimestampedOffset

    Newest = dict[PartitionLog, TimestampedOffset]

READ_COMMITTED: Final = 1
LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
"""Of tiered storage. Everything is local here, so it is the earliest."""
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6
"""Of tiered storage, too, which has nothing here."""
FIRST_VERSION_WITH: Final = {
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
"""The first version in which a special timestamp means something; those without an entry always do."""
UNKNOWN: Final = (-1, -1)
"""No timestamp and no offset: the answer to a time after the last record."""


def handle_list_offsets(
    call: Call, request: ListOffsetsRequest
) -> ListOffsetsResponse | Pending[ListOffsetsResponse]:
    """Look up offsets."""
    services = call.services
    newest = _newest_not_durable(services, request)
    if not newest:
        return _look_up_all(call, request, newest)
    pending: Pending[ListOffsetsResponse] = Pending()
    remaining = len(newest)

    def on_durable(_error: HeadraceError | None) -> None:
        # After an error the look-up finds what is wrong by itself.
        nonlocal remaining
        remaining -= 1
        if remaining == 0:
            pending.resolve(_look_up_all(call, request, newest))

    for log, found in tuple(newest.items()):
        services.commit.when_durable(log, found.offset + 1, on_durable)
    return pending


def _newest_not_durable(services: Services, request: ListOffsetsRequest) -> Newest:
    """The records with the highest timestamps that are asked for and not durable yet."""
    newest: Newest = {}
    for topic in request.topics:
        for partition in topic.partitions:
            log = services.partition(topic.name, None, partition.partition_index)
            if log is None or partition.timestamp != MAX_TIMESTAMP or log in newest:
                continue
            try:
                found = log.max_timestamp()
            except HeadraceError:
                # The look-up will meet the same error, and answer with it.
                continue
            if found is not None and found.offset >= services.commit.high_watermark(log):
                newest[log] = found
    return newest


def _look_up_all(call: Call, request: ListOffsetsRequest, newest: Newest) -> ListOffsetsResponse:
    """Each partition once; one that is asked for twice is an error, as in Kafka."""
    asked: dict[str, dict[int, ListOffsetsPartition | None]] = {}
    for topic in request.topics:
        partitions = asked.setdefault(topic.name, {})
        for each in topic.partitions:
            partitions[each.partition_index] = None if each.partition_index in partitions else each
    return ListOffsetsResponse(
        topics=tuple(
            ListOffsetsTopicResponse(
                name=name,
                partitions=tuple(
                    ListOffsetsPartitionResponse(partition_index=index, error_code=ErrorCode.invalid_request)
                    if partition is None
                    else _look_up(call, request, name, partition, newest)
                    for index, partition in partitions.items()
                ),
            )
            for name, partitions in asked.items()
        )
    )


def _look_up(
    call: Call,
    request: ListOffsetsRequest,
    topic: str,
    partition: ListOffsetsPartition,
    newest: Newest,
) -> ListOffsetsPartitionResponse:
    services = call.services
    log = services.partition(topic, None, partition.partition_index)
    error_code = _refusal(call, log, partition)
    if log is None or error_code is not ErrorCode.none:
        return ListOffsetsPartitionResponse(partition_index=partition.partition_index, error_code=error_code)
    try:
        below_offset = services.commit.high_watermark(log)
        if request.isolation_level == READ_COMMITTED:
            below_offset = log.last_stable_offset(below_offset)
        timestamp, offset = _offset_for(log, below_offset, partition.timestamp, newest)
    except HeadraceError as error:
        return ListOffsetsPartitionResponse(
            partition_index=partition.partition_index, error_code=error_code_of(error)
        )
    return ListOffsetsPartitionResponse(
        partition_index=partition.partition_index,
        timestamp=timestamp,
        offset=offset,
        leader_epoch=LEADER_EPOCH if offset >= 0 else -1,
    )


def _refusal(call: Call, log: PartitionLog | None, partition: ListOffsetsPartition) -> ErrorCode:
    """What can't be right whatever is in the log."""
    timestamp = partition.timestamp
    if timestamp < EARLIEST_PENDING_UPLOAD or call.api_version < FIRST_VERSION_WITH.get(timestamp, 0):
        return ErrorCode.unsupported_version
    if log is None:
        return ErrorCode.unknown_topic_or_partition
    return check_leader_epoch(partition.current_leader_epoch)


def _offset_for(log: PartitionLog, below_offset: int, timestamp: int, newest: Newest) -> tuple[int, int]:
    """What is asked for, of the records below an offset."""
    if timestamp == LATEST:
        return -1, below_offset
    if timestamp in {EARLIEST, EARLIEST_LOCAL}:
        return -1, log.start_offset
    if timestamp == MAX_TIMESTAMP:
        found = newest.get(log) or log.max_timestamp()
    elif timestamp >= 0:
        found = log.offset_for_timestamp(timestamp)
    else:
        found = None
    if found is None or found.offset >= below_offset:
        return UNKNOWN
    return found.timestamp_ms, found.offset
