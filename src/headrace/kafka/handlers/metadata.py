"""Metadata: the topics, and where their partitions are. Asking for a topic may create it.

There is one broker. Its address is the one under which the client has reached it, so that a client which
could ask can also produce: a broker that advertises another address is the usual trouble with listeners.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.errors import HeadraceError
from headrace.kafka.answer import Pending, when_all
from headrace.kafka.authorized_operations import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from headrace.kafka.handlers.topics import check_creation, topic_error
from headrace.kafka.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from headrace.kafka.refusal import code_of
from headrace.kafka.services import INTERNAL_TOPICS, NODE_ID
from headrace.log.batch import LEADER_EPOCH

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
    from headrace.kafka.services import Call, Services
    from headrace.log.change import Change
    from headrace.log.topic import Topic


def handle_metadata(call: Call, request: MetadataRequest) -> MetadataResponse | Pending[MetadataResponse]:
    """Describe topics, all of them if none is named."""
    services = call.services
    # In version 0 an empty list meant all topics; since version 1 null does.
    asks_all = request.topics is None or (call.api_version == 0 and not request.topics)
    if asks_all:
        topics = services.store.topics.values()
        return _response(call, request, tuple(_described(request, topic) for topic in topics))
    outcomes = [_asked(services, request, topic) for topic in _distinct(request.topics or ())]
    return when_all(outcomes, partial(_response, call, request))


def _response(
    call: Call, request: MetadataRequest, topics: tuple[MetadataResponseTopic, ...]
) -> MetadataResponse:
    return MetadataResponse(
        brokers=(MetadataResponseBroker(node_id=NODE_ID, host=call.address.host, port=call.address.port),),
        cluster_id=call.services.store.cluster_id,
        controller_id=NODE_ID,
        topics=topics,
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NOT_ASKED
        ),
    )


def _distinct(topics: tuple[MetadataRequestTopic, ...]) -> Iterable[MetadataRequestTopic]:
    """Each topic once, however often it is named: the answer is then no larger than the broker."""
    return {topic.topic_id or topic.name: topic for topic in topics}.values()


def _asked(
    services: Services, request: MetadataRequest, asked: MetadataRequestTopic
) -> MetadataResponseTopic | Pending[MetadataResponseTopic]:
    topic = services.topic(asked.name or "", asked.topic_id)
    if topic is not None:
        return _described(request, topic)
    if asked.topic_id is not None:
        return MetadataResponseTopic(
            error_code=ErrorCode.unknown_topic_id, name=None, topic_id=asked.topic_id, partitions=()
        )
    name = asked.name or ""
    if not (request.allow_auto_topic_creation and services.config.auto_create_topics):
        error = topic_error(name)
        error_code = ErrorCode.unknown_topic_or_partition if error is None else error.error_code
        return MetadataResponseTopic(error_code=error_code, name=name, partitions=())
    return _created(services, request, name)


def _created(services: Services, request: MetadataRequest, name: str) -> Pending[MetadataResponseTopic]:
    """Create a topic, or wait for another client's creation of it."""
    partition_count = services.config.default_partition_count
    pending: Pending[MetadataResponseTopic] = Pending()

    def begin() -> Change[Topic]:
        check_creation(services, name, partition_count)
        return services.store.catalog.begin_creation(name, partition_count)

    def on_outcome(outcome: Topic | HeadraceError) -> None:
        topic = services.topic(name)
        if topic is not None:
            pending.resolve(_described(request, topic))
        elif isinstance(outcome, HeadraceError):
            pending.resolve(MetadataResponseTopic(error_code=code_of(outcome), name=name, partitions=()))

    services.topics.change(name, begin, on_outcome)
    return pending


def _described(request: MetadataRequest, topic: Topic) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_authorized_operations=(
            TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_ASKED
        ),
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=tuple(
            MetadataResponsePartition(
                partition_index=index,
                leader_id=NODE_ID,
                leader_epoch=LEADER_EPOCH,
                replica_nodes=(NODE_ID,),
                isr_nodes=(NODE_ID,),
            )
            for index in range(len(topic.partitions))
        ),
    )
