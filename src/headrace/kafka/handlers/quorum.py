"""DescribeQuorum: the one node decides alone, so it is the leader and the only voter.

What Kafka keeps in the log of its metadata lies in files here, so that log has no offsets. Nor does anything
listen to other controllers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kio.schema.errors import ErrorCode

from headrace.kafka.messages.describe_quorum import (
    DescribeQuorumResponse,
    Node,
    PartitionData,
    ReplicaState,
    TopicData,
)
from headrace.kafka.services import NODE_ID

if TYPE_CHECKING:
    from headrace.kafka.messages.describe_quorum import DescribeQuorumRequest
    from headrace.kafka.services import Call

METADATA_PARTITION: Final = ("__cluster_metadata", 0)
EPOCH: Final = 0
NO_RECORDS: Final = 0


def handle_describe_quorum(call: Call, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    """Describe the quorum of one."""
    now_ms = call.services.clock.now_ms()
    return DescribeQuorumResponse(
        topics=tuple(
            TopicData(
                topic_name=topic.topic_name,
                partitions=tuple(
                    _partition(topic.topic_name, each.partition_index, now_ms) for each in topic.partitions
                ),
            )
            for topic in request.topics
        ),
        nodes=(Node(node_id=NODE_ID, listeners=()),),
    )


def _partition(topic: str, number: int, now_ms: int) -> PartitionData:
    if (topic, number) != METADATA_PARTITION:
        return PartitionData(
            partition_index=number,
            error_code=ErrorCode.unknown_topic_or_partition,
            error_message=f"only {METADATA_PARTITION[0]} has a quorum, in partition {METADATA_PARTITION[1]}",
        )
    only = ReplicaState(replica_id=NODE_ID, log_end_offset=NO_RECORDS, last_caught_up_timestamp=now_ms)
    return PartitionData(
        partition_index=number,
        leader_id=NODE_ID,
        leader_epoch=EPOCH,
        high_watermark=NO_RECORDS,
        current_voters=(only,),
    )
