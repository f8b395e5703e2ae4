"""Groups as they were before a restart, put together again from their records."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from headrace.kafka.groups.consumer.assignors import preferred_assignor
from headrace.kafka.groups.consumer.state import ConsumerGroup, ConsumerMember, MemberState
from headrace.kafka.groups.consumer.target import compiled_pattern
from headrace.kafka.groups.record_codec import (
    CLASSIC_GROUP,
    CURRENT_ASSIGNMENT,
    GROUP_EPOCH,
    MEMBER_METADATA,
    SHARE_KINDS,
    TARGET,
    TARGET_EPOCH,
    decode,
)
from headrace.kafka.groups.share.loading import ShareGroupParts
from headrace.kafka.groups.state import Group, GroupState, Member, Protocol
from headrace.kafka.groups.topic_partitions import one_by_one, topics_hash

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from headrace.kafka.groups.consumer.state import Partition, TopicInfo
    from headrace.kafka.groups.record_codec import Kind
    from headrace.kafka.groups.record_schemas import (
        ClassicGroup,
        CurrentAssignment,
        GroupEpoch,
        MemberMetadata,
        OwnedPartitions,
        Target,
        TargetEpoch,
    )
    from headrace.kafka.groups.settings import GroupSettings
    from headrace.kafka.groups.share.state import ShareGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumption:
    """What groups come back to."""

    now_ms: int
    """Sessions begin anew at this time."""
    settings_of: Callable[[str], GroupSettings]
    """What holds for a group. Members of classic groups bring session timeouts of their own."""
    topics: Mapping[str, TopicInfo]


@dataclass(slots=True)
class _Parts:
    """The records of one consumer group."""

    epoch: GroupEpoch | None = None
    target_epoch: TargetEpoch | None = None
    members: dict[str, MemberMetadata] = field(default_factory=dict)
    targets: dict[str, Target] = field(default_factory=dict)
    assignments: dict[str, CurrentAssignment] = field(default_factory=dict)


class GroupLoader:
    """Takes records in the order of the log, and gives the groups that they end with."""

    def __init__(self) -> None:
        self._classic: dict[str, ClassicGroup] = {}
        self._consumer: dict[str, _Parts] = {}
        self._share: dict[str, ShareGroupParts] = {}

    def take(self, key: bytes, value: bytes | None) -> None:
        """Take a record in. One of another kind is stepped over."""
        decoded = decode(key, value)
        if decoded is not None:
            self._take(*decoded)

    def emptied_at_ms(self) -> dict[str, int]:
        """Since when classic groups have been empty, by the clock on the wall."""
        return {
            group_id: value.current_state_timestamp
            for group_id, value in self._classic.items()
            if not value.members
        }

    def groups(self, resumption: Resumption) -> Iterator[Group | ConsumerGroup | ShareGroup]:
        """The groups that there are."""
        for group_id, value in self._classic.items():
            yield _classic_group(group_id, value, resumption.now_ms)
        for group_id, parts in self._consumer.items():
            if parts.epoch is not None:
                yield _consumer_group(group_id, parts, parts.epoch, resumption)
        for group_id, share_parts in self._share.items():
            timeout_ms = resumption.settings_of(group_id).share_session_timeout_ms
            group = share_parts.group(group_id, resumption.topics, resumption.now_ms + timeout_ms)
            if group is not None:
                yield group

    def _take(self, kind: Kind, key: Any, value: Any | None) -> None:
        if kind in SHARE_KINDS:
            self._share.setdefault(key.group_id, ShareGroupParts()).take(kind, key, value)
            return
        parts = self._consumer.setdefault(key.group_id, _Parts())
        if kind is CLASSIC_GROUP:
            _put(self._classic, key.group_id, value)
        elif kind is GROUP_EPOCH:
            parts.epoch = value
        elif kind is TARGET_EPOCH:
            parts.target_epoch = value
        else:
            by_member: dict[Kind, dict[str, Any]] = {
                MEMBER_METADATA: parts.members,
                TARGET: parts.targets,
                CURRENT_ASSIGNMENT: parts.assignments,
            }
            _put(by_member[kind], key.member_id, value)


def _put(values: dict[str, Any], key: str, value: Any | None) -> None:
    if value is None:
        values.pop(key, None)
    else:
        values[key] = value


def _classic_group(group_id: str, value: ClassicGroup, now_ms: int) -> Group:
    return Group(
        group_id=group_id,
        state=GroupState.STABLE if value.members else GroupState.EMPTY,
        generation_id=value.generation,
        protocol_type=value.protocol_type or None,
        protocol_name=value.protocol,
        leader_id=value.leader,
        members={
            member.member_id: Member(
                member_id=member.member_id,
                instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                session_timeout_ms=member.session_timeout,
                rebalance_timeout_ms=member.rebalance_timeout,
                protocols=(Protocol(name=value.protocol or "", metadata=member.subscription),),
                session_deadline_ms=now_ms + member.session_timeout,
                has_synced=True,
                assignment=member.assignment,
            )
            for member in value.members
        },
    )


def _consumer_group(group_id: str, parts: _Parts, epoch: GroupEpoch, resumption: Resumption) -> ConsumerGroup:
    now_ms = resumption.now_ms
    session_deadline_ms = now_ms + resumption.settings_of(group_id).consumer_session_timeout_ms
    members = {
        member_id: replace(
            _consumer_member(member_id, metadata, parts.assignments.get(member_id), now_ms),
            session_deadline_ms=session_deadline_ms,
        )
        for member_id, metadata in parts.members.items()
    }
    expressions = {member.subscribed_regex for member in members.values() if member.subscribed_regex}
    topics = resumption.topics
    group = ConsumerGroup(
        group_id=group_id,
        epoch=epoch.epoch,
        assignment_epoch=0 if parts.target_epoch is None else parts.target_epoch.assignment_epoch,
        members=members,
        target={
            key: one_by_one(target.topic_partitions)
            for key, target in parts.targets.items()
            if key in members
        },
        assignor=preferred_assignor(member.server_assignor for member in members.values()),
        matches={text: frozenset(filter(compiled_pattern(text).matches, topics)) for text in expressions},
        matched_at_ms=now_ms,
    ).with_subscriptions()
    found = {name: topics[name] for name in group.subscribed_names if name in topics}
    # Topics that changed while nobody looked are noticed at the next heartbeat.
    return replace(group, topics=found if topics_hash(found) == epoch.metadata_hash else {})


def _consumer_member(
    member_id: str, metadata: MemberMetadata, current: CurrentAssignment | None, now_ms: int
) -> ConsumerMember:
    member = ConsumerMember(
        member_id=member_id,
        instance_id=metadata.instance_id,
        rack_id=metadata.rack_id,
        client_id=metadata.client_id,
        client_host=metadata.client_host,
        rebalance_timeout_ms=metadata.rebalance_timeout_ms,
        subscribed_names=frozenset(metadata.subscribed_topic_names),
        subscribed_regex=metadata.subscribed_topic_regex or "",
        server_assignor=metadata.server_assignor,
    )
    if current is None:
        return member
    pending_revocation = _owned(current.partitions_pending_revocation, current.member_epoch)
    deadline_ms = now_ms + metadata.rebalance_timeout_ms
    return replace(
        member,
        epoch=current.member_epoch,
        previous_epoch=current.previous_member_epoch,
        state=MemberState(current.state),
        assigned=_owned(current.assigned_partitions, current.member_epoch),
        pending_revocation=pending_revocation,
        revocation_deadline_ms=deadline_ms if pending_revocation else None,
    )


def _owned(topics: tuple[OwnedPartitions, ...], member_epoch: int) -> dict[Partition, int]:
    owned: dict[Partition, int] = {}
    for topic in topics:
        epochs = topic.assignment_epochs or (member_epoch,) * len(topic.partitions)
        for index, epoch in zip(topic.partitions, epochs, strict=True):
            if topic.topic_id is not None:
                owned[topic.topic_id, index] = epoch
    return owned
