"""Consumers of a queue, and whose turn it is.

Those of the highest priority come first. Among those of one priority it goes round: whoever got a message
moves behind the others. With a single active consumer, the one that came first among those there are is
given everything, and the others wait for it to go.

A consumer takes a message when its connection is not behind, its channel's flow is on, and its prefetch
(counted by consumer), and that of its channel (counted over all its consumers), leave room. Whoever needs no
acknowledgement has no prefetch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.queue.channel import Channel
    from headrace.queue.work_queue import WorkQueue


class Consumer:
    """One consumer of one queue."""

    __slots__ = (
        "channel",
        "is_exclusive",
        "no_ack",
        "prefetch_count",
        "priority",
        "queue",
        "tag",
        "unacked_count",
    )

    def __init__(  # What basic.consume says.
        self,
        queue: WorkQueue,
        channel: Channel,
        tag: str,
        *,
        no_ack: bool,
        is_exclusive: bool,
        priority: int,
        prefetch_count: int,
    ) -> None:
        self.queue = queue
        self.channel = channel
        self.tag = tag
        self.no_ack = no_ack
        self.is_exclusive = is_exclusive
        self.priority = priority
        self.prefetch_count = prefetch_count
        """0 for no limit."""
        self.unacked_count = 0

    @property
    def has_room(self) -> bool:
        """Whether it takes another message now."""
        channel = self.channel
        if channel.is_halted or channel.connection.is_paused:
            return False
        if self.no_ack:
            return True
        if self.prefetch_count and self.unacked_count >= self.prefetch_count:
            return False
        return not channel.prefetch_count or channel.unacked_count < channel.prefetch_count


class Consumers:
    """All consumers of a queue, the one whose turn it is first within each priority."""

    __slots__ = ("_is_one_priority", "_is_single_active", "active", "all")

    def __init__(self, *, is_single_active: bool) -> None:
        self._is_single_active = is_single_active
        self._is_one_priority = True
        self.all: list[Consumer] = []
        self.active: Consumer | None = None
        """The one that gets everything, where a single one is active."""

    def add(self, consumer: Consumer) -> None:
        """Put a new one behind those of its priority."""
        index = len(self.all)
        while index and self.all[index - 1].priority < consumer.priority:
            index -= 1
        self.all.insert(index, consumer)
        self._is_one_priority = self.all[0].priority == self.all[-1].priority
        if self._is_single_active and self.active is None:
            self.active = consumer

    def remove(self, consumer: Consumer) -> None:
        """Let one go; the next one becomes active."""
        self.all.remove(consumer)
        self._is_one_priority = not self.all or self.all[0].priority == self.all[-1].priority
        if self.active is consumer:
            self.active = self.all[0] if self.all else None

    def next(self) -> Consumer | None:
        """Who takes the next message, if anybody does. It then moves behind its equals."""
        if self._is_single_active:
            return self.active if self.active is not None and self.active.has_room else None
        everyone = self.all
        for index, consumer in enumerate(everyone):
            if consumer.has_room:
                if self._is_one_priority:
                    everyone.append(everyone.pop(index))
                else:
                    self._move_back(index, consumer)
                return consumer
        return None

    def _move_back(self, index: int, consumer: Consumer) -> None:
        end = index + 1
        while end < len(self.all) and self.all[end].priority == consumer.priority:
            end += 1
        self.all.insert(end - 1, self.all.pop(index))
