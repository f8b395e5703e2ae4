"""DescribeLogDirs and AlterReplicaLogDirs: where partitions lie and how large they are. There is one dir."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.kafka.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from headrace.kafka.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.kafka.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
    from headrace.kafka.messages.describe_log_dirs import DescribeLogDirsRequest
    from headrace.kafka.services import Call, Services
    from headrace.log.topic import Topic


def handle_describe_log_dirs(call: Call, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    """Describe the directory, with those of the partitions asked for that are there."""
    services = call.services
    store = services.store
    space = store.space()
    has_failed = store.failed is not None
    result = DescribeLogDirsResult(
        error_code=ErrorCode.kafka_storage_error if has_failed else ErrorCode.none,
        log_dir=str(store.log_dir),
        topics=() if has_failed else tuple(_described(*each) for each in _asked(services, request)),
        total_bytes=space.total_bytes,
        usable_bytes=space.usable_bytes,
    )
    return DescribeLogDirsResponse(results=(result,))


def handle_alter_replica_log_dirs(
    call: Call, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    """Accept what is so already: a partition in the one directory that there is."""
    services = call.services
    return AlterReplicaLogDirsResponse(
        results=tuple(
            AlterReplicaLogDirTopicResult(
                topic_name=topic.name,
                partitions=tuple(
                    AlterReplicaLogDirPartitionResult(
                        partition_index=number,
                        error_code=_placed(services, each.path, topic.name, number),
                    )
                    for number in topic.partitions
                ),
            )
            for each in request.dirs
            for topic in each.topics
        )
    )


def _asked(services: Services, request: DescribeLogDirsRequest) -> Iterable[tuple[Topic, Iterable[int]]]:
    if request.topics is None:
        return [(topic, range(len(topic.partitions))) for topic in services.store.topics.values()]
    wanted: dict[str, set[int]] = {}
    for asked in request.topics:
        wanted.setdefault(asked.topic, set()).update(asked.partitions)
    found = [(services.topic(name), numbers) for name, numbers in wanted.items()]
    return [(topic, sorted(numbers)) for topic, numbers in found if topic is not None]


def _described(topic: Topic, numbers: Iterable[int]) -> DescribeLogDirsTopic:
    return DescribeLogDirsTopic(
        name=topic.name,
        partitions=tuple(
            DescribeLogDirsPartition(
                partition_index=number,
                partition_size=topic.partitions[number].size_bytes,
                offset_lag=0,
                is_future_key=False,
            )
            for number in numbers
            if 0 <= number < len(topic.partitions)
        ),
    )


def _placed(services: Services, path: str, topic: str, number: int) -> ErrorCode:
    if path != str(services.store.log_dir):
        return ErrorCode.log_dir_not_found
    is_there = services.partition(topic, None, number) is not None
    return ErrorCode.none if is_there else ErrorCode.unknown_topic_or_partition
