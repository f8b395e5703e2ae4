"""Produce: append batches as they came, and acknowledge when the producer's wish is met.

    acks = -1   once the batches are durable
    acks =  1   once they are appended
    acks =  0   never; an error closes the connection, which is all that such a producer can notice

The append happens at once, in the order of requests; only the acknowledgement waits. So a producer that
keeps five requests in flight has them all in one fdatasync.

Batches of a transaction are appended once their partition is known to be part of it, and are always
acknowledged when they are durable: a commit promises them. A transactional producer with acks=0, which could
not know what its transaction holds, has its connection closed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from kio.schema.errors import ErrorCode

from headrace.errors import (
    BatchTooLarge,
    CorruptBatch,
    HeadraceError,
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidTimestamp,
    InvalidTransactionState,
    OutOfOrderSequence,
    PartitionClosed,
    StorageError,
)
from headrace.failpoints import hit
from headrace.kafka.answer import Pending, Silence, follow
from headrace.kafka.handlers.transactional_batches import ATTRIBUTES_AT, admit, is_transactional
from headrace.kafka.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from headrace.kafka.services import INTERNAL_TOPICS
from headrace.log.batch import CONTROL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.kafka.handlers.transactional_batches import Refusals
    from headrace.kafka.messages.produce import (
        PartitionProduceData,
        ProduceRequest,
        TopicProduceData,
    )
    from headrace.kafka.services import Call, Services
    from headrace.log.partition import PartitionLog
    from headrace.log.topic import Topic


@dataclass(frozen=True, slots=True)
class Wait:
    """A partition whose acknowledgement waits until everything below an offset is durable."""

    topic_position: int
    partition_position: int
    log: PartitionLog
    end_offset: int


NO_REFUSALS: Final[Refusals] = {}

# The order matters: CorruptBatch is a StorageError.
ERROR_CODES: Final = (
    (BatchTooLarge, ErrorCode.message_too_large),
    (CorruptBatch, ErrorCode.corrupt_message),
    (InvalidRecord, ErrorCode.invalid_record),
    (InvalidTimestamp, ErrorCode.invalid_timestamp),
    (OutOfOrderSequence, ErrorCode.out_of_order_sequence_number),
    (InvalidProducerEpoch, ErrorCode.invalid_producer_epoch),
    (InvalidTransactionState, ErrorCode.invalid_txn_state),
    (PartitionClosed, ErrorCode.unknown_topic_or_partition),
    (StorageError, ErrorCode.kafka_storage_error),
)


def handle_produce(
    call: Call, request: ProduceRequest
) -> ProduceResponse | Pending[ProduceResponse] | Silence:
    """Append batches."""
    if request.transactional_id is None:
        return _append_all(call.services, request, NO_REFUSALS, acks=request.acks)
    if request.acks == 0:
        return Silence.CLOSE
    pending: Pending[ProduceResponse] = Pending()

    def on_admitted(refusals: Refusals) -> None:
        response = _append_all(call.services, request, refusals, acks=-1)
        assert not isinstance(response, Silence)  # Only acks=0 is silent.
        follow(pending, response)

    admit(call, request, on_admitted)
    return pending


def _append_all(
    services: Services, request: ProduceRequest, refusals: Refusals, *, acks: int
) -> ProduceResponse | Pending[ProduceResponse] | Silence:
    waits: list[Wait] = []
    responses = tuple(
        _append_topic(services, request, position, refusals, waits)
        for position in range(len(request.topic_data))
    )
    if acks == 0:
        return Silence.CLOSE if _has_error(responses) else Silence.KEEP_OPEN
    if acks == 1 or not waits:
        return ProduceResponse(responses=responses)
    return _when_durable(services, responses, waits)


def _append_topic(
    services: Services, request: ProduceRequest, position: int, refusals: Refusals, waits: list[Wait]
) -> TopicProduceResponse:
    data = request.topic_data[position]
    topic = services.topic(data.name, data.topic_id)
    partitions = []
    for partition_position, partition in enumerate(data.partition_data):
        refusal = refusals.get((position, partition_position)) or _refusal(request, topic, partition)
        if refusal is not None:
            partitions.append(_failed(partition.index, *refusal))
            continue
        log = services.partition(data.name, data.topic_id, partition.index)
        if log is None:
            partitions.append(_failed(partition.index, _unknown(topic, data)))
            continue
        answer, end_offset = _append(services, log, partition)
        partitions.append(answer)
        if end_offset is not None and not services.commit.is_durable(log, end_offset):
            waits.append(Wait(position, partition_position, log, end_offset))
    return TopicProduceResponse(name=data.name, topic_id=data.topic_id, partition_responses=tuple(partitions))


def _append(
    services: Services, log: PartitionLog, partition: PartitionProduceData
) -> tuple[PartitionProduceResponse, int | None]:
    """Append, and tell below which offset all must be durable before this may be acknowledged."""
    try:
        appended = log.append(partition.records or b"", size_bytes_max=log.settings.max_message_bytes)
    except HeadraceError as error:
        return refused(partition.index, error), None
    services.commit.appended(log)
    if not appended.duplicate:
        log.traffic.produced_record_count += appended.last_offset - appended.base_offset + 1
        log.traffic.produced_bytes += len(partition.records or b"")
    answer = PartitionProduceResponse(
        index=partition.index,
        base_offset=appended.base_offset,
        log_append_time_ms=appended.log_append_time_ms,
        log_start_offset=log.start_offset,
    )
    return answer, appended.last_offset + 1


def _unknown(topic: Topic | None, data: TopicProduceData) -> ErrorCode:
    is_unknown_id = topic is None and data.topic_id is not None
    return ErrorCode.unknown_topic_id if is_unknown_id else ErrorCode.unknown_topic_or_partition


def _refusal(
    request: ProduceRequest, topic: Topic | None, partition: PartitionProduceData
) -> tuple[ErrorCode, str] | None:
    """What can't be right whatever the log says."""
    if request.acks not in {-1, 0, 1}:
        return ErrorCode.invalid_required_acks, f"acks is {request.acks}: use all (-1), 1 or 0"
    # The request may have named the topic by its id alone.
    if topic is not None and topic.name in INTERNAL_TOPICS:
        return ErrorCode.invalid_topic_exception, f"{topic.name} is written by the broker only"
    records = partition.records or b""
    if request.transactional_id is None and is_transactional(records):
        return (
            ErrorCode.transactional_id_authorization_failed,
            "a batch is part of a transaction, but the request names no transactional id",
        )
    if len(records) > ATTRIBUTES_AT and records[ATTRIBUTES_AT] & CONTROL:
        return ErrorCode.invalid_record, "control batches are written by the broker only"
    return None


