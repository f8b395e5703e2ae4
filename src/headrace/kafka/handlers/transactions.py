"""AddPartitionsToTxn, AddOffsetsToTxn and EndTxn: what a producer tells the coordinator of its transaction.

A producer by the second version of the protocol (KIP-890) sends only EndTxn, of version 5: it adds partitions
by producing to them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kio.schema.errors import ErrorCode

from headrace.errors import HeadraceError
from headrace.kafka.answer import Pending, when_all
from headrace.kafka.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from headrace.kafka.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from headrace.kafka.messages.end_txn import EndTxnResponse
from headrace.kafka.services import INTERNAL_TOPICS, OFFSETS_TOPIC
from headrace.kafka.transactions.state import TV1, TV2, ProducerIdentity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.kafka.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
    from headrace.kafka.messages.add_partitions_to_txn import (
        AddPartitionsToTxnRequest,
        AddPartitionsToTxnTopic,
    )
    from headrace.kafka.messages.end_txn import EndTxnRequest
    from headrace.kafka.services import Call, Services
    from headrace.kafka.transactions.decision import Decision
    from headrace.kafka.transactions.state import TopicPartition

    PartitionErrors = Mapping[TopicPartition, ErrorCode]

FIRST_VERSION_WITH_PRODUCER_FENCED: Final = 2
FIRST_VERSION_WITH_MANY_TRANSACTIONS: Final = 4
FIRST_VERSION_THAT_RAISES_THE_EPOCH: Final = 5
OFFSETS_PARTITION: Final = (OFFSETS_TOPIC, 0)
"""Where all groups keep their offsets."""


def handle_add_partitions_to_txn(
    call: Call, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse | Pending[AddPartitionsToTxnResponse]:
    """Let a transaction have further partitions, or say whether it has them."""
    if call.api_version >= FIRST_VERSION_WITH_MANY_TRANSACTIONS:
        return when_all(
            [_add_partitions(call, transaction) for transaction in request.transactions],
            lambda results: AddPartitionsToTxnResponse(results_by_transaction=results),
        )
    only = AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    return when_all(
        [_add_partitions(call, only)],
        lambda results: AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results[0].topic_results),
    )


def handle_add_offsets_to_txn(
    call: Call, request: AddOffsetsToTxnRequest
) -> Pending[AddOffsetsToTxnResponse]:
    """Let a transaction have offsets of a group."""
    pending: Pending[AddOffsetsToTxnResponse] = Pending()

    def on_added(outcome: Decision | HeadraceError) -> None:
        error_code = coordinator_error_code(call, outcome, FIRST_VERSION_WITH_PRODUCER_FENCED)
        pending.resolve(AddOffsetsToTxnResponse(error_code=error_code))

    call.services.transactions.add(
        request.transactional_id,
        ProducerIdentity(request.producer_id, request.producer_epoch),
        (OFFSETS_PARTITION,),
        TV1,
        on_added,
    )
    return pending


def handle_end_txn(call: Call, request: EndTxnRequest) -> Pending[EndTxnResponse]:
    """Commit or abort; the answer waits until that can be seen in all partitions."""
    pending: Pending[EndTxnResponse] = Pending()
    raises_epoch = call.api_version >= FIRST_VERSION_THAT_RAISES_THE_EPOCH

    def on_ended(outcome: Decision | HeadraceError) -> None:
        error_code = coordinator_error_code(call, outcome, FIRST_VERSION_WITH_PRODUCER_FENCED)
        if isinstance(outcome, HeadraceError) or error_code is not ErrorCode.none:
            pending.resolve(EndTxnResponse(error_code=error_code))
        else:
            pending.resolve(
                EndTxnResponse(
                    producer_id=outcome.producer.producer_id, producer_epoch=outcome.producer.epoch
                )
            )

    call.services.transactions.end(
        request.transactional_id,
        ProducerIdentity(request.producer_id, request.producer_epoch),
        commits=request.committed,
        client_version=TV2 if raises_epoch else TV1,
        then=on_ended,
    )
    return pending


def coordinator_error_code(
    call: Call, outcome: Decision | HeadraceError, first_version_with_producer_fenced: int
) -> ErrorCode:
    """What to call an outcome on the wire: versions before PRODUCER_FENCED know another code for it.

    A disk that has failed is told as a coordinator that is not there: clients ask again until their time is
    up, and find it once the broker has been started anew.
    """
    if isinstance(outcome, HeadraceError):
        return ErrorCode.coordinator_not_available
    is_old = call.api_version < first_version_with_producer_fenced
    if outcome.error_code is ErrorCode.producer_fenced and is_old:
        return ErrorCode.invalid_producer_epoch
    return outcome.error_code


def _add_partitions(
    call: Call, transaction: AddPartitionsToTxnTransaction
) -> AddPartitionsToTxnResult | Pending[AddPartitionsToTxnResult]:
    services = call.services
    asked = [(topic.name, number) for topic in transaction.topics for number in topic.partitions]
    producer = ProducerIdentity(transaction.producer_id, transaction.producer_epoch)
    refusals = {each: error_code for each in asked if (error_code := _refusal(services, each))}
    if refusals:
        rest = dict.fromkeys(asked, ErrorCode.operation_not_attempted)
        return _result(transaction, {**rest, **refusals})
    if transaction.verify_only:
        check = services.transactions.coordinator.check_partition
        checked = {each: check(transaction.transactional_id, producer, each) for each in asked}
        return _result(transaction, checked)
    pending: Pending[AddPartitionsToTxnResult] = Pending()

    def on_added(outcome: Decision | HeadraceError) -> None:
        error_code = coordinator_error_code(call, outcome, FIRST_VERSION_WITH_PRODUCER_FENCED)
        pending.resolve(_result(transaction, dict.fromkeys(asked, error_code)))

    services.transactions.add(transaction.transactional_id, producer, asked, TV1, on_added)
    return pending


def _refusal(services: Services, partition: TopicPartition) -> ErrorCode | None:
    name, number = partition
    if name in INTERNAL_TOPICS:
        return ErrorCode.invalid_topic_exception
    is_known = services.partition(name, None, number) is not None
    return None if is_known else ErrorCode.unknown_topic_or_partition


def _result(transaction: AddPartitionsToTxnTransaction, errors: PartitionErrors) -> AddPartitionsToTxnResult:
    return AddPartitionsToTxnResult(
        transactional_id=transaction.transactional_id,
        topic_results=tuple(_topic_result(topic, errors) for topic in transaction.topics),
    )


def _topic_result(topic: AddPartitionsToTxnTopic, errors: PartitionErrors) -> AddPartitionsToTxnTopicResult:
    return AddPartitionsToTxnTopicResult(
        name=topic.name,
        results_by_partition=tuple(
            AddPartitionsToTxnPartitionResult(
                partition_index=number, partition_error_code=errors[topic.name, number]
            )
            for number in topic.partitions
        ),
    )
