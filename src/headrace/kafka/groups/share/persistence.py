"""What of a share group's membership is written down when it changes, in Kafka's own formats.

The records and their order are those of consumer groups, with keys of their own. Sessions are not written:
after a restart everybody has a full one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.kafka.groups.record_codec import (
    SHARE_CURRENT_ASSIGNMENT,
    SHARE_GROUP_EPOCH,
    SHARE_MEMBER_METADATA,
    SHARE_TARGET,
    SHARE_TARGET_EPOCH,
    encode,
)
from headrace.kafka.groups.record_schemas import (
    GroupKey,
    MemberKey,
    ShareCurrentAssignment,
    ShareGroupEpoch,
    ShareMemberMetadata,
    Target,
    TargetEpoch,
    TargetPartitions,
)
from headrace.kafka.groups.topic_partitions import by_topic, topics_hash

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from headrace.kafka.groups.consumer.state import Partition
    from headrace.kafka.groups.record_codec import Encoded
    from headrace.kafka.groups.share.state import ShareGroup, ShareMember

STABLE: Final = 0
"""The state of all members, by the numbers of Kafka's records."""


def share_change(before: ShareGroup | None, after: ShareGroup) -> Iterator[Encoded]:
    """The records for a group that has become another or begun."""
    group_key = GroupKey(group_id=after.group_id)
    members = {} if before is None else before.members
    for member_id in members.keys() - after.members.keys():
        yield from _member_tombstones(after.group_id, member_id)
    changed = [member for member in after.members.values() if members.get(member.member_id) is not member]
    for member in changed:
        old = members.get(member.member_id)
        if old is None or _metadata(old) != _metadata(member):
            yield encode(SHARE_MEMBER_METADATA, _member_key(after, member.member_id), _metadata(member))
    if before is None or (before.epoch, before.topics) != (after.epoch, after.topics):
        epoch = ShareGroupEpoch(epoch=after.epoch, metadata_hash=topics_hash(after.topics))
        yield encode(SHARE_GROUP_EPOCH, group_key, epoch)
    yield from _target_change(before, after)
    for member in changed:
        old = members.get(member.member_id)
        if old is None or _current(old) != _current(member):
            yield encode(SHARE_CURRENT_ASSIGNMENT, _member_key(after, member.member_id), _current(member))


def share_tombstones(group: ShareGroup) -> Iterator[Encoded]:
    """The records for a group that is no more."""
    for member_id in group.members:
        yield from _member_tombstones(group.group_id, member_id)
    yield encode(SHARE_TARGET_EPOCH, GroupKey(group_id=group.group_id), None)
    yield encode(SHARE_GROUP_EPOCH, GroupKey(group_id=group.group_id), None)


def _target_change(before: ShareGroup | None, after: ShareGroup) -> Iterator[Encoded]:
    known = {} if before is None else before.target
    if known is not after.target:
        for member_id, partitions in after.target.items():
            if known.get(member_id) != partitions:
                target = Target(topic_partitions=_partitions(partitions))
                yield encode(SHARE_TARGET, _member_key(after, member_id), target)
    if before is None or before.assignment_epoch != after.assignment_epoch:
        epoch = TargetEpoch(assignment_epoch=after.assignment_epoch)
        yield encode(SHARE_TARGET_EPOCH, GroupKey(group_id=after.group_id), epoch)


def _member_tombstones(group_id: str, member_id: str) -> Iterator[Encoded]:
    key = MemberKey(group_id=group_id, member_id=member_id)
    for kind in (SHARE_CURRENT_ASSIGNMENT, SHARE_TARGET, SHARE_MEMBER_METADATA):
        yield encode(kind, key, None)


def _member_key(group: ShareGroup, member_id: str) -> MemberKey:
    return MemberKey(group_id=group.group_id, member_id=member_id)


def _metadata(member: ShareMember) -> ShareMemberMetadata:
    return ShareMemberMetadata(
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(sorted(member.subscribed_names)),
    )


def _current(member: ShareMember) -> ShareCurrentAssignment:
    return ShareCurrentAssignment(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=STABLE,
        assigned_partitions=_partitions(member.assigned),
    )


def _partitions(partitions: Iterable[Partition]) -> tuple[TargetPartitions, ...]:
    return tuple(
        TargetPartitions(topic_id=topic_id, partitions=indexes) for topic_id, indexes in by_topic(partitions)
    )
