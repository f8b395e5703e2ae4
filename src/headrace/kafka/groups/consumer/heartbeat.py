"""What members say in their heartbeats: that they join, stay, leave for a while or leave. Pure functions.

A heartbeat is checked first, and then does up to four things in this order: it updates the member, begins a
new group epoch if subscriptions or topics have changed, makes the target of that epoch, and leads the member
one step towards its target.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.kafka.groups.consumer.reconciliation import reconcile
from headrace.kafka.groups.consumer.refusal import (
    Refused,
    check_epoch,
    check_instance,
    check_released,
    check_request,
    unknown_member,
)
from headrace.kafka.groups.consumer.state import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerMember,
)
from headrace.kafka.groups.consumer.target import compiled_pattern, refresh_subscriptions, update_target
from headrace.kafka.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headrace.kafka.groups.consumer.state import ConsumerGroup, Partition, TopicInfo
    from headrace.kafka.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

    Answered = tuple[ConsumerGroup, ConsumerGroupHeartbeatResponse]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupLimits:
    """What members are held to."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    member_count_max: int = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Occasion:
    """What a heartbeat meets: when it came, from where, and the topics that there are."""

    now_ms: int
    topics: Mapping[str, TopicInfo]
    new_member_id: str = ""
    """The id that the member gets if it may leave that to the broker and does."""
    must_have_id: bool = True
    client_id: str = ""
    client_host: str = ""
    limits: ConsumerGroupLimits = field(default_factory=ConsumerGroupLimits)


def heartbeat(group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, occasion: Occasion) -> Answered:
    """Let a member join, stay or leave. A heartbeat that is refused leaves the group as it is."""
    try:
        check_request(request, must_have_id=occasion.must_have_id)
        is_leaving = request.member_epoch in {LEAVE_EPOCH, STATIC_LEAVE_EPOCH}
        return _leave(group, request) if is_leaving else _stay(group, request, occasion)
    except Refused as refused:
        return group, ConsumerGroupHeartbeatResponse(
            error_code=refused.error_code, error_message=str(refused)
        )


def remove(group: ConsumerGroup, member_id: str, instance_id: str | None) -> tuple[ConsumerGroup, ErrorCode]:
    """Send a member away. A static one may be named by its instance id alone."""
    member = group.members.get(member_id)
    if instance_id is not None:
        member = group.member_with_instance(instance_id)
        if member is not None and member_id not in {"", member.member_id}:
            return group, ErrorCode.fenced_instance_id
    if member is None:
        return group, ErrorCode.unknown_member_id
    return group.without_members({member.member_id}), ErrorCode.none


def expire(group: ConsumerGroup, now_ms: int) -> ConsumerGroup:
    """Remove the members that have fallen silent or have not let go in time."""
    late = {
        member.member_id
        for member in group.members.values()
        if member.session_deadline_ms <= now_ms
        or (member.revocation_deadline_ms is not None and member.revocation_deadline_ms <= now_ms)
    }
    return group.without_members(late) if late else group


def _stay(group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, occasion: Occasion) -> Answered:
    owned = _partitions(request.topic_partitions)
    group, member = _find_or_add(group, request, occasion, owned)
    updated = _updated(member, request, occasion)
    has_changed = (
        member.member_id not in group.members
        or updated.subscribed_names != member.subscribed_names
        or updated.subscribed_regex != member.subscribed_regex
    )
    group = refresh_subscriptions(
        group.with_member(updated), occasion.topics, occasion.now_ms, has_changed=has_changed
    )
    group = update_target(group)
    updated = reconcile(group, updated, owned, occasion.now_ms)
    is_told = _is_complete(request) or updated.assigned.keys() != member.assigned.keys()
    return group.with_member(updated), ConsumerGroupHeartbeatResponse(
        member_id=updated.member_id,
        member_epoch=updated.epoch,
        heartbeat_interval_ms=occasion.limits.heartbeat_interval_ms,
        assignment=_assignment(updated.assigned) if is_told else None,
    )


