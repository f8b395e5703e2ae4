"""CreateTopics and DeleteTopics.

Both wait for the disk on the event loop, some fsyncs each, and so does everybody else meanwhile: a topic is
there or gone when the next request looks. Topics are made and deleted seldom. DeleteTopics is answered once
it is durable, too, that the groups' offsets of the topics are forgotten.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.config import check_topic_name
from headrace.errors import ConfigError, HeadraceError, PartitionClosed
from headrace.kafka.answer import Pending
from headrace.kafka.handlers.produce import error_code_of
from headrace.kafka.messages.create_topics import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsResponse,
)
from headrace.kafka.messages.delete_topics import DeletableTopicResult, DeleteTopicsResponse, DeleteTopicState
from headrace.kafka.services import INTERNAL_TOPICS, NODE_ID
from headrace.kafka.settings import topic_settings

if TYPE_CHECKING:
    from headrace.kafka.messages.create_topics import CreatableTopic, CreateTopicsRequest
    from headrace.kafka.messages.delete_topics import DeleteTopicsRequest
    from headrace.kafka.services import Call, Services
    from headrace.log.topic import Topic

Refusal = tuple[ErrorCode, str]


def handle_create_topics(call: Call, request: CreateTopicsRequest) -> CreateTopicsResponse:
    """Create topics, or only say whether they could be."""
    services = call.services
    name_counts = Counter(topic.name for topic in request.topics)
    return CreateTopicsResponse(
        topics=tuple(
            _not_created(topic, (ErrorCode.invalid_request, f"{topic.name} is named twice in the request"))
            if name_counts[topic.name] > 1
            else _create(services, topic, validate_only=request.validate_only)
            for topic in request.topics
        )
    )


def handle_delete_topics(
    call: Call, request: DeleteTopicsRequest
) -> DeleteTopicsResponse | Pending[DeleteTopicsResponse]:
    """Delete topics by name or by id; the answer waits until their offsets are forgotten for good."""
    services = call.services
    asked = request.topics or tuple(DeleteTopicState(name=name) for name in request.topic_names)
    response = DeleteTopicsResponse(responses=tuple(_delete(services, topic) for topic in asked))
    deleted = {result.name or "" for result in response.responses if result.error_code is ErrorCode.none}
    pending: Pending[DeleteTopicsResponse] = Pending()

    def on_durable(error: HeadraceError | None) -> None:
        pending.resolve(response if error is None else _half_deleted(response, error))

    try:
        services.groups.topics_deleted(deleted, on_durable)
    except HeadraceError as error:
        return _half_deleted(response, error)
    return pending


def topic_error(name: str) -> ErrorCode | None:
    """What is wrong with a topic's name."""
    try:
        check_topic_name(name)
    except ConfigError:
        return ErrorCode.invalid_topic_exception
    return None


def creation_error(services: Services, name: str, partition_count: int) -> Refusal | None:
    """Why a topic can't be created, if it can't."""
    try:
        check_topic_name(name)
    except ConfigError as error:
        return ErrorCode.invalid_topic_exception, str(error)
    if name in INTERNAL_TOPICS:
        return ErrorCode.invalid_topic_exception, f"{name} is the broker's own; it is created when needed"
    if name in services.store.topics:
        return ErrorCode.topic_already_exists, f"topic {name} exists already"
    if partition_count < 1:
        return ErrorCode.invalid_partitions, f"{partition_count} partitions; a topic has at least 1"
    return limit_error(services, topic_count=1, partition_count=partition_count)


def limit_error(services: Services, *, topic_count: int, partition_count: int) -> Refusal | None:
    """Why so many more topics and partitions would be too many, if they would."""
    config, topics = services.config, services.store.topics
    if len(topics) + topic_count > config.topic_count_max:
        return ErrorCode.policy_violation, f"there are {len(topics)} topics; topic_count_max forbids more"
    existing = sum(len(topic.partitions) for topic in topics.values())
    if existing + partition_count > config.partition_count_max:
        message = f"{existing} partitions and {partition_count} more are above partition_count_max"
        return ErrorCode.policy_violation, f"{message}, which is {config.partition_count_max}"
    return None


