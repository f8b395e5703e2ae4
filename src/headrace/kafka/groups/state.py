"""The values that a group consists of. They are replaced, never changed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


class GroupState(Enum):
    """Where a group stands, under the names that Kafka's tools show."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


Token = object
"""Stands for a request that waits for its answer; only its identity matters here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """A way to share out partitions that a member knows, and what it says about itself."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One consumer."""

    member_id: str
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[Protocol, ...]
    session_deadline_ms: int
    """When the member counts as dead, unless it is waiting for an answer."""
    join_token: Token | None = None
    sync_token: Token | None = None
    has_synced: bool = False
    """Whether the member has asked for its assignment in this generation."""
    assignment: bytes = b""

    @property
    def is_waiting(self) -> bool:
        """Whether the member waits for an answer from the broker."""
        return self.join_token is not None or self.sync_token is not None

    def metadata_for(self, protocol_name: str | None) -> bytes:
        """What the member says about itself under a protocol."""
        return next((each.metadata for each in self.protocols if each.name == protocol_name), b"")

    def seen(self, now_ms: int) -> Member:
        """The member, alive now."""
        return replace(self, session_deadline_ms=now_ms + self.session_timeout_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A group and its members, in the order in which they joined."""

    group_id: str
    state: GroupState = GroupState.EMPTY
    generation_id: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader_id: str | None = None
    members: Mapping[str, Member] = field(default_factory=dict)
    pending_ids: Mapping[str, int] = field(default_factory=dict)
    """Member ids that were given out and not used yet, and when they lapse."""
    rebalance_deadline_ms: int | None = None
    """When the present phase of a rebalance ends, whoever is missing."""
    join_not_before_ms: int | None = None
    """An empty group waits this long for more members before its first generation."""

    @property
    def leader(self) -> Member | None:
        """The member that shares out the partitions."""
        return None if self.leader_id is None else self.members.get(self.leader_id)

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest that any member may take to join."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def member_with_instance(self, instance_id: str | None) -> Member | None:
        """The static member of that instance id."""
        if instance_id is None:
            return None
        return next((each for each in self.members.values() if each.instance_id == instance_id), None)

    def with_member(self, member: Member) -> Group:
        """The group with the member added or replaced."""
        return replace(self, members={**self.members, member.member_id: member})

    def without_members(self, member_ids: set[str]) -> Group:
        """The group after those have gone."""
        rest = {key: member for key, member in self.members.items() if key not in member_ids}
        leader_id = self.leader_id if self.leader_id in rest else next(iter(rest), None)
        return replace(self, members=rest, leader_id=leader_id)

    def with_pending(self, member_id: str, deadline_ms: int) -> Group:
        """The group with a member id given out."""
        return replace(self, pending_ids={**self.pending_ids, member_id: deadline_ms})

    def without_pending(self, member_ids: set[str]) -> Group:
        """The group with those ids used or lapsed."""
        rest = {key: deadline for key, deadline in self.pending_ids.items() if key not in member_ids}
        return replace(self, pending_ids=rest)

    def next_deadline_ms(self) -> int | None:
        """When time itself changes the group next."""
        deadlines = [each.session_deadline_ms for each in self.members.values() if not each.is_waiting]
        deadlines += self.pending_ids.values()
        deadlines += [
            each for each in (self.rebalance_deadline_ms, self.join_not_before_ms) if each is not None
        ]
        return min(deadlines, default=None)
