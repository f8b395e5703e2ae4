"""The values that a consumer group consists of. They are replaced, never changed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Final
from uuid import UUID

if TYPE_CHECKING:
    from collections.abc import Mapping

Partition = tuple[UUID, int]
"""A topic's id and the partition's number: a topic that is made anew under its old name is another one."""

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
STATIC_LEAVE_EPOCH: Final = -2
"""What a static member says that will be back; and its epoch until it is."""


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """What sharing out has to know about a topic."""

    topic_id: UUID
    partition_count: int


class ConsumerGroupState(Enum):
    """Where a group stands, under the names that Kafka's tools show."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"


class MemberState(Enum):
    """Where a member stands on its way to its target, with the numbers of Kafka's records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMember:
    """One consumer."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    subscribed_names: frozenset[str] = frozenset()
    subscribed_regex: str = ""
    server_assignor: str | None = None
    epoch: int = JOIN_EPOCH
    previous_epoch: int = JOIN_EPOCH
    state: MemberState = MemberState.STABLE
    assigned: Mapping[Partition, int] = field(default_factory=dict)
    """The partitions that the member is told to own, and the epoch in which each was given to it."""
    pending_revocation: Mapping[Partition, int] = field(default_factory=dict)
    """The partitions that the member was told to give up and has not let go."""
    session_deadline_ms: int = 0
    revocation_deadline_ms: int | None = None
    """When the member must have let go."""

    @property
    def owned(self) -> Mapping[Partition, int]:
        """All partitions that nobody else may have."""
        return {**self.assigned, **self.pending_revocation} if self.pending_revocation else self.assigned

    def is_reconciled_to(self, epoch: int) -> bool:
        """Whether the member has reached the target of that epoch."""
        return self.state is MemberState.STABLE and self.epoch == epoch

    def advanced_to(self, epoch: int) -> ConsumerMember:
        """The member in an epoch; it may still say the one before, until it hears of this one."""
        return self if epoch == self.epoch else replace(self, epoch=epoch, previous_epoch=self.epoch)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroup:
    """A group, its members in the order in which they joined, and what each of them is to own."""

    group_id: str
    epoch: int = 0
    assignment_epoch: int = 0
    """The epoch for which the target was made."""
    members: Mapping[str, ConsumerMember] = field(default_factory=dict)
    target: Mapping[str, frozenset[Partition]] = field(default_factory=dict)
    """By member id. No partition is in two targets."""
    assignor: str = ""
    """The assignor that made the target."""
    topics: Mapping[str, TopicInfo] = field(default_factory=dict)
    """The topics that members subscribe to, as they were when the group's epoch began."""
    subscribed_names: frozenset[str] = frozenset()
    """All names that members subscribe to or that their expressions match, existing or not."""
    matches: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """The names that each member's regular expression matches."""
    matched_at_ms: int = 0

    @property
    def state(self) -> ConsumerGroupState:
        """Where the group stands."""
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerGroupState.ASSIGNING
        is_settled = all(each.is_reconciled_to(self.assignment_epoch) for each in self.members.values())
        return ConsumerGroupState.STABLE if is_settled else ConsumerGroupState.RECONCILING

    def member_with_instance(self, instance_id: str | None) -> ConsumerMember | None:
        """The static member of that instance id."""
        if instance_id is None:
            return None
        return next((each for each in self.members.values() if each.instance_id == instance_id), None)

    def subscriptions_of(self, member: ConsumerMember) -> frozenset[str]:
        """The names of the topics that the member wants, existing or not."""
        if not member.subscribed_regex:
            return member.subscribed_names
        return member.subscribed_names | self.matches.get(member.subscribed_regex, frozenset())

    def is_subscribed(self, topic: str) -> bool:
        """Whether any member wants the topic."""
        return topic in self.subscribed_names

    def with_member(self, member: ConsumerMember) -> ConsumerGroup:
        """The group with the member added or replaced."""
        return replace(self, members={**self.members, member.member_id: member})

    def without_members(self, member_ids: set[str]) -> ConsumerGroup:
        """The group of a new epoch after those have gone, and what they had is free."""
        rest = replace(
            self,
            epoch=self.epoch + 1,
            members={key: each for key, each in self.members.items() if key not in member_ids},
            target={key: each for key, each in self.target.items() if key not in member_ids},
        ).with_subscriptions()
        topics = {name: topic for name, topic in self.topics.items() if name in rest.subscribed_names}
        return replace(rest, topics=topics)

    def with_subscriptions(self) -> ConsumerGroup:
        """The group that knows anew what all its members want."""
        expressions = {each.subscribed_regex for each in self.members.values()}
        matches = {text: names for text, names in self.matches.items() if text in expressions}
        names = frozenset[str]().union(*map(self.subscriptions_of, self.members.values()))
        return replace(self, subscribed_names=names, matches=matches)

    def next_deadline_ms(self) -> int | None:
        """When time itself changes the group next."""
        deadlines = [each.session_deadline_ms for each in self.members.values()]
        deadlines += [
            each.revocation_deadline_ms
            for each in self.members.values()
            if each.revocation_deadline_ms is not None
        ]
        return min(deadlines, default=None)
