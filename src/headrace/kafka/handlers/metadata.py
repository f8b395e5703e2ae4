"""Metadata: the topics, and where their partitions are. Asking for a topic may create it.

There is one broker. Its address is the one under which the client has reached it, so that a client which
could ask can also produce: a broker that advertises another address is the usual trouble with listeners.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.errors import HeadraceError
from headrace.kafka.handlers.topics import creation_error, topic_error
from headrace.kafka.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from headrace.kafka.services import INTERNAL_TOPICS, NODE_ID
from headrace.log.batch import LEADER_EPOCH

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
    from headrace.kafka.services import Call, Services
    from headrace.log.topic import Topic


def handle_metadata(call: Call, request: MetadataRequest) -> MetadataResponse:
    """Describe topics, all of them if none is named."""
    services = call.services
    # In version 0 an empty list meant all topics; since version 1 null does.
    asks_all = request.topics is None or (call.api_version == 0 and not request.topics)
    topics = (
        tuple(_described(topic) for topic in services.store.topics.values())
        if asks_all
        else tuple(_asked(services, request, topic) for topic in _distinct(request.topics or ()))
    )
    return MetadataResponse(
        brokers=(MetadataResponseBroker(node_id=NODE_ID, host=call.address.host, port=call.address.port),),
        cluster_id=services.store.cluster_id,
        controller_id=NODE_ID,
        topics=topics,
    )


def _distinct(topics: tuple[MetadataRequestTopic, ...]) -> Iterable[MetadataRequestTopic]:
    """Each topic once, however often it is named: the answer is then no larger than the broker."""
    return {topic.topic_id or topic.name: topic for topic in topics}.values()


def _asked(
    services: Services, request: MetadataRequest, asked: MetadataRequestTopic
) -> MetadataResponseTopic:
    topic = services.topic(asked.name or "", asked.topic_id)
    if topic is not None:
        return _described(topic)
    if asked.topic_id is not None:
        return MetadataResponseTopic(
            error_code=ErrorCode.unknown_topic_id, name=asked.name, topic_id=asked.topic_id, partitions=()
        )
    name = asked.name or ""
    if not (request.allow_auto_topic_creation and services.config.auto_create_topics):
        error_code = topic_error(name) or ErrorCode.unknown_topic_or_partition
        return MetadataResponseTopic(error_code=error_code, name=name, partitions=())
    return _created(services, name)


def _created(services: Services, name: str) -> MetadataResponseTopic:
    partition_count = services.config.default_partition_count
    refusal = creation_error(services, name, partition_count)
    if refusal is not None:
        return MetadataResponseTopic(error_code=refusal[0], name=name, partitions=())
    try:
        return _described(services.store.create_topic(name, partition_count))
    except HeadraceError:
        # The store has said why where it failed; the client can only be told to come back.
        return MetadataResponseTopic(error_code=ErrorCode.kafka_storage_error, name=name, partitions=())


def _described(topic: Topic) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
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
