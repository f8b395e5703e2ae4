"""Who may commit and ask for a group's offsets: living members in their present generation or epoch.

Where a group has no members, anybody may who claims no membership: that is how tools set offsets, and how
consumers work that assign partitions to themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kio.schema.errors import ErrorCode

from headrace.kafka.groups import membership
from headrace.kafka.groups.state import Group, GroupState

if TYPE_CHECKING:
    from collections.abc import Collection

    from headrace.kafka.groups.consumer.state import ConsumerGroup, ConsumerMember, Partition

FIRST_VERSION_WITH_EPOCHS: Final = 9
"""Members of consumer groups commit by this version of OffsetCommit or a later one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Committer:
    """Whoever wants to commit, and for which partitions."""

    group_id: str
    member_id: str = ""
    instance_id: str | None = None
    generation_id: int = -1
    """The generation of the classic protocol, or the member's epoch."""
    is_transactional: bool = False
    api_version: int = FIRST_VERSION_WITH_EPOCHS
    partitions: Collection[Partition] = ()
    """What is to be committed, as far as the topics are known."""

    @property
    def claims_membership(self) -> bool:
        """Whether it says that it is a member."""
        return self.generation_id >= 0 or self.member_id != "" or self.instance_id is not None


def check_commit_to_nothing(committer: Committer) -> ErrorCode:
    """Whether it may commit to a group that is not there yet.

    A member of a group that is gone hears that it is none, and joins again. Kafka would say that there is no
    such group, which clients do not expect and give up on.
    """
    if committer.generation_id < 0:
        return ErrorCode.none
    if committer.api_version < FIRST_VERSION_WITH_EPOCHS or committer.is_transactional:
        return ErrorCode.illegal_generation
    return ErrorCode.unknown_member_id


def check_classic_commit(group: Group, committer: Committer) -> ErrorCode:
    """Whether it may commit to a group of the classic protocol."""
    if group.state is GroupState.EMPTY and committer.generation_id < 0:
        return ErrorCode.none
    # A transaction is guarded by its own epoch; it names the member only where it can.
    if committer.is_transactional and not committer.claims_membership:
        return ErrorCode.none
    error_code = membership.check_member(
        group, committer.member_id, committer.instance_id, committer.generation_id
    )
    is_sharing_out = group.state is GroupState.COMPLETING_REBALANCE and not committer.is_transactional
    return ErrorCode.rebalance_in_progress if is_sharing_out and not error_code.value else error_code


def check_consumer_commit(group: ConsumerGroup, committer: Committer) -> ErrorCode:
    """Whether it may commit to a consumer group.

    A member may still say an earlier epoch of its own, for partitions that it has had since then without a
    break: nobody else can have committed them.
    """
    if committer.generation_id < 0 and not group.members:
        return ErrorCode.none
    if committer.is_transactional and not committer.claims_membership:
        return ErrorCode.none
    member = group.members.get(committer.member_id)
    if member is None:
        return ErrorCode.unknown_member_id
    if committer.api_version < FIRST_VERSION_WITH_EPOCHS and not committer.is_transactional:
        return ErrorCode.unsupported_version
    return _check_epoch(member, committer)


def check_fetch(group: ConsumerGroup, member_id: str | None, member_epoch: int) -> ErrorCode:
    """Whether a member, if the request is from one, may hear the offsets of its group."""
    if not member_id and member_epoch < 0:
        return ErrorCode.none
    member = group.members.get(member_id or "")
    if member is None:
        return ErrorCode.unknown_member_id
    return ErrorCode.none if member_epoch == member.epoch else ErrorCode.stale_member_epoch


def _check_epoch(member: ConsumerMember, committer: Committer) -> ErrorCode:
    if committer.generation_id == member.epoch:
        return ErrorCode.none
    owned = member.owned
    has_had_all = 0 <= committer.generation_id < member.epoch and all(
        owned.get(partition, member.epoch) <= committer.generation_id for partition in committer.partitions
    )
    return ErrorCode.none if has_had_all else ErrorCode.stale_member_epoch
