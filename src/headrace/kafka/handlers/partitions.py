"""CreatePartitions: give topics more partitions. Clients see them with the next metadata they ask for."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.errors import HeadraceError
from headrace.kafka.answer import Pending, when_all
from headrace.kafka.audit import audit
from headrace.kafka.handlers.topics import check_limits
from headrace.kafka.messages.create_partitions import CreatePartitionsResponse, CreatePartitionsTopicResult
from headrace.kafka.refusal import Refused, code_of
from headrace.kafka.services import INTERNAL_TOPICS, NODE_ID

if TYPE_CHECKING:
    from headrace.kafka.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
    from headrace.kafka.services import Call, Services
    from headrace.log.change import Change
    from headrace.log.topic import Topic


def handle_create_partitions(
    call: Call, request: CreatePartitionsRequest
) -> CreatePartitionsResponse | Pending[CreatePartitionsResponse]:
    """Add partitions, or only say whether they could be."""
    counts = Counter(topic.name for topic in request.topics)
    twice = Refused(ErrorCode.invalid_request, "the topic is named twice in the request")
    distinct = {topic.name: topic for topic in request.topics}
    outcomes = [
        _result(topic, twice)
        if counts[topic.name] > 1
        else _grow(call, topic, validate_only=request.validate_only)
        for topic in distinct.values()
    ]
    return when_all(outcomes, lambda results: CreatePartitionsResponse(results=results))


def _grow(
    call: Call, asked: CreatePartitionsTopic, *, validate_only: bool
) -> CreatePartitionsTopicResult | Pending[CreatePartitionsTopicResult]:
    services = call.services
    if validate_only:
        try:
            _check(services, asked)
        except HeadraceError as error:
            return _result(asked, error)
        return _result(asked, None)
    pending: Pending[CreatePartitionsTopicResult] = Pending()

    def begin() -> Change[Topic]:
        _check(services, asked)
        return services.store.catalog.begin_growth(asked.name, asked.count)

    def on_outcome(outcome: Topic | HeadraceError) -> None:
        if isinstance(outcome, HeadraceError):
            pending.resolve(_result(asked, outcome))
            return
        audit(call, "topic.grow", topic=asked.name, partitions=asked.count)
        pending.resolve(_result(asked, None))

    services.topics.change(asked.name, begin, on_outcome)
    return pending


def _check(services: Services, asked: CreatePartitionsTopic) -> None:
    """Raise Refused if the partitions can't be had."""
    topic = services.topic(asked.name)
    if topic is None:
        raise Refused(ErrorCode.unknown_topic_or_partition, f"there is no topic {asked.name}")
    if asked.name in INTERNAL_TOPICS:
        raise Refused(
            ErrorCode.invalid_topic_exception, f"{asked.name} is the broker's own and has one partition"
        )
    added_count = asked.count - len(topic.partitions)
    if added_count < 1:
        raise Refused(
            ErrorCode.invalid_partitions,
            f"topic {asked.name} has {len(topic.partitions)} partitions already; "
            f"their number can only be raised, not set to {asked.count}",
        )
    _check_assignments(asked, added_count)
    check_limits(services, topic_count=0, partition_count=added_count)


def _check_assignments(asked: CreatePartitionsTopic, added_count: int) -> None:
    if asked.assignments is None:
        return
    if len(asked.assignments) != added_count:
        raise Refused(
            ErrorCode.invalid_replica_assignment,
            f"{added_count} partitions are to be added, but {len(asked.assignments)} are assigned",
        )
    if any(each.broker_ids != (NODE_ID,) for each in asked.assignments):
        raise Refused(
            ErrorCode.invalid_replica_assignment, f"partitions are assigned to broker {NODE_ID}: there is one"
        )


def _result(asked: CreatePartitionsTopic, error: HeadraceError | None) -> CreatePartitionsTopicResult:
    if error is None:
        return CreatePartitionsTopicResult(name=asked.name)
    return CreatePartitionsTopicResult(name=asked.name, error_code=code_of(error), error_message=str(error))
