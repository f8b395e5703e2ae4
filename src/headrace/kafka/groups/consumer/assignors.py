"""How partitions are shared out: what an assignor is given and gives, and the two that the broker knows.

    uniform   every member gets as many partitions as any other, as far as subscriptions allow, and keeps
              what it had before as far as that allows
    range     the partitions of each topic are cut into consecutive ranges, one per member, in the order of
              the members' ids: equal topics are cut at the same places, so that they can be joined

Both give each partition to exactly one subscriber, and the same answer to the same question.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headrace.kafka.groups.consumer.uniform import assign_uniform

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from uuid import UUID

    from headrace.kafka.groups.consumer.state import Partition

    Assignor = Callable[
        [Mapping[str, "Subscriber"], Mapping[UUID, int]],
        Mapping[str, frozenset[Partition]],
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscriber:
    """A member as an assignor sees it."""

    instance_id: str | None = None
    topic_ids: frozenset[UUID]
    """The topics that the member wants, those that exist."""
    previous: frozenset[Partition] = frozenset()
    """What the member was to own until now."""


def assign_range(
    subscribers: Mapping[str, Subscriber], partition_counts: Mapping[UUID, int]
) -> Mapping[str, frozenset[Partition]]:
    """Cut each topic into ranges. Static members come first, so that a restart does not reorder them."""
    order = sorted(subscribers, key=lambda member_id: _place_in_line(member_id, subscribers[member_id]))
    shares: dict[str, list[Partition]] = {member_id: [] for member_id in order}
    for topic_id, partition_count in partition_counts.items():
        takers = [member_id for member_id in order if topic_id in subscribers[member_id].topic_ids]
        for number, member_id in enumerate(takers):
            shares[member_id] += ((topic_id, index) for index in _range(partition_count, len(takers), number))
    return {member_id: frozenset(share) for member_id, share in shares.items()}


def _place_in_line(member_id: str, subscriber: Subscriber) -> tuple[bool, str]:
    return subscriber.instance_id is None, subscriber.instance_id or member_id


def _range(partition_count: int, taker_count: int, number: int) -> range:
    """The part of one taker. The first ones get one more where it does not come out even."""
    least, extra = divmod(partition_count, taker_count)
    first = number * least + min(number, extra)
    return range(first, first + least + (number < extra))


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": assign_uniform, "range": assign_range}
DEFAULT_ASSIGNOR: Final = "uniform"


def preferred_assignor(wishes: Iterable[str | None]) -> str:
    """The assignor that most members ask for; most members ask for none."""
    votes = Counter(wish for wish in wishes if wish is not None)
    return min(votes, key=lambda name: (-votes[name], name), default=DEFAULT_ASSIGNOR)
