"""CreateTopics and DeleteTopics.

Nothing here waits for the disk on the event loop: topics are made and removed on a thread (topic_changes.py),
and the answer is given when it is done. A topic that is being deleted is gone at once for everybody else.
DeleteTopics is answered once it is durable, too, that the groups' offsets of the topics are forgotten, and
not before that is there another topic of the same name.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.config import check_topic_name
from headrace.errors import ConfigError, HeadraceError, PartitionClosed, UnknownTopic
from headrace.kafka.answer import Pending, when_all
from headrace.kafka.audit import audit
from headrace.kafka.messages.create_topics import (
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsResponse,
)
from headrace.kafka.messages.delete_topics import DeletableTopicResult, DeleteTopicsResponse, DeleteTopicState
from headrace.kafka.refusal import Refused, code_of
from headrace.kafka.services import INTERNAL_TOPICS, NODE_ID
from headrace.kafka.settings import topic_settings
from headrace.log.topic_settings import TopicSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from uuid import UUID

    from headrace.kafka.messages.create_topics import CreatableTopic, CreateTopicsRequest
    from headrace.kafka.messages.delete_topics import DeleteTopicsRequest
    from headrace.kafka.services import Call, Services
    from headrace.log.change import Change
    from headrace.log.topic import Topic


def handle_create_topics(
    call: Call, request: CreateTopicsRequest
) -> CreateTopicsResponse | Pending[CreateTopicsResponse]:
    """Create topics, or only say whether they could be."""
    name_counts = Counter(topic.name for topic in request.topics)
    outcomes = [
        _not_created(topic, Refused(ErrorCode.invalid_request, f"{topic.name} is named twice in the request"))
        if name_counts[topic.name] > 1
        else _create(call, topic, validate_only=request.validate_only)
        for topic in {topic.name: topic for topic in request.topics}.values()
    ]
    return when_all(outcomes, lambda results: CreateTopicsResponse(topics=results))


def handle_delete_topics(
    call: Call, request: DeleteTopicsRequest
) -> DeleteTopicsResponse | Pending[DeleteTopicsResponse]:
    """Delete topics by name or by id; the answer waits until their offsets are forgotten for good."""
    asked = request.topics or tuple(DeleteTopicState(name=name) for name in request.topic_names)
    counts = Counter((topic.name, topic.topic_id) for topic in asked)
    outcomes = [
        _delete(call, DeleteTopicState(name=name, topic_id=topic_id), count)
        for (name, topic_id), count in counts.items()
    ]
    return when_all(outcomes, lambda results: DeleteTopicsResponse(responses=results))


def topic_error(name: str) -> Refused | None:
    """What is wrong with a topic's name."""
    try:
        check_topic_name(name)
    except ConfigError as error:
        return Refused(ErrorCode.invalid_topic_exception, str(error))
    return None


def check_creation(services: Services, name: str, partition_count: int) -> None:
    """Raise Refused if a topic can't be created."""
    if (error := topic_error(name)) is not None:
        raise error
    if name in INTERNAL_TOPICS:
        raise Refused(
            ErrorCode.invalid_topic_exception, f"{name} is the broker's own; it is created when needed"
        )
    if name in services.store.topics:
        raise Refused(ErrorCode.topic_already_exists, f"topic {name} exists already")
    if partition_count < 1:
        raise Refused(ErrorCode.invalid_partitions, f"{partition_count} partitions; a topic has at least 1")
    check_limits(services, topic_count=1, partition_count=partition_count)
    # It looks at all topics, so it comes last: a request may name very many topics that can't be created.
    _check_collision(services, name)


def _check_collision(services: Services, name: str) -> None:
    """Refuse what Kafka refuses: its metrics know `.` and `_` as the same."""
    folded = name.replace(".", "_")
    if "_" not in folded:
        return
    for other in services.store.topics:
        if other.replace(".", "_") == folded:
            raise Refused(
                ErrorCode.invalid_topic_exception,
                f"topic {name} collides with topic {other}: names must differ in more than . and _",
            )


