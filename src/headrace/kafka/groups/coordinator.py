"""All groups and their offsets. `handle` methods change nothing; `apply` is the only mutation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kio.schema.errors import ErrorCode

from headrace.kafka.groups import committing, membership, rebalance
from headrace.kafka.groups.consumer import heartbeat as consumer
from headrace.kafka.groups.consumer.refusal import Refused
from headrace.kafka.groups.consumer.state import ConsumerGroup
from headrace.kafka.groups.kinds import check_consumer_heartbeat, check_new_classic, share_group_of
from headrace.kafka.groups.offsets import (
    OffsetCommitted,
    OffsetForgotten,
    OffsetPending,
    OffsetsSettled,
)
from headrace.kafka.groups.pending_offsets import PendingOffsets
from headrace.kafka.groups.share import heartbeat as share
from headrace.kafka.groups.share.refusal import check_request
from headrace.kafka.groups.share.state import ShareGroup
from headrace.kafka.groups.state import Group
from headrace.kafka.groups.subscription import CONSUMER_PROTOCOL, is_subscribed
from headrace.kafka.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from headrace.kafka.messages.leave_group import MemberResponse
from headrace.kafka.messages.share_group_heartbeat import ShareGroupHeartbeatResponse

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headrace.kafka.groups.committing import Committer
    from headrace.kafka.groups.consumer.heartbeat import Occasion
    from headrace.kafka.groups.membership import Joiner
    from headrace.kafka.groups.rebalance import Reply, Transition
    from headrace.kafka.groups.share.heartbeat import ShareOccasion
    from headrace.kafka.groups.state import Token
    from headrace.kafka.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
    from headrace.kafka.messages.heartbeat import HeartbeatRequest
    from headrace.kafka.messages.join_group import JoinGroupRequest, JoinGroupResponse
    from headrace.kafka.messages.leave_group import MemberIdentity
    from headrace.kafka.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
    from headrace.kafka.messages.sync_group import SyncGroupRequest, SyncGroupResponse

GROUP_COUNT_MAX: Final = 10_000

TopicPartition = tuple[str, int]
AnyGroup = Group | ConsumerGroup | ShareGroup


@dataclass(frozen=True, slots=True)
class GroupChanged:
    """A group has become another, or has begun."""

    group: AnyGroup


@dataclass(frozen=True, slots=True)
class GroupGone:
    """A group is no more."""

    group_id: str


GroupRecord = GroupChanged | GroupGone | OffsetCommitted | OffsetForgotten | OffsetPending | OffsetsSettled


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLimits:
    """What members of classic groups may ask for."""

    session_timeout_ms_min: int = 1_000
    session_timeout_ms_max: int = 1_800_000
    initial_rebalance_delay_ms: int = 0
    member_count_max: int = 1_000


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a request leads to: records to apply, and answers for requests that have been waiting."""

    records: tuple[GroupRecord, ...] = ()
    replies: tuple[Reply, ...] = ()


