"""The simple assignor: which members of a share group read which partitions.

Topics that the same members want are shared out together. Where P partitions are wanted by M members:

1. Each partition gets ceil(M / P) members: one, or more where there are more members than partitions.
2. That makes P * ceil(M / P) places, of which each member gets equally many, or one more than another.
3. Members keep what they had as far as 1 and 2 allow; those that have most keep the places that don't come
   out even. What is left over goes round among those that have room.

Where all that have room read the partition already, another member takes it and hands over one of its own. It
has one that they don't read: it is full, and members have equally many when they are full, give or take one.

The same question has the same answer, and whoever asks again with the answer gets it back.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from headrace.kafka.groups.consumer.assignors import Subscriber
    from headrace.kafka.groups.consumer.state import Partition


def assign_simple(
    subscribers: Mapping[str, Subscriber], partition_counts: Mapping[UUID, int]
) -> Mapping[str, frozenset[Partition]]:
    """Share out all partitions, each to as many members as it takes that nobody is idle."""
    shares: dict[str, set[Partition]] = {member_id: set() for member_id in sorted(subscribers)}
    for takers, partitions in _pools(subscribers, partition_counts):
        for member_id, share in _share_out(takers, partitions, subscribers, shares).items():
            shares[member_id] |= share
    return {member_id: frozenset(share) for member_id, share in shares.items()}


def _pools(
    subscribers: Mapping[str, Subscriber], partition_counts: Mapping[UUID, int]
) -> list[tuple[tuple[str, ...], list[Partition]]]:
    """Who wants what: members, and the partitions that all of them and nobody else want."""
    pools: dict[tuple[str, ...], list[Partition]] = {}
    order = sorted(subscribers)
    for topic_id in sorted(partition_counts):
        takers = tuple(each for each in order if topic_id in subscribers[each].topic_ids)
        partitions = ((topic_id, index) for index in range(partition_counts[topic_id]))
        pools.setdefault(takers, []).extend(partitions)
    return [(takers, partitions) for takers, partitions in pools.items() if takers and partitions]


def _share_out(
    takers: Sequence[str],
    partitions: Sequence[Partition],
    subscribers: Mapping[str, Subscriber],
    elsewhere: Mapping[str, set[Partition]],
) -> Mapping[str, set[Partition]]:
    pool = _Pool(partitions, {each: subscribers[each].previous for each in takers})
    # Who has less of other topics comes first where it does not come out even.
    pool.cut(sorted(takers, key=lambda each: (len(elsewhere[each]), each)))
    pool.fill()
    return pool.held


class _Pool:
    """An assignment in the making, of partitions that the same members want."""

    def __init__(self, partitions: Sequence[Partition], previous: Mapping[str, frozenset[Partition]]) -> None:
        self.held: dict[str, set[Partition]] = {member_id: set() for member_id in previous}
        self._partitions = partitions
        self._readers: dict[Partition, set[str]] = {partition: set() for partition in partitions}
        for member_id, share in previous.items():
            for partition in share:
                if partition in self._readers:
                    self._give(partition, member_id)
        self._reader_count = -(-len(previous) // len(partitions))
        self._quotas: dict[str, int] = {}

    def cut(self, order: Sequence[str]) -> None:
        """Take away what is too much: of a partition first, then of a member."""
        for partition in self._partitions:
            readers = sorted(self._readers[partition], key=lambda each: (-len(self.held[each]), each))
            for member_id in readers[: max(0, len(readers) - self._reader_count)]:
                self._take(partition, member_id)
        least, extra_count = divmod(self._reader_count * len(self._partitions), len(order))
        by_load = sorted(order, key=lambda each: -len(self.held[each]))
        self._quotas = {each: least + (rank < extra_count) for rank, each in enumerate(by_load)}
        for member_id in order:
            for partition in sorted(self.held[member_id])[self._quotas[member_id] :]:
                self._take(partition, member_id)

    def fill(self) -> None:
        """Give what is left to those that have room, in turn."""
        room = deque(each for each, quota in self._quotas.items() if len(self.held[each]) < quota)
        for partition in self._partitions:
            while len(self._readers[partition]) < self._reader_count:
                taker = next((each for each in room if each not in self._readers[partition]), None)
                if taker is None:
                    taker = room[0]
                    self._give(self._swapped(partition, taker), taker)
                else:
                    self._give(partition, taker)
                room.remove(taker)
                if len(self.held[taker]) < self._quotas[taker]:
                    room.append(taker)

    def _swapped(self, partition: Partition, taker: str) -> Partition:
        """Have another member read the partition, and return one that it reads for the taker instead."""
        giver = next(each for each in self.held if each not in self._readers[partition])
        instead = min(self.held[giver] - self.held[taker])
        self._take(instead, giver)
        self._give(partition, giver)
        return instead

    def _give(self, partition: Partition, member_id: str) -> None:
        self._readers[partition].add(member_id)
        self.held[member_id].add(partition)

    def _take(self, partition: Partition, member_id: str) -> None:
        self._readers[partition].remove(member_id)
        self.held[member_id].remove(partition)