def check_limits(services: Services, *, topic_count: int, partition_count: int) -> None:
    """Raise Refused if so many more topics and partitions would be too many."""
    config, catalog = services.config, services.store.catalog
    if catalog.topic_count + topic_count > config.topic_count_max:
        raise Refused(
            ErrorCode.policy_violation,
            f"there are {catalog.topic_count} topics; topic_count_max forbids more: delete some, or raise it",
        )
    if catalog.partition_count + partition_count > config.partition_count_max:
        raise Refused(
            ErrorCode.policy_violation,
            f"{catalog.partition_count} partitions and {partition_count} more are above partition_count_max, "
            f"which is {config.partition_count_max}: use fewer, or raise it",
        )


def _create(
    call: Call, asked: CreatableTopic, *, validate_only: bool
) -> CreatableTopicResult | Pending[CreatableTopicResult]:
    services = call.services
    partition_count = _partition_count(services, asked)

    def check() -> dict[str, str]:
        check_creation(services, asked.name, partition_count)
        _check_layout(asked)
        return _config(services, asked)

    if validate_only:
        try:
            config = check()
        except HeadraceError as error:
            return _not_created(asked, error)
        return _created(services, asked.name, None, partition_count, config)
    pending: Pending[CreatableTopicResult] = Pending()

    def begin() -> Change[Topic]:
        return services.store.catalog.begin_creation(asked.name, partition_count, check())

    def on_outcome(outcome: Topic | HeadraceError) -> None:
        if isinstance(outcome, HeadraceError):
            pending.resolve(_not_created(asked, outcome))
            return
        audit(call, "topic.create", topic=asked.name, partitions=partition_count)
        pending.resolve(_created(services, asked.name, outcome.topic_id, partition_count, outcome.config))

    services.topics.change(asked.name, begin, on_outcome)
    return pending


def _partition_count(services: Services, topic: CreatableTopic) -> int:
    if topic.assignments:
        return len(topic.assignments)
    return services.config.default_partition_count if topic.num_partitions == -1 else topic.num_partitions


def _config(services: Services, topic: CreatableTopic) -> dict[str, str]:
    """The settings asked for. Raises Refused or ConfigError if they can't be had."""
    config = {}
    for asked in topic.configs:
        if asked.value is None:
            raise Refused(ErrorCode.invalid_config, f"{asked.name} can't be null: leave it out")
        config[asked.name] = asked.value
    if len(config) < len(topic.configs):
        raise Refused(ErrorCode.invalid_config, "a setting is named twice: name each once")
    TopicSettings.parse(config, services.store.defaults)
    return config


def _check_layout(topic: CreatableTopic) -> None:
    """Raise Refused if the replicas asked for can't be had."""
    if topic.replication_factor not in {-1, 1}:
        raise Refused(
            ErrorCode.invalid_replication_factor,
            f"replication factor {topic.replication_factor} needs as many brokers; there is 1",
        )
    if topic.assignments and (topic.num_partitions, topic.replication_factor) != (-1, -1):
        raise Refused(
            ErrorCode.invalid_request,
            "with partitions assigned by hand, leave their number and the replication factor at -1",
        )
    if any(each.broker_ids != (NODE_ID,) for each in topic.assignments) or (
        sorted(each.partition_index for each in topic.assignments) != list(range(len(topic.assignments)))
    ):
        raise Refused(
            ErrorCode.invalid_replica_assignment,
            f"partitions are assigned to broker {NODE_ID}, numbered from 0 without a gap",
        )


def _not_created(topic: CreatableTopic, error: HeadraceError) -> CreatableTopicResult:
    return CreatableTopicResult(name=topic.name, error_code=code_of(error), error_message=str(error))


