"""The uniform assignor: equal numbers of partitions, and as few moves as that takes.

1. Every member keeps what it had, as far as the topic is still there and still wanted.
2. What is left goes to the least loaded subscriber of its topic, topics with few subscribers first.
3. While some member has at least two partitions more than another that could take one over, one is moved.
   "Could take over" includes chains: the first hands one to a second, which hands another one to a third.

Step 3 ends because each move makes the sum of the squared loads smaller. When no chain is left, the loads
are as equal as subscriptions allow: no other assignment has a smaller maximum. Where all members want
the same topics, which is the usual case, everybody could take over anything, and chains are not looked for.
"""

from __future__ import annotations

import heapq
from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from uuid import UUID

    from headrace.kafka.groups.consumer.assignors import Subscriber
    from headrace.kafka.groups.consumer.state import Partition

CHAIN_COUNT_MAX: Final = 10_000
"""After so many moves in chains the loads count as equal enough."""


def assign_uniform(
    subscribers: Mapping[str, Subscriber], partition_counts: Mapping[UUID, int]
) -> Mapping[str, frozenset[Partition]]:
    """Share out all partitions evenly."""
    shares = _Shares(subscribers, partition_counts)
    shares.keep_previous()
    shares.hand_out_rest()
    if shares.is_homogeneous:
        shares.level()
    else:
        shares.level_by_chains()
    return shares.result()


class _Shares:
    """An assignment in the making."""

    def __init__(self, subscribers: Mapping[str, Subscriber], partition_counts: Mapping[UUID, int]) -> None:
        self._order = sorted(subscribers)
        self._subscribers = subscribers
        self._counts = partition_counts
        self._owners: dict[Partition, str] = {}
        self._loads = dict.fromkeys(self._order, 0)
        self._by_topic: dict[str, dict[UUID, list[int]]] = {member_id: {} for member_id in self._order}
        self._takers = {
            topic_id: [each for each in self._order if topic_id in subscribers[each].topic_ids]
            for topic_id in partition_counts
        }

    @property
    def is_homogeneous(self) -> bool:
        """Whether everybody wants the same topics."""
        return len({subscriber.topic_ids for subscriber in self._subscribers.values()}) <= 1

    def keep_previous(self) -> None:
        for member_id in self._order:
            subscriber = self._subscribers[member_id]
            for topic_id, index in sorted(subscriber.previous, key=_sort_key):
                is_there = index < self._counts.get(topic_id, 0) and topic_id in subscriber.topic_ids
                if is_there and (topic_id, index) not in self._owners:
                    self._give((topic_id, index), member_id)

    def hand_out_rest(self) -> None:
        topic_ids = sorted(self._takers, key=lambda each: (len(self._takers[each]), each.int))
        for topic_id in topic_ids:
            heap = [(self._loads[each], each) for each in self._takers[topic_id]]
            heapq.heapify(heap)
            free = (index for index in range(self._counts[topic_id]) if (topic_id, index) not in self._owners)
            for index in free if heap else ():
                load, member_id = heap[0]
                self._give((topic_id, index), member_id)
                heapq.heapreplace(heap, (load + 1, member_id))

    def level(self) -> None:
        """Let those who have most give to those who have least, where anybody may have anything."""
        if not self._order:
            return
        least, extra_count = divmod(sum(self._loads.values()), len(self._order))
        # Those who have most keep the partitions that don't come out even, so that these need not move.
        by_load = sorted(self._order, key=lambda each: -self._loads[each])
        quotas = {each: least + (rank < extra_count) for rank, each in enumerate(by_load)}
        wanting = deque(each for each in by_load for _ in range(quotas[each] - self._loads[each]))
        for giver in by_load:
            for _ in range(self._loads[giver] - quotas[giver]):
                self._move(self._topic_to_give(giver, self._by_topic[giver]), giver, wanting.popleft())

    def level_by_chains(self) -> None:
        chain_count = 0
        is_moving = True
        while is_moving and chain_count < CHAIN_COUNT_MAX:
            is_moving = False
            for giver in sorted(self._order, key=lambda each: -self._loads[each]):
                while chain_count < CHAIN_COUNT_MAX and self._give_by_chain(giver):
                    is_moving = True
                    chain_count += 1

    def result(self) -> Mapping[str, frozenset[Partition]]:
        return {
            member_id: frozenset(
                (topic_id, index) for topic_id, indexes in by_topic.items() for index in indexes
            )
            for member_id, by_topic in self._by_topic.items()
        }

    def _give_by_chain(self, giver: str) -> bool:
        """Take one partition off the giver, towards the least loaded member within reach."""
        came_from: dict[str, tuple[str, UUID]] = {}
        seen_topics: set[UUID] = set()
        to_visit = deque([giver])
        while to_visit:
            member_id = to_visit.popleft()
            for topic_id in [each for each in self._by_topic[member_id] if each not in seen_topics]:
                seen_topics.add(topic_id)
                for taker in self._takers[topic_id]:
                    if taker != giver and taker not in came_from:
                        came_from[taker] = (member_id, topic_id)
                        to_visit.append(taker)
        receiver = min(came_from, key=lambda each: self._loads[each], default=giver)
        if self._loads[receiver] + 2 > self._loads[giver]:
            return False
        while receiver != giver:
            passer, topic_id = came_from[receiver]
            self._move(topic_id, passer, receiver)
            receiver = passer
        return True

    def _topic_to_give(self, giver: str, topic_ids: Iterable[UUID]) -> UUID:
        """The topic of which the giver has most: topics are to be spread, too."""
        return max(topic_ids, key=lambda each: (len(self._by_topic[giver][each]), each.int))

    def _give(self, partition: Partition, member_id: str) -> None:
        topic_id, index = partition
        self._owners[partition] = member_id
        self._loads[member_id] += 1
        self._by_topic[member_id].setdefault(topic_id, []).append(index)

    def _move(self, topic_id: UUID, giver: str, receiver: str) -> None:
        # What came last goes first: it was never told to its owner.
        indexes = self._by_topic[giver][topic_id]
        index = indexes.pop()
        if not indexes:
            del self._by_topic[giver][topic_id]
        self._loads[giver] -= 1
        self._give((topic_id, index), receiver)


def _sort_key(partition: Partition) -> tuple[int, int]:
    return partition[0].int, partition[1]
