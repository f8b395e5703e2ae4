"""Which kind of group a request is about, and what is answered where the group is of another kind.

Members of a consumer group may use one protocol or the other, so an empty group takes the kind of the member
that comes next, and keeps its offsets. How far a share group has come can't be told by offsets: it never
becomes another kind of group, nor does another become one, however empty it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.kafka.groups.consumer.refusal import Refused
from headrace.kafka.groups.consumer.state import JOIN_EPOCH, LEAVE_EPOCH, STATIC_LEAVE_EPOCH
from headrace.kafka.groups.share.state import ShareGroup

if TYPE_CHECKING:
    from headrace.kafka.groups.coordinator import GroupCoordinator
    from headrace.kafka.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
    from headrace.kafka.messages.join_group import JoinGroupRequest
    from headrace.kafka.messages.share_group_heartbeat import ShareGroupHeartbeatRequest


def check_new_classic(coordinator: GroupCoordinator, request: JoinGroupRequest) -> ErrorCode:
    """Whether a member may join by the classic protocol where there is no group of that kind."""
    group_id = request.group_id
    if group_id in coordinator.share_groups or not coordinator.is_empty(group_id):
        return ErrorCode.inconsistent_group_protocol
    if request.member_id:
        return ErrorCode.unknown_member_id
    return ErrorCode.policy_violation if coordinator.is_full(group_id) else ErrorCode.none


def check_consumer_heartbeat(coordinator: GroupCoordinator, request: ConsumerGroupHeartbeatRequest) -> None:
    """Whether the heartbeat is for a consumer group or begins one; raises Refused."""
    group_id = request.group_id
    if group_id in coordinator.consumer_groups:
        return
    if group_id in coordinator.share_groups or not coordinator.is_empty(group_id):
        raise _not_found(f"Group {group_id} is not a consumer group.")
    if request.member_epoch in {LEAVE_EPOCH, STATIC_LEAVE_EPOCH}:
        raise _not_found(f"Group {group_id} not found.")
    _check_room(coordinator, group_id)


def share_group_of(coordinator: GroupCoordinator, request: ShareGroupHeartbeatRequest) -> ShareGroup:
    """The share group that the heartbeat is for, or the one that it begins; raises Refused."""
    group_id = request.group_id
    group = coordinator.share_groups.get(group_id)
    if group is not None:
        return group
    # Offsets that wait for the end of a transaction make a group, too.
    if group_id in coordinator or coordinator.pending.partitions_of(group_id):
        raise _not_found(f"Group {group_id} is not a share group.")
    if request.member_epoch == LEAVE_EPOCH:
        raise _not_found(f"Group {group_id} not found.")
    if request.member_epoch != JOIN_EPOCH:
        raise _not_found(f"Share group {group_id} not found.")
    _check_room(coordinator, group_id)
    return ShareGroup(group_id=group_id)


def _check_room(coordinator: GroupCoordinator, group_id: str) -> None:
    if coordinator.is_full(group_id):
        raise Refused(
            ErrorCode.policy_violation,
            f"There are {coordinator.group_count} groups already: delete one that nobody needs.",
        )


def _not_found(message: str) -> Refused:
    return Refused(ErrorCode.group_id_not_found, message)
