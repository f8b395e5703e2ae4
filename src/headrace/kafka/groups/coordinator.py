"""All groups and their offsets. `handle` methods change nothing; `apply` is the only mutation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kio.schema.errors import ErrorCode

from headrace.kafka.groups import membership, rebalance
from headrace.kafka.groups.offsets import (
    OffsetCommitted,
    OffsetForgotten,
    OffsetPending,
    OffsetsSettled,
)
from headrace.kafka.groups.pending_offsets import PendingOffsets
from headrace.kafka.groups.state import Group, GroupState
from headrace.kafka.messages.leave_group import MemberResponse

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headrace.kafka.groups.membership import Joiner
    from headrace.kafka.groups.rebalance import Reply, Transition
    from headrace.kafka.groups.state import Token
    from headrace.kafka.messages.heartbeat import HeartbeatRequest
    from headrace.kafka.messages.join_group import JoinGroupRequest, JoinGroupResponse
    from headrace.kafka.messages.leave_group import MemberIdentity
    from headrace.kafka.messages.offset_commit import OffsetCommitRequest
    from headrace.kafka.messages.sync_group import SyncGroupRequest, SyncGroupResponse

GROUP_COUNT_MAX: Final = 10_000
MEMBER_COUNT_MAX: Final = 1_000

TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class GroupChanged:
    """A group has become another. Kept in memory only."""

    group: Group


GroupRecord = GroupChanged | OffsetCommitted | OffsetForgotten | OffsetPending | OffsetsSettled


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLimits:
    """What members may ask for."""

    session_timeout_ms_min: int = 1_000
    session_timeout_ms_max: int = 1_800_000
    initial_rebalance_delay_ms: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a request leads to: records to apply, and answers for requests that have been waiting."""

    records: tuple[GroupRecord, ...] = ()
    replies: tuple[Reply, ...] = ()


