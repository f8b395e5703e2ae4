"""DescribeTopicPartitions: topics and their partitions, page by page, in the order of names.

A page ends when it has as many partitions as the client or the broker allows; the cursor says where the next
one begins. A client that names topics and comes with a cursor must name the cursor's topic, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kio.schema.errors import ErrorCode

from headrace.kafka.authorized_operations import TOPIC_OPERATIONS
from headrace.kafka.handlers.topics import topic_error
from headrace.kafka.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from headrace.kafka.services import INTERNAL_TOPICS, NODE_ID
from headrace.log.batch import LEADER_EPOCH

if TYPE_CHECKING:
    from headrace.kafka.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
    from headrace.kafka.services import Call
    from headrace.log.topic import Topic

PARTITION_COUNT_MAX: Final = 2_000
"""The most partitions of one page (Kafka's max.request.partition.size.limit)."""


def handle_describe_topic_partitions(
    call: Call, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    """Describe one page of topics."""
    services = call.services
    named = {topic.name for topic in request.topics}
    cursor = request.cursor
    if cursor is not None and (cursor.partition_index < 0 or (named and cursor.topic_name not in named)):
        return DescribeTopicPartitionsResponse(
            topics=tuple(_failed(name, ErrorCode.invalid_request) for name in sorted(named))
        )
    room = max(1, min(request.response_partition_limit, PARTITION_COUNT_MAX))
    described: list[DescribeTopicPartitionsResponseTopic] = []
    for name in sorted(named or services.store.topics):
        if cursor is not None and name < cursor.topic_name:
            continue
        first = cursor.partition_index if cursor is not None and name == cursor.topic_name else 0
        if room == 0:
            return _page(described, Cursor(topic_name=name, partition_index=first))
        topic = services.topic(name)
        if topic is None:
            described.append(_unknown(name))
            continue
        last = min(first + room, len(topic.partitions))
        described.append(_described(topic, range(first, last)))
        room -= max(last - first, 0)
        if last < len(topic.partitions):
            return _page(described, Cursor(topic_name=name, partition_index=last))
    return _page(described, None)


def _page(
    topics: list[DescribeTopicPartitionsResponseTopic], cursor: Cursor | None
) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(topics=tuple(topics), next_cursor=cursor)


def _unknown(name: str) -> DescribeTopicPartitionsResponseTopic:
    error = topic_error(name)
    return _failed(name, ErrorCode.unknown_topic_or_partition if error is None else error.error_code)


def _failed(name: str, error_code: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=error_code, name=name, topic_id=None, partitions=()
    )


def _described(topic: Topic, numbers: range) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=tuple(
            DescribeTopicPartitionsResponsePartition(
                partition_index=number,
                leader_id=NODE_ID,
                leader_epoch=LEADER_EPOCH,
                replica_nodes=(NODE_ID,),
                isr_nodes=(NODE_ID,),
                eligible_leader_replicas=(),
                last_known_elr=(),
            )
            for number in numbers
        ),
        topic_authorized_operations=TOPIC_OPERATIONS,
    )
