"""DeleteRecords: everything below an offset goes, for good before it is answered.

The offset -1 stands for the high watermark. A topic that is only compacted keeps what compaction leaves, so
there it is refused, as Kafka does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kio.schema.errors import ErrorCode

from headrace.errors import HeadraceError, OffsetOutOfRange
from headrace.kafka.answer import Pending, when_all
from headrace.kafka.audit import audit
from headrace.kafka.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from headrace.kafka.refusal import Refused, code_of
from headrace.kafka.services import INTERNAL_TOPICS

if TYPE_CHECKING:
    from headrace.kafka.messages.delete_records import DeleteRecordsRequest
    from headrace.kafka.services import Call, Services
    from headrace.log.change import Change
    from headrace.log.partition import PartitionLog

HIGH_WATERMARK: Final = -1


def handle_delete_records(
    call: Call, request: DeleteRecordsRequest
) -> DeleteRecordsResponse | Pending[DeleteRecordsResponse]:
    """Delete records of each partition that is named; where one is named twice, the last one counts."""
    asked: dict[str, dict[int, int]] = {}
    for topic in request.topics:
        asked.setdefault(topic.name, {}).update(
            {each.partition_index: each.offset for each in topic.partitions}
        )
    outcomes = [_delete_of_topic(call, name, partitions) for name, partitions in asked.items()]
    return when_all(outcomes, lambda topics: DeleteRecordsResponse(topics=topics))


def _delete_of_topic(
    call: Call, name: str, partitions: dict[int, int]
) -> DeleteRecordsTopicResult | Pending[DeleteRecordsTopicResult]:
    outcomes: list[DeleteRecordsPartitionResult | Pending[DeleteRecordsPartitionResult]] = [
        _delete(call, name, number, offset) for number, offset in partitions.items()
    ]
    return when_all(outcomes, lambda results: DeleteRecordsTopicResult(name=name, partitions=results))


def _delete(call: Call, topic: str, number: int, offset: int) -> Pending[DeleteRecordsPartitionResult]:
    services = call.services
    pending: Pending[DeleteRecordsPartitionResult] = Pending()

    def begin() -> Change[int]:
        log = _log(services, topic, number)
        return log.begin_record_deletion(_offset(services, log, offset))

    def on_outcome(outcome: int | HeadraceError) -> None:
        if isinstance(outcome, HeadraceError):
            pending.resolve(
                DeleteRecordsPartitionResult(
                    partition_index=number, low_watermark=-1, error_code=_code_of(outcome)
                )
            )
            return
        audit(call, "records.delete", topic=topic, partition=number, below=outcome)
        log = services.partition(topic, None, number)
        if log is not None:
            # Whoever waits at an offset that is gone has to hear of it.
            services.watchers.notify(log)
        pending.resolve(DeleteRecordsPartitionResult(partition_index=number, low_watermark=outcome))

    services.topics.change(topic, begin, on_outcome)
    return pending


def _log(services: Services, topic: str, number: int) -> PartitionLog:
    log = services.partition(topic, None, number)
    if log is None:
        raise Refused(
            ErrorCode.unknown_topic_or_partition, f"there is no partition {number} of a topic {topic}"
        )
    if topic in INTERNAL_TOPICS:
        raise Refused(ErrorCode.invalid_topic_exception, f"{topic} is the broker's own")
    if log.settings.is_compacted and not log.settings.is_deleted:
        raise Refused(
            ErrorCode.policy_violation,
            f"topic {topic} is compacted: add delete to its cleanup.policy, or write tombstones",
        )
    return log


def _offset(services: Services, log: PartitionLog, offset: int) -> int:
    """The offset that is meant."""
    high_watermark = services.commit.high_watermark(log)
    if offset == HIGH_WATERMARK:
        return high_watermark
    if not 0 <= offset <= high_watermark:
        raise OffsetOutOfRange(f"records can be deleted up to offset {high_watermark}, not {offset}")
    return offset


def _code_of(error: HeadraceError) -> ErrorCode:
    return ErrorCode.offset_out_of_range if isinstance(error, OffsetOutOfRange) else code_of(error)