@dataclass(slots=True)
class GroupCoordinator:
    """Consumer groups. Not safe to share between threads."""

    limits: GroupLimits = field(default_factory=GroupLimits)
    groups: dict[str, Group] = field(default_factory=dict)
    offsets: dict[str, dict[TopicPartition, OffsetCommitted]] = field(default_factory=dict)
    pending: PendingOffsets = field(default_factory=PendingOffsets)
    """What transactions that have not ended yet have committed."""

    def handle_join(
        self, request: JoinGroupRequest, joiner: Joiner, now_ms: int
    ) -> tuple[Outcome, JoinGroupResponse | None]:
        """A member wants to join."""
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

    def handle_leave(
        self, group_id: str, members: Iterable[MemberIdentity], now_ms: int
    ) -> tuple[Outcome, tuple[MemberResponse, ...]]:
        """Members go."""
        before = group = self.groups.get(group_id, Group(group_id=group_id))
        replies: tuple[Reply, ...] = ()
        responses = []
        for member in members:
            transition, error_code = membership.leave(
                group, member.member_id, member.group_instance_id, now_ms
            )
            group, replies = transition.group, replies + transition.replies
            responses.append(
                MemberResponse(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    error_code=error_code,
                )
            )
        return _outcome(before, rebalance.Transition(group, replies)), tuple(responses)

    def check_commit(self, request: OffsetCommitRequest) -> ErrorCode:
        """Whether the request's sender may commit offsets for the group."""
        if not request.group_id:
            return ErrorCode.invalid_group_id
        if request.group_id not in self.offsets and len(self.offsets) >= GROUP_COUNT_MAX:
            return ErrorCode.policy_violation
        generation_id = request.generation_id_or_member_epoch
        group = self.groups.get(request.group_id)
        if group is None:
            return ErrorCode.none if generation_id < 0 else ErrorCode.illegal_generation
        if group.state is GroupState.EMPTY and generation_id < 0:
            return ErrorCode.none
        error_code = membership.check_member(
            group, request.member_id, request.group_instance_id, generation_id
        )
        if error_code is ErrorCode.none and group.state is GroupState.COMPLETING_REBALANCE:
            return ErrorCode.rebalance_in_progress
        return error_code

    def handle_alive(self, group_id: str, member_id: str, now_ms: int) -> Outcome:
        """A member has committed, so it is alive."""
        group = self.groups.get(group_id)
        if group is None or member_id not in group.members:
            return Outcome()
        return Outcome((GroupChanged(group.with_member(group.members[member_id].seen(now_ms))),))

    def handle_delete(self, group_id: str) -> tuple[tuple[OffsetForgotten, ...], ErrorCode]:
        """Forget a group that has no members."""
        group = self.groups.get(group_id)
        if group is None and group_id not in self.offsets:
            return (), ErrorCode.group_id_not_found
        if group is not None and (group.members or group.pending_ids):
            return (), ErrorCode.non_empty_group
        keys = {**self.offsets_of(group_id), **dict.fromkeys(self.pending.partitions_of(group_id))}
        return self._forget(group_id, keys), ErrorCode.none

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
        group = self.groups.get(group_id)
        return Outcome() if group is None else _outcome(group, rebalance.expire(group, now_ms))

    def offsets_of(self, group_id: str) -> Mapping[TopicPartition, OffsetCommitted]:
        """What the group has committed."""
        return self.offsets.get(group_id, {})

    def group_ids(self) -> list[str]:
        """All groups that have members or offsets."""
        return sorted(self.groups.keys() | self.offsets.keys())

    def apply(self, record: GroupRecord) -> None:
        """Take a record in. Recovery does nothing else."""
        if isinstance(record, GroupChanged):
            self._apply_group(record.group)
        elif isinstance(record, OffsetCommitted):
            self.pending.overtake(record.group_id, record.topic, record.partition)
            self._apply_committed(record)
        elif isinstance(record, OffsetForgotten):
            self._apply_forgotten(record)
        elif isinstance(record, OffsetPending):
            self.pending.add(record.producer_id, record.committed)
        else:
            for committed in self.pending.settle(record.producer_id, commits=record.commits):
                self._apply_committed(committed)

    def _apply_group(self, group: Group) -> None:
        if group.members or group.pending_ids or group.group_id in self.offsets:
            self.groups[group.group_id] = group
        else:
            self.groups.pop(group.group_id, None)

    def _apply_committed(self, record: OffsetCommitted) -> None:
        self.offsets.setdefault(record.group_id, {})[record.topic, record.partition] = record

    def _apply_forgotten(self, record: OffsetForgotten) -> None:
        self.pending.overtake(record.group_id, record.topic, record.partition)
        offsets = self.offsets.get(record.group_id, {})
        offsets.pop((record.topic, record.partition), None)
        if not offsets:
            self.offsets.pop(record.group_id, None)
            group = self.groups.get(record.group_id)
            if group is not None:
                self._apply_group(group)

    def _check_join(self, request: JoinGroupRequest) -> ErrorCode:
        if not request.group_id:
            return ErrorCode.invalid_group_id
        limits = self.limits
        if not limits.session_timeout_ms_min <= request.session_timeout_ms <= limits.session_timeout_ms_max:
            return ErrorCode.invalid_session_timeout
        group = self.groups.get(request.group_id)
        if group is None:
            if request.member_id:
                return ErrorCode.unknown_member_id
            return ErrorCode.none if len(self.groups) < GROUP_COUNT_MAX else ErrorCode.policy_violation
        is_known = request.member_id in group.members or request.member_id in group.pending_ids
        if not is_known and len(group.members) + len(group.pending_ids) >= MEMBER_COUNT_MAX:
            return ErrorCode.group_max_size_reached
        return ErrorCode.none

    def _forget(self, group_id: str, keys: Iterable[TopicPartition]) -> tuple[OffsetForgotten, ...]:
        return tuple(
            OffsetForgotten(group_id=group_id, topic=topic, partition=partition) for topic, partition in keys
        )


def _outcome(before: Group, transition: Transition) -> Outcome:
    records = () if transition.group is before else (GroupChanged(transition.group),)
    return Outcome(records, transition.replies)
