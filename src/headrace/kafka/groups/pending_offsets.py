"""Offsets that transactions have committed and that count only once the transactions have.

An offset is pending from the record that holds it to the marker that ends its producer's transaction. Of
several offsets for one partition the one that was written last wins, not the one whose transaction ended
last. So what was written before a commit that counts is overtaken by it: it can change nothing any more,
whatever becomes of its transaction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.kafka.groups.offsets import OffsetCommitted

    Key = tuple[str, str, int]


class PendingOffsets:
    """By partition and producer, the offsets that wait for the producer's marker, in the order of the log.

    Not safe to share between threads.
    """

    def __init__(self) -> None:
        # A dictionary keeps the order of insertion, which here is that of the log.
        self._offsets: dict[Key, dict[int, OffsetCommitted]] = {}
        self._keys: dict[int, set[Key]] = {}

    def add(self, producer_id: int, offset: OffsetCommitted) -> None:
        """Take note of an offset that a transaction has committed."""
        key = (offset.group_id, offset.topic, offset.partition)
        self._remove(key, producer_id)
        self._offsets.setdefault(key, {})[producer_id] = offset
        self._keys.setdefault(producer_id, set()).add(key)

    def settle(self, producer_id: int, *, commits: bool) -> list[OffsetCommitted]:
        """Forget the offsets of a producer whose transaction has ended; return those that now count."""
        settled = []
        for key in tuple(self._keys.get(producer_id, ())):
            settled.append(self._offsets[key][producer_id])
            if commits:
                self._overtake(key, list(self._offsets[key]), producer_id)
            self._remove(key, producer_id)
        return settled if commits else []

    def overtake(self, group_id: str, topic: str, partition: int) -> None:
        """Forget what is pending for a partition: something newer has been written that counts."""
        key = (group_id, topic, partition)
        self._overtake(key, list(self._offsets.get(key, ())), None)

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether a transaction that has not ended yet may change the offset of the partition."""
        return (group_id, topic, partition) in self._offsets

    def all(self) -> list[tuple[str, str, int]]:
        """Group, topic and partition of all offsets that are pending."""
        return list(self._offsets)

    def partitions_of(self, group_id: str) -> list[tuple[str, int]]:
        """For which partitions a group has something pending."""
        return [(topic, partition) for group, topic, partition in self._offsets if group == group_id]

    def _overtake(self, key: Key, producer_ids: list[int], by_producer_id: int | None) -> None:
        """Forget what was written before the offset of that producer; all of it where there is none."""
        for producer_id in producer_ids:
            if producer_id == by_producer_id:
                return
            self._remove(key, producer_id)

    def _remove(self, key: Key, producer_id: int) -> None:
        offsets, keys = self._offsets.get(key, {}), self._keys.get(producer_id, set())
        offsets.pop(producer_id, None)
        keys.discard(key)
        if not offsets:
            self._offsets.pop(key, None)
        if not keys:
            self._keys.pop(producer_id, None)
