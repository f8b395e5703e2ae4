"""What of a group is written down when it changes: the records that lead from what it was to what it is.

Sessions are not: after a restart everybody has a full one. Nor is a rebalance of the classic protocol that
has not come to its end: after a restart the generation before it stands, and those who have gone further are
told to join again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.kafka.groups.consumer.state import ConsumerGroup
from headrace.kafka.groups.record_codec import (
    CLASSIC_GROUP,
    CURRENT_ASSIGNMENT,
    GROUP_EPOCH,
    MEMBER_METADATA,
    TARGET,
    TARGET_EPOCH,
    encode,
)
from headrace.kafka.groups.record_schemas import (
    ClassicGroup,
    ClassicMember,
    CurrentAssignment,
    GroupEpoch,
    GroupKey,
    MemberKey,
    MemberMetadata,
    OwnedPartitions,
    Target,
    TargetEpoch,
    TargetPartitions,
)
from headrace.kafka.groups.share.persistence import share_change, share_tombstones
from headrace.kafka.groups.share.state import ShareGroup
from headrace.kafka.groups.state import Group, GroupState
from headrace.kafka.groups.topic_partitions import by_topic, topics_hash

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from headrace.kafka.groups.consumer.state import ConsumerMember, Partition
    from headrace.kafka.groups.coordinator import AnyGroup
    from headrace.kafka.groups.record_codec import Encoded
    from headrace.kafka.groups.state import Member

SETTLED_STATES: Final = {GroupState.STABLE, GroupState.EMPTY}


def records_of_change(before: AnyGroup | None, after: AnyGroup | None, now_ms: int) -> list[Encoded]:
    """The records for a group that has become another, begun or ended, by the clock on the wall."""
    records: list[Encoded] = []
    if isinstance(before, ConsumerGroup) and not isinstance(after, ConsumerGroup):
        records += _consumer_tombstones(before)
    if isinstance(before, Group) and not isinstance(after, Group) and _is_written(before):
        records.append(encode(CLASSIC_GROUP, GroupKey(group_id=before.group_id), None))
    if isinstance(before, ShareGroup) and after is None:
        records += share_tombstones(before)
    if isinstance(after, Group):
        records += _classic_change(before if isinstance(before, Group) else None, after, now_ms)
    elif isinstance(after, ShareGroup):
        records += share_change(before if isinstance(before, ShareGroup) else None, after)
    elif after is not None:
        records += _consumer_change(before if isinstance(before, ConsumerGroup) else None, after)
    return records


def _is_written(group: Group) -> bool:
    """Whether the group has ever come so far that it was written down."""
    return group.generation_id > 0


def _classic_change(before: Group | None, after: Group, now_ms: int) -> list[Encoded]:
    if after.state not in SETTLED_STATES or not _is_written(after):
        return []
    if before is not None and not _has_classic_change(before, after):
        return []
    value = ClassicGroup(
        protocol_type=after.protocol_type or "",
        generation=after.generation_id,
        protocol=after.protocol_name,
        leader=after.leader_id,
        current_state_timestamp=now_ms,
        members=tuple(_classic_member(after, member) for member in after.members.values()),
    )
    return [encode(CLASSIC_GROUP, GroupKey(group_id=after.group_id), value)]


def _has_classic_change(before: Group, after: Group) -> bool:
    """Whether the record of a classic group that was settled, too, would tell anything else."""
    if before.state is not after.state or before.generation_id != after.generation_id:
        return True
    if before.leader_id != after.leader_id or before.members.keys() != after.members.keys():
        return True
    # Most members are the very same value: a heartbeat replaces one.
    return any(
        _classic_member(before, before.members[key]) != _classic_member(after, member)
        for key, member in after.members.items()
        if before.members[key] is not member
    )


def _classic_member(group: Group, member: Member) -> ClassicMember:
    return ClassicMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout=member.rebalance_timeout_ms,
        session_timeout=member.session_timeout_ms,
        subscription=member.metadata_for(group.protocol_name),
        assignment=member.assignment,
    )


def _consumer_change(before: ConsumerGroup | None, after: ConsumerGroup) -> Iterator[Encoded]:
    members = {} if before is None else before.members
    for member_id in members.keys() - after.members.keys():
        yield from _member_tombstones(after.group_id, member_id)
    changed = [member for member in after.members.values() if members.get(member.member_id) is not member]
    for member in changed:
        old = members.get(member.member_id)
        if old is None or _metadata(old) != _metadata(member):
            yield encode(MEMBER_METADATA, _member_key(after, member.member_id), _metadata(member))
    if before is None or (before.epoch, before.topics) != (after.epoch, after.topics):
        epoch = GroupEpoch(epoch=after.epoch, metadata_hash=topics_hash(after.topics))
        yield encode(GROUP_EPOCH, GroupKey(group_id=after.group_id), epoch)
    yield from _target_change(before, after)
    for member in changed:
        old = members.get(member.member_id)
        if old is None or _current(old) != _current(member):
            yield encode(CURRENT_ASSIGNMENT, _member_key(after, member.member_id), _current(member))


def _target_change(before: ConsumerGroup | None, after: ConsumerGroup) -> Iterator[Encoded]:
    known = {} if before is None else before.target
    if known is not after.target:
        for member_id, partitions in after.target.items():
            if known.get(member_id) != partitions:
                target = Target(
                    topic_partitions=tuple(
                        TargetPartitions(topic_id=topic_id, partitions=indexes)
                        for topic_id, indexes in by_topic(partitions)
                    )
                )
                yield encode(TARGET, _member_key(after, member_id), target)
    if before is None or before.assignment_epoch != after.assignment_epoch:
        epoch = TargetEpoch(assignment_epoch=after.assignment_epoch)
        yield encode(TARGET_EPOCH, GroupKey(group_id=after.group_id), epoch)


def _consumer_tombstones(group: ConsumerGroup) -> Iterator[Encoded]:
    for member_id in group.members:
        yield from _member_tombstones(group.group_id, member_id)
    yield encode(TARGET_EPOCH, GroupKey(group_id=group.group_id), None)
    yield encode(GROUP_EPOCH, GroupKey(group_id=group.group_id), None)


def _member_tombstones(group_id: str, member_id: str) -> Iterator[Encoded]:
    key = MemberKey(group_id=group_id, member_id=member_id)
    for kind in (CURRENT_ASSIGNMENT, TARGET, MEMBER_METADATA):
        yield encode(kind, key, None)


def _member_key(group: ConsumerGroup, member_id: str) -> MemberKey:
    return MemberKey(group_id=group.group_id, member_id=member_id)


def _metadata(member: ConsumerMember) -> MemberMetadata:
    return MemberMetadata(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(sorted(member.subscribed_names)),
        subscribed_topic_regex=member.subscribed_regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.server_assignor,
    )


def _current(member: ConsumerMember) -> CurrentAssignment:
    return CurrentAssignment(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=member.state.value,
        assigned_partitions=_owned(member.assigned),
        partitions_pending_revocation=_owned(member.pending_revocation),
    )


def _owned(partitions: Mapping[Partition, int]) -> tuple[OwnedPartitions, ...]:
    return tuple(
        OwnedPartitions(
            topic_id=topic_id,
            partitions=indexes,
            assignment_epochs=tuple(partitions[topic_id, index] for index in indexes),
        )
        for topic_id, indexes in by_topic(partitions)
    )