def error_code_of(error: HeadraceError) -> ErrorCode:
    """What to call an error of the log on the wire."""
    return next(
        (code for cause, code in ERROR_CODES if isinstance(error, cause)), ErrorCode.unknown_server_error
    )


def refused(index: int, error: HeadraceError) -> PartitionProduceResponse:
    """What is answered for a partition whose log has refused the records."""
    if isinstance(error, InvalidRecord):
        return _invalid(index, error)
    return _failed(index, error_code_of(error), str(error))


def _failed(index: int, error_code: ErrorCode, message: str | None = None) -> PartitionProduceResponse:
    return PartitionProduceResponse(index=index, error_code=error_code, base_offset=-1, error_message=message)


def _invalid(index: int, error: InvalidRecord) -> PartitionProduceResponse:
    """Name the records at fault, so that a client can tell them from those that were only beside them."""
    return PartitionProduceResponse(
        index=index,
        error_code=ErrorCode.invalid_record,
        base_offset=-1,
        record_errors=tuple(
            BatchIndexAndErrorMessage(batch_index=number, batch_index_error_message=str(error))
            for number in error.record_numbers
        ),
        error_message=str(error),
    )


def _has_error(responses: tuple[TopicProduceResponse, ...]) -> bool:
    return any(
        partition.error_code is not ErrorCode.none
        for topic in responses
        for partition in topic.partition_responses
    )


def _when_durable(
    services: Services, responses: tuple[TopicProduceResponse, ...], waits: list[Wait]
) -> Pending[ProduceResponse]:
    pending: Pending[ProduceResponse] = Pending()
    failures: dict[tuple[int, int], HeadraceError] = {}
    remaining = len(waits)

    def on_end(wait: Wait, error: HeadraceError | None) -> None:
        nonlocal remaining
        remaining -= 1
        if error is not None:
            failures[wait.topic_position, wait.partition_position] = error
        if remaining == 0:
            hit("kafka.produce.durable")
            pending.resolve(ProduceResponse(responses=_with_failures(responses, failures)))

    for wait in waits:
        services.commit.when_durable(wait.log, wait.end_offset, partial(on_end, wait))
    return pending


def _with_failures(
    responses: tuple[TopicProduceResponse, ...], failures: Mapping[tuple[int, int], HeadraceError]
) -> tuple[TopicProduceResponse, ...]:
    """Each partition's own outcome: what became durable is acknowledged, whatever became of the others."""
    if not failures:
        return responses
    return tuple(
        TopicProduceResponse(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_responses=tuple(
                partition if error is None else _failed(partition.index, error_code_of(error), str(error))
                for j, partition in enumerate(topic.partition_responses)
                for error in (failures.get((i, j)),)
            ),
        )
        for i, topic in enumerate(responses)
    )