@dataclass(slots=True)
class GroupCoordinator:
    """Groups of all kinds. Not safe to share between threads."""

    limits: GroupLimits = field(default_factory=GroupLimits)
    groups: dict[str, Group] = field(default_factory=dict)
    """Groups of the classic protocol. A group stays when its last member has gone, until it is cleaned up."""
    consumer_groups: dict[str, ConsumerGroup] = field(default_factory=dict)
    """Groups whose partitions the broker shares out."""
    share_groups: dict[str, ShareGroup] = field(default_factory=dict)
    """Groups whose members share records. No group is of two kinds, and these never become another."""
    offsets: dict[str, dict[TopicPartition, OffsetCommitted]] = field(default_factory=dict)
    pending: PendingOffsets = field(default_factory=PendingOffsets)
    """What transactions that have not ended yet have committed."""

    def handle_join(
        self, request: JoinGroupRequest, joiner: Joiner, now_ms: int
    ) -> tuple[Outcome, JoinGroupResponse | None]:
        """A member wants to join by the classic protocol."""
        error_code = self._check_join(request)
        if error_code is not ErrorCode.none:
            return Outcome(), rebalance.join_refused(error_code, request.member_id)
        group = self.groups.get(request.group_id, Group(group_id=request.group_id))
        transition, response = membership.join(
            group,
            request,
            joiner,
            now_ms=now_ms,
            initial_delay_ms=self.limits.initial_rebalance_delay_ms,
        )
        return _outcome(group, transition), response

    def handle_sync(
        self, request: SyncGroupRequest, token: Token, now_ms: int
    ) -> tuple[Outcome, SyncGroupResponse | None]:
        """A member wants its assignment; the leader brings everybody's."""
        group = self.groups.get(request.group_id)
        if group is None:
            return Outcome(), rebalance.sync_refused(ErrorCode.unknown_member_id)
        transition, response = membership.sync(group, request, token, now_ms)
        return _outcome(group, transition), response

    def handle_heartbeat(self, request: HeartbeatRequest, now_ms: int) -> tuple[Outcome, ErrorCode]:
        """A member is alive."""
        group = self.groups.get(request.group_id)
        if group is None:
            return Outcome(), ErrorCode.unknown_member_id
        transition, error_code = membership.heartbeat(
            group, request.member_id, request.group_instance_id, request.generation_id, now_ms
        )
        return _outcome(group, transition), error_code

    def handle_consumer_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, occasion: Occasion
    ) -> tuple[Outcome, ConsumerGroupHeartbeatResponse]:
        """A member of a consumer group joins, stays or leaves."""
        try:
            check_consumer_heartbeat(self, request)
        except Refused as refused:
            return Outcome(), ConsumerGroupHeartbeatResponse(
                error_code=refused.error_code, error_message=str(refused)
            )
        before = self.consumer_groups.get(request.group_id, ConsumerGroup(group_id=request.group_id))
        group, response = consumer.heartbeat(before, request, occasion)
        return Outcome(() if group is before else (GroupChanged(group),)), response

    def handle_share_heartbeat(
        self, request: ShareGroupHeartbeatRequest, occasion: ShareOccasion
    ) -> tuple[Outcome, ShareGroupHeartbeatResponse]:
        """A member of a share group joins, stays or leaves."""
        try:
            check_request(request)
            group, response = share.heartbeat(share_group_of(self, request), request, occasion)
        except Refused as refused:
            return Outcome(), ShareGroupHeartbeatResponse(
                error_code=refused.error_code, error_message=str(refused) or None
            )
        return Outcome((GroupChanged(group),)), response

    def handle_leave(
        self, group_id: str, members: Iterable[MemberIdentity], now_ms: int
    ) -> tuple[Outcome, tuple[MemberResponse, ...]]:
        """Members go, or are sent away by a tool."""
        if group_id in self.consumer_groups:
            return self._leave_consumer_group(self.consumer_groups[group_id], members)
        before = group = self.groups.get(group_id, Group(group_id=group_id))
        replies: tuple[Reply, ...] = ()
        responses = []
        for member in members:
            transition, error_code = membership.leave(
                group, member.member_id, member.group_instance_id, now_ms
            )
            group, replies = transition.group, replies + transition.replies
            responses.append(_left(member, error_code))
        return _outcome(before, rebalance.Transition(group, replies)), tuple(responses)

    def check_commit(self, committer: Committer) -> ErrorCode:
        """Whether it may commit offsets for the group."""
        if not committer.group_id:
            return ErrorCode.invalid_group_id
        if committer.group_id not in self.offsets and len(self.offsets) >= GROUP_COUNT_MAX:
            return ErrorCode.policy_violation
        group = self.group(committer.group_id)
        if isinstance(group, ShareGroup):
            return ErrorCode.group_id_not_found
        if isinstance(group, ConsumerGroup):
            return committing.check_consumer_commit(group, committer)
        if group is None:
            return committing.check_commit_to_nothing(committer)
        return committing.check_classic_commit(group, committer)

    def check_fetch(self, group_id: str, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Whether it may hear the group's offsets: a member with a stale view of the group may not."""
        group = self.group(group_id)
        if isinstance(group, Group | ShareGroup):
            return ErrorCode.none
        return committing.check_fetch(group or ConsumerGroup(group_id=group_id), member_id, member_epoch)

    def handle_alive(self, group_id: str, member_id: str, now_ms: int) -> Outcome:
        """A member of a classic group has committed, so it is alive."""
        group = self.groups.get(group_id)
        if group is None or member_id not in group.members:
            return Outcome()
        return Outcome((GroupChanged(group.with_member(group.members[member_id].seen(now_ms))),))

    def handle_delete(self, group_id: str) -> tuple[tuple[OffsetForgotten, ...], ErrorCode]:
        """Forget the offsets of a group that has no members."""
        if group_id not in self:
            return (), ErrorCode.group_id_not_found
        if not self.is_empty(group_id):
            return (), ErrorCode.non_empty_group
        keys = {**self.offsets_of(group_id), **dict.fromkeys(self.pending.partitions_of(group_id))}
        return self._forget(group_id, keys), ErrorCode.none

    def handle_end(self, group_id: str) -> Outcome:
        """End a group that has no members. Offsets that it has committed are forgotten by themselves."""
        is_there = self.group(group_id) is not None and self.is_empty(group_id)
        return Outcome((GroupGone(group_id),) if is_there else ())

    def handle_delete_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> tuple[tuple[OffsetForgotten, ...], Mapping[TopicPartition, ErrorCode]]:
        """Forget offsets of topics that no member reads."""
        known = self.offsets_of(group_id)
        errors = {
            each: ErrorCode.group_subscribed_to_topic
            if self.is_subscribed(group_id, each[0])
            else ErrorCode.none
            for each in partitions
        }
        allowed = (each for each, error_code in errors.items() if error_code is ErrorCode.none)
        return self._forget(group_id, (each for each in allowed if each in known)), errors

    def check_delete_offsets(self, group_id: str) -> ErrorCode:
        """Whether offsets of single topics may be forgotten at all: who reads which must be known."""
        if group_id not in self or group_id in self.share_groups:
            return ErrorCode.group_id_not_found
        group = self.groups.get(group_id)
        is_opaque = group is not None and group.members and group.protocol_type != CONSUMER_PROTOCOL
        return ErrorCode.non_empty_group if is_opaque else ErrorCode.none

    def handle_topic_deleted(self, topic: str) -> tuple[OffsetForgotten, ...]:
        """Forget the offsets of a topic that is no more: one of the same name starts anew."""
        committed = (
            record
            for group_id, offsets in self.offsets.items()
            for record in self._forget(group_id, (key for key in offsets if key[0] == topic))
        )
        pending = (
            OffsetForgotten(group_id=group_id, topic=name, partition=partition)
            for group_id, name, partition in self.pending.all()
            if name == topic
        )
        return tuple(dict.fromkeys((*committed, *pending)))

    def handle_time(self, group_id: str, now_ms: int) -> Outcome:
        """Time has passed."""
        group = self.group(group_id)
        if group is None:
            return Outcome()
        if isinstance(group, Group):
            return _outcome(group, rebalance.expire(group, now_ms))
        expired: AnyGroup
        if isinstance(group, ShareGroup):
            expired = share.expire(group, now_ms)
        else:
            expired = consumer.expire(group, now_ms)
        return Outcome(() if expired is group else (GroupChanged(expired),))

    def group(self, group_id: str) -> AnyGroup | None:
        """The group, of whatever kind; one that only has offsets is None."""
        return (
            self.consumer_groups.get(group_id) or self.groups.get(group_id) or self.share_groups.get(group_id)
        )

    def is_empty(self, group_id: str) -> bool:
        """Whether the group has no members, nor is expecting one."""
        group = self.group(group_id)
        return group is None or not (group.members or (isinstance(group, Group) and group.pending_ids))

    def is_subscribed(self, group_id: str, topic: str) -> bool:
        """Whether a member reads the topic."""
        group = self.group(group_id)
        if isinstance(group, ConsumerGroup | ShareGroup):
            return group.is_subscribed(topic)
        return group is not None and is_subscribed(group, topic)

    def offsets_of(self, group_id: str) -> Mapping[TopicPartition, OffsetCommitted]:
        """What the group has committed."""
        return self.offsets.get(group_id, {})

    def group_ids(self) -> list[str]:
        """All groups that there are."""
        kinds = (self.groups, self.consumer_groups, self.share_groups, self.offsets)
        return sorted(set[str]().union(*kinds))

    def is_full(self, group_id: str) -> bool:
        """Whether there is no room for another group."""
        return self.group(group_id) is None and self.group_count >= GROUP_COUNT_MAX

    @property
    def group_count(self) -> int:
        """How many groups there are, without those that only have offsets."""
        return len(self.groups) + len(self.consumer_groups) + len(self.share_groups)

    def __contains__(self, group_id: str) -> bool:
        return group_id in self.offsets or self.group(group_id) is not None

    def apply(self, record: GroupRecord) -> None:
        """Take a record in. Recovery does nothing else."""
        if isinstance(record, GroupChanged):
            self._apply_group(record.group)
        elif isinstance(record, GroupGone):
            self.groups.pop(record.group_id, None)
            self.consumer_groups.pop(record.group_id, None)
            self.share_groups.pop(record.group_id, None)
        else:
            self._apply_offset(record)

    def _apply_group(self, group: AnyGroup) -> None:
        if isinstance(group, Group):
            self.consumer_groups.pop(group.group_id, None)
            self.groups[group.group_id] = group
        elif isinstance(group, ShareGroup):
            self.share_groups[group.group_id] = group
        else:
            self.groups.pop(group.group_id, None)
            self.consumer_groups[group.group_id] = group

    def _apply_offset(
        self, record: OffsetCommitted | OffsetForgotten | OffsetPending | OffsetsSettled
    ) -> None:
        if isinstance(record, OffsetPending):
            self.pending.add(record.producer_id, record.committed)
        elif isinstance(record, OffsetsSettled):
            for committed in self.pending.settle(record.producer_id, commits=record.commits):
                self._apply_committed(committed)
        else:
            self.pending.overtake(record.group_id, record.topic, record.partition)
            if isinstance(record, OffsetCommitted):
                self._apply_committed(record)
            else:
                self._apply_forgotten(record)

    def _apply_committed(self, record: OffsetCommitted) -> None:
        self.offsets.setdefault(record.group_id, {})[record.topic, record.partition] = record

    def _apply_forgotten(self, record: OffsetForgotten) -> None:
        offsets = self.offsets.get(record.group_id, {})
        offsets.pop((record.topic, record.partition), None)
        if not offsets:
            self.offsets.pop(record.group_id, None)

    def _leave_consumer_group(
        self, before: ConsumerGroup, members: Iterable[MemberIdentity]
    ) -> tuple[Outcome, tuple[MemberResponse, ...]]:
        group = before
        responses = []
        for member in members:
            group, error_code = consumer.remove(group, member.member_id, member.group_instance_id)
            responses.append(_left(member, error_code))
        return Outcome(() if group is before else (GroupChanged(group),)), tuple(responses)

    def _check_join(self, request: JoinGroupRequest) -> ErrorCode:
        if not request.group_id:
            return ErrorCode.invalid_group_id
        limits = self.limits
        if not limits.session_timeout_ms_min <= request.session_timeout_ms <= limits.session_timeout_ms_max:
            return ErrorCode.invalid_session_timeout
        group = self.groups.get(request.group_id)
        if group is None:
            return check_new_classic(self, request)
        is_known = request.member_id in group.members or request.member_id in group.pending_ids
        if not is_known and len(group.members) + len(group.pending_ids) >= limits.member_count_max:
            return ErrorCode.group_max_size_reached
        return ErrorCode.none

    def _forget(self, group_id: str, keys: Iterable[TopicPartition]) -> tuple[OffsetForgotten, ...]:
        return tuple(
            OffsetForgotten(group_id=group_id, topic=topic, partition=partition) for topic, partition in keys
        )


def _outcome(before: Group, transition: Transition) -> Outcome:
    records = () if transition.group is before else (GroupChanged(transition.group),)
    return Outcome(records, transition.replies)


def _left(member: MemberIdentity, error_code: ErrorCode) -> MemberResponse:
    return MemberResponse(
        member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=error_code
    )
