"""ElectLeaders, AlterPartitionReassignments and ListPartitionReassignments: one broker has all and leads all.

So an election is never needed, nothing is ever being moved, and a move is accepted if it leads to where the
partition is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kio.schema.errors import ErrorCode

from headrace.kafka.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from headrace.kafka.messages.elect_leaders import (
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from headrace.kafka.messages.list_partition_reassignments import ListPartitionReassignmentsResponse
from headrace.kafka.services import NODE_ID

if TYPE_CHECKING:
    from headrace.kafka.messages.alter_partition_reassignments import (
        AlterPartitionReassignmentsRequest,
        ReassignablePartition,
    )
    from headrace.kafka.messages.elect_leaders import ElectLeadersRequest
    from headrace.kafka.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
    from headrace.kafka.services import Call, Services

ELECTION_TYPES: Final = frozenset({0, 1})
"""Preferred and unclean."""


def handle_elect_leaders(call: Call, request: ElectLeadersRequest) -> ElectLeadersResponse:
    """Say of each partition that it has its leader; of all of them, if none is named, nothing."""
    services = call.services
    if request.topic_partitions is None:
        return ElectLeadersResponse(replica_election_results=())
    is_known = request.election_type in ELECTION_TYPES
    unknown = f"{request.election_type} is no election: use 0 (preferred) or 1 (unclean)"
    return ElectLeadersResponse(
        error_code=ErrorCode.none if is_known else ErrorCode.invalid_request,
        replica_election_results=tuple(
            ReplicaElectionResult(
                topic=topic.topic,
                partition_result=tuple(
                    _elected(services, topic.topic, number)
                    if is_known
                    else PartitionResult(
                        partition_id=number,
                        error_code=ErrorCode.invalid_request,
                        error_message=unknown,
                    )
                    for number in topic.partitions
                ),
            )
            for topic in request.topic_partitions
        ),
    )


def handle_alter_partition_reassignments(
    call: Call, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Accept assignments to this broker, and no others."""
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        responses=tuple(
            ReassignableTopicResponse(
                name=topic.name,
                partitions=tuple(_reassigned(call.services, topic.name, each) for each in topic.partitions),
            )
            for topic in request.topics
        ),
    )


def handle_list_partition_reassignments(
    _call: Call, _request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """Nothing is being moved."""
    return ListPartitionReassignmentsResponse(topics=())


def _elected(services: Services, topic: str, number: int) -> PartitionResult:
    if services.partition(topic, None, number) is None:
        return PartitionResult(
            partition_id=number,
            error_code=ErrorCode.unknown_topic_or_partition,
            error_message=f"there is no partition {number} of a topic {topic}",
        )
    return PartitionResult(
        partition_id=number,
        error_code=ErrorCode.election_not_needed,
        error_message=f"broker {NODE_ID} leads every partition",
    )


def _reassigned(
    services: Services, topic: str, asked: ReassignablePartition
) -> ReassignablePartitionResponse:
    error_code, message = ErrorCode.none, None
    if services.partition(topic, None, asked.partition_index) is None:
        error_code = ErrorCode.unknown_topic_or_partition
        message = f"there is no partition {asked.partition_index} of a topic {topic}"
    elif asked.replicas is None:
        error_code, message = ErrorCode.no_reassignment_in_progress, "no partition is being moved"
    elif asked.replicas != (NODE_ID,):
        error_code = ErrorCode.invalid_replica_assignment
        message = f"partitions are on broker {NODE_ID}: there is one"
    return ReassignablePartitionResponse(
        partition_index=asked.partition_index, error_code=error_code, error_message=message
    )
