"""What members say in their heartbeats: that they join, stay or leave. Pure functions, which raise Refused.

A heartbeat is checked first, and then does up to three things in this order: it updates the member, begins a
new group epoch if subscriptions or topics have changed, and makes the target of that epoch. The answer tells
the member its part, which it has from then on.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from headrace.kafka.groups.consumer.refusal import unknown_member
from headrace.kafka.groups.consumer.state import JOIN_EPOCH, LEAVE_EPOCH
from headrace.kafka.groups.share.refusal import check_epoch, check_request, check_room
from headrace.kafka.groups.share.state import ShareMember
from headrace.kafka.groups.share.target import refresh_topics, update_target
from headrace.kafka.groups.topic_partitions import by_topic
from headrace.kafka.messages.share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headrace.kafka.groups.consumer.state import Partition, TopicInfo
    from headrace.kafka.groups.share.state import ShareGroup
    from headrace.kafka.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

    Answered = tuple[ShareGroup, ShareGroupHeartbeatResponse]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroupLimits:
    """What members are held to."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    member_count_max: int = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareOccasion:
    """What a heartbeat meets: when it came, from where, and the topics that there are."""

    now_ms: int
    topics: Mapping[str, TopicInfo]
    client_id: str = ""
    client_host: str = ""
    limits: ShareGroupLimits = field(default_factory=ShareGroupLimits)


def heartbeat(group: ShareGroup, request: ShareGroupHeartbeatRequest, occasion: ShareOccasion) -> Answered:
    """Let a member join, stay or leave."""
    check_request(request)
    if request.member_epoch == LEAVE_EPOCH:
        return _leave(group, request)
    return _stay(group, request, occasion)


def expire(group: ShareGroup, now_ms: int) -> ShareGroup:
    """Remove the members that have fallen silent."""
    late = {each.member_id for each in group.members.values() if each.session_deadline_ms <= now_ms}
    return group.without_members(late) if late else group


def _leave(group: ShareGroup, request: ShareGroupHeartbeatRequest) -> Answered:
    if request.member_id not in group.members:
        raise unknown_member(group.group_id, request.member_id)
    left = group.without_members({request.member_id})
    return left, ShareGroupHeartbeatResponse(member_id=request.member_id, member_epoch=LEAVE_EPOCH)


def _stay(group: ShareGroup, request: ShareGroupHeartbeatRequest, occasion: ShareOccasion) -> Answered:
    member = _find_or_make(group, request, occasion.limits)
    updated = _updated(member, request, occasion)
    has_changed = updated.subscribed_names != member.subscribed_names
    group = refresh_topics(group.with_member(updated), occasion.topics, has_changed=has_changed)
    group = update_target(group)
    target = group.target.get(updated.member_id, frozenset())
    updated = updated.advanced_to(group.assignment_epoch, target)
    says_all = request.subscribed_topic_names is not None
    is_told = says_all or updated.assigned != member.assigned
    return group.with_member(updated), ShareGroupHeartbeatResponse(
        member_id=updated.member_id,
        member_epoch=updated.epoch,
        heartbeat_interval_ms=occasion.limits.heartbeat_interval_ms,
        assignment=_assignment(updated.assigned) if is_told else None,
    )


def _find_or_make(
    group: ShareGroup, request: ShareGroupHeartbeatRequest, limits: ShareGroupLimits
) -> ShareMember:
    """The member that speaks; a new one subscribes to nothing yet."""
    check_room(group, request.member_id, limits.member_count_max)
    member = group.members.get(request.member_id)
    if member is not None:
        check_epoch(member, request.member_epoch)
        return member
    if request.member_epoch != JOIN_EPOCH:
        raise unknown_member(group.group_id, request.member_id)
    return ShareMember(member_id=request.member_id)


def _updated(
    member: ShareMember, request: ShareGroupHeartbeatRequest, occasion: ShareOccasion
) -> ShareMember:
    """The member with what it says about itself; what it does not say has not changed."""
    names = request.subscribed_topic_names
    return replace(
        member,
        rack_id=request.rack_id or member.rack_id,
        client_id=occasion.client_id,
        client_host=occasion.client_host,
        subscribed_names=member.subscribed_names if names is None else frozenset(names),
        session_deadline_ms=occasion.now_ms + occasion.limits.session_timeout_ms,
    )


def _assignment(partitions: Iterable[Partition]) -> Assignment:
    return Assignment(
        topic_partitions=tuple(
            TopicPartitions(topic_id=topic_id, partitions=indexes)
            for topic_id, indexes in by_topic(partitions)
        )
    )
