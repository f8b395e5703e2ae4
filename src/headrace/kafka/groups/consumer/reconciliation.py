"""How a member is led to its target, one heartbeat at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.kafka.groups.consumer.state import MemberState

if TYPE_CHECKING:
    from collections.abc import Collection

    from headrace.kafka.groups.consumer.state import ConsumerGroup, ConsumerMember, Partition


def reconcile(
    group: ConsumerGroup, member: ConsumerMember, owned: Collection[Partition] | None, now_ms: int
) -> ConsumerMember:
    """The member after the step that it can take now.

    `owned` is what the member says that it owns, None if it does not say.
    """
    if member.is_reconciled_to(group.assignment_epoch):
        return member
    if member.state is MemberState.UNREVOKED_PARTITIONS and _holds_any(owned, member.pending_revocation):
        return member
    return _next_step(group, member, owned, now_ms)


def _next_step(
    group: ConsumerGroup, member: ConsumerMember, owned: Collection[Partition] | None, now_ms: int
) -> ConsumerMember:
    target = group.target.get(member.member_id, frozenset())
    kept = {partition: epoch for partition, epoch in member.assigned.items() if partition in target}
    to_revoke = {partition: epoch for partition, epoch in member.assigned.items() if partition not in target}
    if to_revoke and _holds_any(owned, to_revoke):
        return replace(
            member,
            state=MemberState.UNREVOKED_PARTITIONS,
            assigned=kept,
            pending_revocation=to_revoke,
            revocation_deadline_ms=now_ms + member.rebalance_timeout_ms,
        )
    missing = target.difference(kept)
    taken = _taken_by_others(group, member) if missing else {}
    given = {partition: group.assignment_epoch for partition in missing if partition not in taken}
    is_complete = len(kept) + len(given) == len(target)
    return replace(
        member.advanced_to(group.assignment_epoch),
        state=MemberState.STABLE if is_complete else MemberState.UNRELEASED_PARTITIONS,
        assigned={**kept, **given},
        pending_revocation={},
        revocation_deadline_ms=None,
    )


def _holds_any(owned: Collection[Partition] | None, partitions: Collection[Partition]) -> bool:
    """Whether the member may still hold one of them: a member that does not say may hold them all."""
    return owned is None or any(partition in partitions for partition in owned)


def _taken_by_others(group: ConsumerGroup, member: ConsumerMember) -> dict[Partition, int]:
    taken: dict[Partition, int] = {}
    for other in group.members.values():
        if other.member_id != member.member_id:
            taken.update(other.owned)
    return taken
