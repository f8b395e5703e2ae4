"""TxnOffsetCommit: how far a group has come, as part of a transaction.

The offsets are pending until the transaction ends. The step that appends them checks both sides: that the
producer is the one that has the transaction open, and that whoever read the records is still a member of the
present generation of the group, so that a zombie of either kind commits nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kio.schema.errors import ErrorCode

from headrace.errors import HeadraceError
from headrace.kafka.answer import Pending
from headrace.kafka.groups.committing import Committer
from headrace.kafka.groups.offsets import OffsetCommitted
from headrace.kafka.handlers.offsets import offset_to_commit
from headrace.kafka.handlers.produce import error_code_of
from headrace.kafka.handlers.transactions import OFFSETS_PARTITION
from headrace.kafka.messages.txn_offset_commit import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from headrace.kafka.transactions.state import TV2, ProducerIdentity

if TYPE_CHECKING:
    from headrace.kafka.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitRequestTopic
    from headrace.kafka.services import Call, Services
    from headrace.kafka.transactions.decision import Decision

FIRST_VERSION_THAT_KNOWS_ABORTABLE: Final = 4
FIRST_VERSION_THAT_ADDS_OFFSETS: Final = 5

Answer = Pending[TxnOffsetCommitResponse]


def handle_txn_offset_commit(
    call: Call, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse | Pending[TxnOffsetCommitResponse]:
    """Keep offsets; the answer waits until they are durable."""
    if not request.group_id:
        return _refused(request, ErrorCode.invalid_group_id)
    pending: Answer = Pending()
    transactions = call.services.transactions

    def on_settled(error: HeadraceError | None) -> None:
        if error is None:
            _commit(call, request, pending)
        else:
            pending.resolve(_refused(request, ErrorCode.coordinator_not_available))

    def on_added(outcome: Decision | HeadraceError) -> None:
        if isinstance(outcome, HeadraceError):
            on_settled(outcome)
        elif outcome.error_code is not ErrorCode.none:
            pending.resolve(_refused(request, _commit_error(call, outcome.error_code)))
        else:
            on_settled(None)

    if call.api_version < FIRST_VERSION_THAT_ADDS_OFFSETS:
        transactions.when_settled(request.transactional_id, on_settled)
    else:
        transactions.add(request.transactional_id, _producer(request), (OFFSETS_PARTITION,), TV2, on_added)
    return pending


def _commit(call: Call, request: TxnOffsetCommitRequest, pending: Answer) -> None:
    services = call.services
    checked = services.transactions.coordinator.check_partition(
        request.transactional_id, _producer(request), OFFSETS_PARTITION
    )
    error_code = (
        _commit_error(call, checked) if checked is not ErrorCode.none else _check_group(call, request)
    )
    if error_code is not ErrorCode.none:
        pending.resolve(_refused(request, error_code))
        return
    offsets: list[OffsetCommitted] = []
    response = TxnOffsetCommitResponse(
        topics=tuple(_commit_topic(services, request.group_id, topic, offsets) for topic in request.topics)
    )

    def on_durable(error: HeadraceError | None) -> None:
        pending.resolve(response if error is None else _refused(request, ErrorCode.coordinator_not_available))

    try:
        services.groups.write_pending(request.producer_id, request.producer_epoch, offsets, on_durable)
    except HeadraceError as error:
        pending.resolve(_refused(request, error_code_of(error)))


def _check_group(call: Call, request: TxnOffsetCommitRequest) -> ErrorCode:
    """Whether the group lets the offsets in. Who names no member is not asked for more: old clients can't."""
    services = call.services
    topics = ((services.topic(topic.name), topic.partitions) for topic in request.topics)
    committer = Committer(
        group_id=request.group_id,
        generation_id=request.generation_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        is_transactional=True,
        partitions=[
            (topic.topic_id, each.partition_index)
            for topic, partitions in topics
            if topic is not None
            for each in partitions
        ],
    )
    return services.groups.coordinator.check_commit(committer)


def _commit_topic(
    services: Services, group_id: str, asked: TxnOffsetCommitRequestTopic, offsets: list[OffsetCommitted]
) -> TxnOffsetCommitResponseTopic:
    topic = services.topic(asked.name)
    partitions = []
    for partition in asked.partitions:
        outcome = offset_to_commit(services, group_id, topic, partition)
        if isinstance(outcome, OffsetCommitted):
            offsets.append(outcome)
        partitions.append(
            TxnOffsetCommitResponsePartition(
                partition_index=partition.partition_index,
                error_code=outcome if isinstance(outcome, ErrorCode) else ErrorCode.none,
            )
        )
    return TxnOffsetCommitResponseTopic(name=asked.name, partitions=tuple(partitions))


def _producer(request: TxnOffsetCommitRequest) -> ProducerIdentity:
    return ProducerIdentity(request.producer_id, request.producer_epoch)


def _commit_error(call: Call, error_code: ErrorCode) -> ErrorCode:
    """What TxnOffsetCommit calls an error of the coordinator."""
    if error_code is ErrorCode.producer_fenced:
        return ErrorCode.invalid_producer_epoch
    if error_code is ErrorCode.transaction_abortable:
        is_known = call.api_version >= FIRST_VERSION_THAT_KNOWS_ABORTABLE
        return error_code if is_known else ErrorCode.invalid_txn_state
    if error_code is ErrorCode.concurrent_transactions:
        is_known = call.api_version >= FIRST_VERSION_THAT_ADDS_OFFSETS
        return error_code if is_known else ErrorCode.coordinator_not_available
    return error_code


def _refused(request: TxnOffsetCommitRequest, error_code: ErrorCode) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=tuple(
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=tuple(
                    TxnOffsetCommitResponsePartition(
                        partition_index=each.partition_index, error_code=error_code
                    )
                    for each in topic.partitions
                ),
            )
            for topic in request.topics
        )
    )