def _created(
    services: Services,
    name: str,
    topic_id: UUID | None,
    partition_count: int,
    config: Mapping[str, str],
) -> CreatableTopicResult:
    return CreatableTopicResult(
        name=name,
        topic_id=topic_id,
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
            for setting in topic_settings(services.store, config).values()
        ),
    )


def _delete(
    call: Call, asked: DeleteTopicState, count: int
) -> DeletableTopicResult | Pending[DeletableTopicResult]:
    services = call.services
    try:
        topic = _topic_to_delete(services, asked, count)
    except Refused as refusal:
        return _not_deleted(asked, refusal)
    pending: Pending[DeletableTopicResult] = Pending()
    deleted: list[Topic] = []

    def begin() -> Change[None]:
        # It may have got partitions while this waited for its turn, or another may have begun to delete it.
        present = services.topic(topic.name, topic.topic_id) or services.store.catalog.half_deleted(
            topic.name, topic.topic_id
        )
        if present is None:
            raise UnknownTopic(f"topic {topic.name} was deleted meanwhile")
        change = services.store.catalog.begin_deletion(topic.name)
        deleted.append(present)
        return change

    def on_outcome(outcome: HeadraceError | None) -> Pending[bool]:
        return _after_deletion(services, deleted, on_forgotten=partial(answer, outcome))

    def answer(outcome: HeadraceError | None, error: HeadraceError | None) -> None:
        failure = outcome or error
        if failure is not None:
            pending.resolve(_not_deleted(topic, failure))
            return
        audit(call, "topic.delete", topic=topic.name)
        pending.resolve(DeletableTopicResult(name=topic.name, topic_id=topic.topic_id))

    services.topics.change(topic.name, begin, on_outcome)
    return pending


def _after_deletion(
    services: Services, deleted: list[Topic], on_forgotten: Callable[[HeadraceError | None], None]
) -> Pending[bool]:
    """Release those who wait for a topic that is gone, and forget its offsets, then call back.

    That holds even if not all of its files could be removed yet. Another topic of its name has to wait for
    what is returned, or its consumers would begin at the offsets of the old one.
    """
    for topic in deleted:
        for log in topic.partitions:
            services.commit.closed(log, PartitionClosed(f"topic {topic.name} was deleted"))
            services.watchers.notify(log)
    services.shares.topics_deleted({topic.topic_id for topic in deleted})
    rest: Pending[bool] = Pending()

    def on_durable(error: HeadraceError | None) -> None:
        on_forgotten(error)
        rest.resolve(True)

    try:
        services.groups.topics_deleted({topic.name for topic in deleted}, on_durable)
    except HeadraceError as error:
        on_durable(error)
    return rest


def _topic_to_delete(services: Services, asked: DeleteTopicState, count: int) -> Topic:
    if (asked.name is None) == (asked.topic_id is None):
        raise Refused(ErrorCode.invalid_request, "name a topic by its name or by its id")
    if count > 1:
        raise Refused(ErrorCode.invalid_request, "the topic is named twice in the request")
    topic = services.topic(asked.name or "", asked.topic_id)
    if topic is None:
        # A crash could still bring it back: whoever asks now hears how that ends, not that it is gone.
        topic = services.store.catalog.half_deleted(asked.name, asked.topic_id)
    if topic is None and asked.topic_id is not None:
        raise Refused(ErrorCode.unknown_topic_id, f"there is no topic with the id {asked.topic_id}")
    if topic is None:
        raise Refused(ErrorCode.unknown_topic_or_partition, f"there is no topic {asked.name}")
    if topic.name in INTERNAL_TOPICS:
        raise Refused(ErrorCode.invalid_request, f"{topic.name} is the broker's own and is not deleted")
    return topic


def _not_deleted(topic: Topic | DeleteTopicState, error: HeadraceError) -> DeletableTopicResult:
    return DeletableTopicResult(
        name=topic.name, topic_id=topic.topic_id, error_code=code_of(error), error_message=str(error)
    )
