"""DescribeTransactions, ListTransactions, DescribeProducers, WriteTxnMarkers: what administrators ask for.

WriteTxnMarkers is how Kafka's tools end a transaction by hand in one partition. A transaction is ended in all
of its partitions or in none, so one that the coordinator knows is aborted as a whole; the marker is written
by itself only where the coordinator knows of no transaction. To commit by hand is refused.
"""

from __future__ import annotations

from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.errors import ConfigError, HeadraceError
from headrace.kafka.answer import Pending, when_all
from headrace.kafka.groups.consumer.pattern import TopicPattern
from headrace.kafka.handlers.produce import error_code_of
from headrace.kafka.messages.describe_producers import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from headrace.kafka.messages.describe_transactions import (
    DescribedTransaction,
    DescribeTransactionsResponse,
    TopicData,
)
from headrace.kafka.messages.list_transactions import ListedTransaction, ListTransactionsResponse
from headrace.kafka.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from headrace.kafka.services import TRANSACTIONS_TOPIC
from headrace.kafka.transactions.state import TransactionState

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.kafka.messages.describe_producers import DescribeProducersRequest
    from headrace.kafka.messages.describe_transactions import DescribeTransactionsRequest
    from headrace.kafka.messages.list_transactions import ListTransactionsRequest
    from headrace.kafka.messages.write_txn_markers import WritableTxnMarker, WriteTxnMarkersRequest
    from headrace.kafka.services import Call, Services
    from headrace.kafka.transactions.decision import Decision
    from headrace.kafka.transactions.state import TopicPartition, Transaction

    MarkerResult = WritableTxnMarkerPartitionResult


