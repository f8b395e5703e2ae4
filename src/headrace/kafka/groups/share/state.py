"""The values that the membership of a share group consists of. They are replaced, never changed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Final

from headrace.kafka.groups.consumer.state import JOIN_EPOCH

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.kafka.groups.consumer.state import Partition, TopicInfo

SHARE_PROTOCOL: Final = "share"


class ShareGroupState(Enum):
    """Where a group stands, under the names that Kafka's tools show."""

    EMPTY = "Empty"
    STABLE = "Stable"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareMember:
    """One share consumer."""

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_names: frozenset[str] = frozenset()
    epoch: int = JOIN_EPOCH
    previous_epoch: int = JOIN_EPOCH
    assigned: frozenset[Partition] = frozenset()
    """The partitions that the member was told to read."""
    session_deadline_ms: int = 0

    def advanced_to(self, epoch: int, target: frozenset[Partition]) -> ShareMember:
        """The member in an epoch, with its part of that epoch's target."""
        if epoch == self.epoch:
            return self
        return replace(self, epoch=epoch, previous_epoch=self.epoch, assigned=target)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGroup:
    """A group, its members in the order in which they joined, and what each of them is to read."""

    group_id: str
    epoch: int = 0
    assignment_epoch: int = 0
    """The epoch for which the target was made."""
    members: Mapping[str, ShareMember] = field(default_factory=dict)
    target: Mapping[str, frozenset[Partition]] = field(default_factory=dict)
    """By member id. A partition may be in several targets."""
    topics: Mapping[str, TopicInfo] = field(default_factory=dict)
    """The topics that members subscribe to, as they were when the group's epoch began."""
    subscribed_names: frozenset[str] = frozenset()
    """All names that members subscribe to, existing or not."""

    @property
    def state(self) -> ShareGroupState:
        """Where the group stands."""
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY

    def is_subscribed(self, topic: str) -> bool:
        """Whether any member wants the topic."""
        return topic in self.subscribed_names

    def with_member(self, member: ShareMember) -> ShareGroup:
        """The group with the member added or replaced."""
        return replace(self, members={**self.members, member.member_id: member})

    def without_members(self, member_ids: set[str]) -> ShareGroup:
        """The group of a new epoch after those have gone."""
        rest = replace(
            self,
            epoch=self.epoch + 1,
            members={key: each for key, each in self.members.items() if key not in member_ids},
            target={key: each for key, each in self.target.items() if key not in member_ids},
        ).with_subscriptions()
        topics = {name: topic for name, topic in self.topics.items() if name in rest.subscribed_names}
        return replace(rest, topics=topics)

    def with_subscriptions(self) -> ShareGroup:
        """The group that knows anew what all its members want."""
        names = frozenset[str]().union(*(each.subscribed_names for each in self.members.values()))
        return replace(self, subscribed_names=names)

    def next_deadline_ms(self) -> int | None:
        """When time itself changes the group next."""
        return min((each.session_deadline_ms for each in self.members.values()), default=None)
