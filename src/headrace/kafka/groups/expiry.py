"""Which committed offsets and which groups have outlived their use.

An offset is kept as long as its group has a member that reads the topic, and for the retention time after
that: from when the last member left, or from the commit itself where that is later or nothing else is
known. Groups of the classic protocol are left alone while they have members. An offset that a running
transaction may still change is left alone, too. A group ends when it has neither members nor offsets. Share
groups commit no offsets: how far they have come is kept elsewhere, and they stay until they are deleted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.kafka.groups.offsets import OffsetForgotten
from headrace.kafka.groups.state import Group

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from headrace.kafka.groups.coordinator import GroupCoordinator


def expired_offsets(
    coordinator: GroupCoordinator, emptied_at_ms: Mapping[str, int], committed_before_ms: int
) -> list[OffsetForgotten]:
    """The records that forget what was last needed before that time, by the clock on the wall."""
    return [
        OffsetForgotten(group_id=group_id, topic=topic, partition=partition)
        for group_id, offsets in coordinator.offsets.items()
        if not _has_classic_members(coordinator, group_id)
        and emptied_at_ms.get(group_id, committed_before_ms) <= committed_before_ms
        for (topic, partition), committed in offsets.items()
        if committed.committed_at_ms <= committed_before_ms
        and not coordinator.is_subscribed(group_id, topic)
        and not coordinator.pending.is_pending(group_id, topic, partition)
    ]


def abandoned_groups(coordinator: GroupCoordinator, busy: Collection[str]) -> list[str]:
    """Groups that have nothing and for which nothing is on its way."""
    return [
        group_id
        for group_id in (*coordinator.groups, *coordinator.consumer_groups)
        if coordinator.is_empty(group_id) and group_id not in coordinator.offsets and group_id not in busy
    ]


def _has_classic_members(coordinator: GroupCoordinator, group_id: str) -> bool:
    return isinstance(coordinator.group(group_id), Group) and not coordinator.is_empty(group_id)
