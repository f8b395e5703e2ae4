"""OffsetForLeaderEpoch, and the check of epochs that Fetch and ListOffsets share.

One broker leads every partition for ever, so there is one epoch, and nothing has ever been truncated by a
change of leaders: the epoch ends where the log ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kio.schema.errors import ErrorCode

from headrace.kafka.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from headrace.log.batch import LEADER_EPOCH

if TYPE_CHECKING:
    from headrace.kafka.messages.offset_for_leader_epoch import (
        OffsetForLeaderEpochRequest,
        OffsetForLeaderPartition,
    )
    from headrace.kafka.services import Call, Services

UNDEFINED_EPOCH: Final = -1


def check_leader_epoch(epoch: int) -> ErrorCode:
    """Whether the client knows the present leader, as far as it says."""
    if epoch in {UNDEFINED_EPOCH, LEADER_EPOCH}:
        return ErrorCode.none
    return ErrorCode.unknown_leader_epoch if epoch > LEADER_EPOCH else ErrorCode.fenced_leader_epoch


def handle_offset_for_leader_epoch(
    call: Call, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    """Say where an epoch ends."""
    services = call.services
    return OffsetForLeaderEpochResponse(
        topics=tuple(
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=tuple(_epoch_end(services, topic.topic, each) for each in topic.partitions),
            )
            for topic in request.topics
        )
    )


def _epoch_end(services: Services, topic: str, partition: OffsetForLeaderPartition) -> EpochEndOffset:
    log = services.partition(topic, None, partition.partition)
    if log is None:
        return EpochEndOffset(error_code=ErrorCode.unknown_topic_or_partition, partition=partition.partition)
    error_code = check_leader_epoch(partition.current_leader_epoch)
    if error_code is not ErrorCode.none or partition.leader_epoch != LEADER_EPOCH:
        return EpochEndOffset(error_code=error_code, partition=partition.partition)
    return EpochEndOffset(
        partition=partition.partition,
        leader_epoch=LEADER_EPOCH,
        end_offset=services.commit.high_watermark(log),
    )