def _leave(group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest) -> Answered:
    if request.instance_id is None:
        member = group.members.get(request.member_id)
        if member is None:
            raise unknown_member(group.group_id, request.member_id)
    else:
        static = group.member_with_instance(request.instance_id)
        member = check_instance(static, request.member_id, request.instance_id)
    if request.member_epoch == STATIC_LEAVE_EPOCH:
        # What it was to give up is free; what it has waits for it.
        away = replace(member, epoch=STATIC_LEAVE_EPOCH, pending_revocation={}, revocation_deadline_ms=None)
        left = group.with_member(away)
    else:
        left = group.without_members({member.member_id})
    return left, ConsumerGroupHeartbeatResponse(member_id=member.member_id, member_epoch=request.member_epoch)


def _find_or_add(
    group: ConsumerGroup,
    request: ConsumerGroupHeartbeatRequest,
    occasion: Occasion,
    owned: frozenset[Partition] | None,
) -> tuple[ConsumerGroup, ConsumerMember]:
    """The member that speaks, and the group, in which a static member may have taken its old place."""
    member_id = request.member_id or occasion.new_member_id
    is_joining = request.member_epoch == JOIN_EPOCH
    if request.instance_id is not None:
        static = group.member_with_instance(request.instance_id)
        if is_joining and static is not None:
            check_released(static, member_id, request.instance_id)
            return _take_over(group, static, member_id)
        if not is_joining:
            static = check_instance(static, member_id, request.instance_id)
            check_epoch(static, request.member_epoch, owned)
            return group, static
    member = group.members.get(member_id)
    if member is not None:
        check_epoch(member, request.member_epoch, owned)
        return group, member
    if not is_joining:
        raise unknown_member(group.group_id, member_id)
    if len(group.members) >= occasion.limits.member_count_max:
        raise Refused(
            ErrorCode.group_max_size_reached,
            f"The consumer group has reached its maximum capacity of {len(group.members)} members.",
        )
    return group, ConsumerMember(member_id=member_id)


def _take_over(
    group: ConsumerGroup, old: ConsumerMember, member_id: str
) -> tuple[ConsumerGroup, ConsumerMember]:
    """Give the place of a static member that has left, with all that it had, to its new self."""
    new = replace(old, member_id=member_id, epoch=JOIN_EPOCH, previous_epoch=JOIN_EPOCH)

    def renamed(key: str) -> str:
        return member_id if key == old.member_id else key

    replaced = replace(
        group,
        members={renamed(key): new if each is old else each for key, each in group.members.items()},
        target={renamed(key): each for key, each in group.target.items()},
    )
    return replaced, new


def _updated(
    member: ConsumerMember, request: ConsumerGroupHeartbeatRequest, occasion: Occasion
) -> ConsumerMember:
    """The member with what it says about itself; what it does not say has not changed."""
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    if regex:
        compiled_pattern(regex)
    timeout_ms = request.rebalance_timeout_ms
    return replace(
        member,
        instance_id=request.instance_id or member.instance_id,
        rack_id=request.rack_id or member.rack_id,
        client_id=occasion.client_id,
        client_host=occasion.client_host,
        rebalance_timeout_ms=timeout_ms if timeout_ms >= 0 else member.rebalance_timeout_ms,
        subscribed_names=member.subscribed_names if names is None else frozenset(names),
        subscribed_regex=member.subscribed_regex if regex is None else regex,
        server_assignor=request.server_assignor or member.server_assignor,
        session_deadline_ms=occasion.now_ms + occasion.limits.session_timeout_ms,
    )


def _is_complete(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether the member has said everything, as it does when it joins and after anything went wrong."""
    subscribes = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    return request.member_epoch == JOIN_EPOCH or (
        request.rebalance_timeout_ms >= 0 and subscribes and request.topic_partitions is not None
    )


def _partitions(topics: tuple[TopicPartitions, ...] | None) -> frozenset[Partition] | None:
    if topics is None:
        return None
    return frozenset(
        (topic.topic_id, index)
        for topic in topics
        if topic.topic_id is not None
        for index in topic.partitions
    )


def _assignment(partitions: Iterable[Partition]) -> Assignment:
    in_order = sorted(partitions, key=lambda each: (each[0].int, each[1]))
    return Assignment(
        topic_partitions=tuple(
            TopicPartitions(topic_id=topic_id, partitions=tuple(index for _, index in same))
            for topic_id, same in groupby(in_order, key=lambda each: each[0])
        )
    )