def _create(services: Services, topic: CreatableTopic, *, validate_only: bool) -> CreatableTopicResult:
    partition_count = _partition_count(services, topic)
    refusal = creation_error(services, topic.name, partition_count) or _layout_error(services, topic)
    if refusal is not None:
        return _not_created(topic, refusal)
    if validate_only:
        return _created(services, topic.name, partition_count, None)
    try:
        created = services.store.create_topic(topic.name, partition_count)
    except HeadraceError as error:
        return _not_created(topic, (error_code_of(error), str(error)))
    return _created(services, topic.name, partition_count, created)


def _partition_count(services: Services, topic: CreatableTopic) -> int:
    if topic.assignments:
        return len(topic.assignments)
    return services.config.default_partition_count if topic.num_partitions == -1 else topic.num_partitions


def _layout_error(services: Services, topic: CreatableTopic) -> Refusal | None:
    """Why the replicas or the settings asked for can't be had."""
    if topic.replication_factor not in {-1, 1}:
        return (
            ErrorCode.invalid_replication_factor,
            f"replication factor {topic.replication_factor} needs as many brokers; there is 1",
        )
    if any(each.broker_ids != (NODE_ID,) for each in topic.assignments) or (
        sorted(each.partition_index for each in topic.assignments) != list(range(len(topic.assignments)))
    ):
        return (
            ErrorCode.invalid_replica_assignment,
            f"partitions are assigned to broker {NODE_ID}, numbered from 0 without a gap",
        )
    settings = topic_settings(services.config)
    for asked in topic.configs:
        if asked.name not in settings:
            return ErrorCode.invalid_config, f"there is no topic setting {asked.name}"
        if asked.value not in {None, settings[asked.name].value}:
            held = settings[asked.name].value
            return ErrorCode.invalid_config, f"{asked.name}={asked.value} can't be had; here it is {held}"
    return None


def _not_created(topic: CreatableTopic, refusal: Refusal) -> CreatableTopicResult:
    return CreatableTopicResult(name=topic.name, error_code=refusal[0], error_message=refusal[1])


def _created(
    services: Services, name: str, partition_count: int, topic: Topic | None
) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=name,
        topic_id=None if topic is None else topic.topic_id,
        num_partitions=partition_count,
        replication_factor=1,
        configs=tuple(
            CreatableTopicConfigs(
                name=setting.name,
                value=setting.value,
                read_only=setting.is_read_only,
                config_source=setting.source,
                is_sensitive=False,
            )
            for setting in topic_settings(services.config).values()
        ),
    )


def _delete(services: Services, asked: DeleteTopicState) -> DeletableTopicResult:
    topic = services.topic(asked.name or "", asked.topic_id)
    if topic is None:
        unknown = (
            ErrorCode.unknown_topic_or_partition if asked.topic_id is None else ErrorCode.unknown_topic_id
        )
        return DeletableTopicResult(name=asked.name, topic_id=asked.topic_id, error_code=unknown)
    if topic.name in INTERNAL_TOPICS:
        return DeletableTopicResult(
            name=topic.name,
            topic_id=topic.topic_id,
            error_code=ErrorCode.invalid_request,
            error_message=f"{topic.name} holds the offsets of all consumer groups and is not deleted",
        )
    try:
        services.store.delete_topic(topic.name)
    except HeadraceError as error:
        return DeletableTopicResult(
            name=topic.name,
            topic_id=topic.topic_id,
            error_code=error_code_of(error),
            error_message=str(error),
        )
    for log in topic.partitions:
        services.commit.closed(log, PartitionClosed(f"topic {topic.name} was deleted"))
        services.watchers.notify(log)
    return DeletableTopicResult(name=topic.name, topic_id=topic.topic_id)


def _half_deleted(response: DeleteTopicsResponse, error: HeadraceError) -> DeleteTopicsResponse:
    """The topics are gone, but not the offsets that groups have committed for them."""
    return replace(
        response,
        responses=tuple(
            replace(result, error_code=error_code_of(error), error_message=str(error))
            if result.error_code is ErrorCode.none
            else result
            for result in response.responses
        ),
    )
