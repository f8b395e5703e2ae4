"""What is refused of a heartbeat, with the errors and the words that Kafka uses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kio.schema.errors import ErrorCode

from headrace.kafka.groups.consumer.refusal import SUBSCRIPTION_COUNT_MAX, Refused
from headrace.kafka.groups.consumer.state import JOIN_EPOCH, LEAVE_EPOCH

if TYPE_CHECKING:
    from headrace.kafka.groups.share.state import ShareGroup, ShareMember
    from headrace.kafka.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

MEMBER_ID_LENGTH_MAX: Final = 36
"""Clients take a UUID as it is written."""
GROUP_ID_BYTES_MAX: Final = 2**15 - 1
"""What fits into the keys of records."""


def check_request(request: ShareGroupHeartbeatRequest) -> None:
    """Whether the request makes sense by itself."""
    # Kafka says nothing more about member ids.
    _require(0 < len(request.member_id) <= MEMBER_ID_LENGTH_MAX, "")
    _require(request.group_id.strip() != "", "GroupId can't be empty.")
    _require(
        len(request.group_id.encode()) <= GROUP_ID_BYTES_MAX, f"GroupId is above {GROUP_ID_BYTES_MAX} bytes."
    )
    _require(request.rack_id is None or request.rack_id.strip() != "", "RackId can't be empty.")
    if request.member_epoch == JOIN_EPOCH:
        _require(bool(request.subscribed_topic_names), "SubscribedTopicNames must be set in first request.")
    _require(request.member_epoch >= LEAVE_EPOCH, "MemberEpoch is invalid.")
    _require(
        len(request.subscribed_topic_names or ()) <= SUBSCRIPTION_COUNT_MAX,
        f"SubscribedTopicNames has more than {SUBSCRIPTION_COUNT_MAX} names.",
    )


def check_room(group: ShareGroup, member_id: str, member_count_max: int) -> None:
    """Whether the member is there already or could be added."""
    if member_id not in group.members and len(group.members) >= member_count_max:
        raise Refused(
            ErrorCode.group_max_size_reached,
            f"The share group has reached its maximum capacity of {member_count_max} members.",
        )


def check_epoch(member: ShareMember, epoch: int) -> None:
    """Whether the member is where it says. One that joins anew says that it is nowhere, and that is true."""
    if epoch in {member.epoch, member.previous_epoch, JOIN_EPOCH}:
        return
    if epoch > member.epoch:
        known = (
            f"a greater member epoch ({epoch}) than the one known by the group coordinator ({member.epoch})"
        )
    else:
        known = (
            f"a smaller member epoch ({epoch}) than the one known by the group coordinator ({member.epoch}), "
            f"and it does not match the previous member epoch ({member.previous_epoch})"
        )
    raise Refused(
        ErrorCode.fenced_member_epoch,
        f"The share group member has {known}. The member must abandon all its partitions and rejoin.",
    )


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise Refused(ErrorCode.invalid_request, message)
