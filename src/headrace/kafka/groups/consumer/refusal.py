"""What is refused of a heartbeat, with the errors and, where clients show them, the words that Kafka uses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kio.schema.errors import ErrorCode

from headrace.kafka.groups.consumer.assignors import ASSIGNORS
from headrace.kafka.groups.consumer.state import JOIN_EPOCH, STATIC_LEAVE_EPOCH

if TYPE_CHECKING:
    from collections.abc import Collection

    from headrace.kafka.groups.consumer.state import ConsumerMember, Partition
    from headrace.kafka.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

SUBSCRIPTION_COUNT_MAX: Final = 10_000
"""How many topics a member may subscribe to by name."""


class Refused(Exception):
    """A heartbeat is refused. Never leaves the coordinator."""

    def __init__(self, error_code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error_code = error_code


def check_request(request: ConsumerGroupHeartbeatRequest, *, must_have_id: bool) -> None:
    """Whether the request makes sense by itself."""
    _require(request.group_id != "", "GroupId can't be empty.")
    _require(request.instance_id != "", "InstanceId can't be empty.")
    _require(request.rack_id != "", "RackId can't be empty.")
    may_lack_id = request.member_epoch == JOIN_EPOCH and not must_have_id
    _require(request.member_id != "" or may_lack_id, "MemberId can't be empty.")
    _require(request.member_epoch >= STATIC_LEAVE_EPOCH, "MemberEpoch is invalid.")
    if request.member_epoch == STATIC_LEAVE_EPOCH:
        _require(request.instance_id is not None, "InstanceId can't be null.")
    if request.member_epoch == JOIN_EPOCH:
        _check_joining(request)
    _require(
        len(request.subscribed_topic_names or ()) <= SUBSCRIPTION_COUNT_MAX,
        f"SubscribedTopicNames has more than {SUBSCRIPTION_COUNT_MAX} names: use SubscribedTopicRegex.",
    )
    if request.server_assignor is not None and request.server_assignor not in ASSIGNORS:
        raise Refused(
            ErrorCode.unsupported_assignor,
            f"ServerAssignor {request.server_assignor} is not supported. "
            f"Supported assignors: {', '.join(ASSIGNORS)}.",
        )


def check_epoch(member: ConsumerMember, epoch: int, owned: Collection[Partition] | None) -> None:
    """Whether the member is where it says. One that joins anew says that it is nowhere, and that is true."""
    if epoch in {member.epoch, JOIN_EPOCH}:
        return
    has_missed_an_answer = (
        epoch == member.previous_epoch
        and member.epoch > epoch
        and owned is not None
        and all(partition in member.assigned for partition in owned)
    )
    if not has_missed_an_answer:
        relation = "greater" if epoch > member.epoch else "smaller"
        raise Refused(
            ErrorCode.fenced_member_epoch,
            f"The consumer group member has a {relation} member epoch ({epoch}) than the one known by the "
            f"group coordinator ({member.epoch}). The member must abandon all its partitions and rejoin.",
        )


def check_instance(member: ConsumerMember | None, member_id: str, instance_id: str) -> ConsumerMember:
    """Whether the instance is known, and by this member id."""
    if member is None:
        raise Refused(ErrorCode.unknown_member_id, f"Instance id {instance_id} is unknown.")
    if member.member_id != member_id:
        raise Refused(
            ErrorCode.fenced_instance_id,
            f"Static member {member_id} with instance id {instance_id} was fenced by member "
            f"{member.member_id}.",
        )
    return member


def check_released(member: ConsumerMember, member_id: str, instance_id: str) -> None:
    """Whether a static member has left its place for the one that comes."""
    if member.epoch != STATIC_LEAVE_EPOCH:
        raise Refused(
            ErrorCode.unreleased_instance_id,
            f"Static member {member_id} with instance id {instance_id} cannot join the group because the "
            f"instance id is owned by {member.member_id} member.",
        )


def unknown_member(group_id: str, member_id: str) -> Refused:
    """The refusal of a member that is not there, or no longer."""
    return Refused(ErrorCode.unknown_member_id, f"Member {member_id} is not a member of group {group_id}.")


def _check_joining(request: ConsumerGroupHeartbeatRequest) -> None:
    _require(request.rebalance_timeout_ms != -1, "RebalanceTimeoutMs must be provided in first request.")
    _require(request.topic_partitions == (), "TopicPartitions must be empty when (re-)joining.")
    _require(
        request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None,
        "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
    )


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise Refused(ErrorCode.invalid_request, message)