def handle_describe_transactions(
    call: Call, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    """Say where transactional ids stand."""
    distinct = dict.fromkeys(request.transactional_ids)
    return DescribeTransactionsResponse(
        transaction_states=tuple(_describe(call.services, each) for each in distinct)
    )


def handle_list_transactions(call: Call, request: ListTransactionsRequest) -> ListTransactionsResponse:
    """List transactional ids."""
    try:
        pattern = TopicPattern(request.transactional_id_pattern) if request.transactional_id_pattern else None
    except ConfigError:
        return ListTransactionsResponse(error_code=ErrorCode.invalid_regular_expression)
    names = {state.value for state in TransactionState}
    now_ms = call.services.clock.now_ms()
    return ListTransactionsResponse(
        unknown_state_filters=tuple(each for each in request.state_filters if each not in names),
        transaction_states=tuple(
            ListedTransaction(
                transactional_id=each.transactional_id,
                producer_id=each.producer_id,
                transaction_state=each.state.value,
            )
            for each in call.services.transactions.coordinator.transactions.values()
            if _is_listed(each, request, now_ms)
            and (pattern is None or pattern.matches(each.transactional_id))
        ),
    )


def handle_describe_producers(call: Call, request: DescribeProducersRequest) -> DescribeProducersResponse:
    """Say which producers partitions know."""
    return DescribeProducersResponse(
        topics=tuple(
            TopicResponse(
                name=topic.name,
                partitions=tuple(
                    _producers_of(call.services, topic.name, index)
                    for index in dict.fromkeys(topic.partition_indexes)
                ),
            )
            for topic in request.topics
        )
    )


def handle_write_txn_markers(
    call: Call, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse | Pending[WriteTxnMarkersResponse]:
    """End transactions by hand; the answer waits until that is durable."""
    return when_all(
        [_write_marker(call.services, marker) for marker in request.markers],
        lambda results: WriteTxnMarkersResponse(markers=results),
    )


def _describe(services: Services, transactional_id: str) -> DescribedTransaction:
    transaction = services.transactions.coordinator.transactions.get(transactional_id)
    if transaction is None:
        error_code = ErrorCode.transactional_id_not_found if transactional_id else ErrorCode.invalid_request
        return DescribedTransaction(error_code=error_code, transactional_id=transactional_id)
    return DescribedTransaction(
        transactional_id=transactional_id,
        transaction_state=transaction.state.value,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.started_at_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=tuple(
            TopicData(topic=topic, partitions=tuple(number for _, number in group))
            for topic, group in groupby(sorted(transaction.partitions), key=lambda each: each[0])
        ),
    )


def _is_listed(transaction: Transaction, request: ListTransactionsRequest, now_ms: int) -> bool:
    if request.state_filters and transaction.state.value not in request.state_filters:
        return False
    if request.producer_id_filters and transaction.producer_id not in request.producer_id_filters:
        return False
    return request.duration_filter < 0 or now_ms - transaction.started_at_ms > request.duration_filter


def _producers_of(services: Services, topic: str, index: int) -> PartitionResponse:
    log = services.partition(topic, None, index)
    if log is None:
        return PartitionResponse(
            partition_index=index,
            error_code=ErrorCode.unknown_topic_or_partition,
            error_message=f"there is no partition {index} of a topic {topic}",
        )
    return PartitionResponse(
        partition_index=index,
        active_producers=tuple(
            ProducerState(
                producer_id=each.producer_id,
                producer_epoch=each.producer_epoch,
                last_sequence=each.last_sequence,
                last_timestamp=each.last_timestamp_ms,
                coordinator_epoch=each.coordinator_epoch,
                current_txn_start_offset=(
                    -1 if each.transaction_start_offset is None else each.transaction_start_offset
                ),
            )
            for each in log.producers()
        ),
    )


def _write_marker(
    services: Services, marker: WritableTxnMarker
) -> WritableTxnMarkerResult | Pending[WritableTxnMarkerResult]:
    def combine(results: tuple[tuple[TopicPartition, MarkerResult], ...]) -> WritableTxnMarkerResult:
        found = dict(results)
        return WritableTxnMarkerResult(
            producer_id=marker.producer_id,
            topics=tuple(
                WritableTxnMarkerTopicResult(
                    name=topic.name,
                    partitions=tuple(found[topic.name, index] for index in topic.partition_indexes),
                )
                for topic in marker.topics
            ),
        )

    partitions = dict.fromkeys(
        (topic.name, index) for topic in marker.topics for index in topic.partition_indexes
    )
    return when_all([_end_by_hand(services, marker, each) for each in partitions], combine)


def _end_by_hand(
    services: Services, marker: WritableTxnMarker, partition: TopicPartition
) -> tuple[TopicPartition, MarkerResult] | Pending[tuple[TopicPartition, MarkerResult]]:
    pending: Pending[tuple[TopicPartition, MarkerResult]] = Pending()

    def answer(error_code: ErrorCode) -> None:
        result = WritableTxnMarkerPartitionResult(partition_index=partition[1], error_code=error_code)
        pending.resolve((partition, result))

    def on_aborted(outcome: Decision | HeadraceError) -> None:
        answer(error_code_of(outcome) if isinstance(outcome, HeadraceError) else outcome.error_code)

    error_code, known = (
        _marker_error(services, marker, partition),
        _transaction_in(services, marker, partition),
    )
    if error_code is not ErrorCode.none:
        answer(error_code)
    elif known is not None:
        services.transactions.abort(known.transactional_id, on_aborted)
    else:
        services.transactions.markers.write_one(
            partition,
            marker.producer_id,
            marker.producer_epoch,
            commits=False,
            then=partial(_on_written, answer),
        )
    return pending


def _on_written(answer: Callable[[ErrorCode], None], error: HeadraceError | None) -> None:
    answer(ErrorCode.none if error is None else error_code_of(error))


def _marker_error(services: Services, marker: WritableTxnMarker, partition: TopicPartition) -> ErrorCode:
    log = services.partition(partition[0], None, partition[1])
    if log is None:
        return ErrorCode.unknown_topic_or_partition
    if marker.transaction_result:
        return ErrorCode.invalid_txn_state
    if partition[0] == TRANSACTIONS_TOPIC:
        return ErrorCode.invalid_topic_exception
    newest = (each for each in log.producers() if each.producer_id == marker.producer_id)
    is_old = any(each.producer_epoch > marker.producer_epoch for each in newest)
    return ErrorCode.invalid_producer_epoch if is_old else ErrorCode.none


def _transaction_in(
    services: Services, marker: WritableTxnMarker, partition: TopicPartition
) -> Transaction | None:
    """The transaction of the producer that the coordinator knows to be open in the partition."""
    return next(
        (
            each
            for each in services.transactions.coordinator.transactions.values()
            if each.producer_id == marker.producer_id and partition in each.partitions
        ),
        None,
    )
