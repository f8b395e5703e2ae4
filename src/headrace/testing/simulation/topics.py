"""Topics, as clients know them."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from headrace.testing.history import TopicPartition

if TYPE_CHECKING:
    from uuid import UUID


class TopicInfo:
    """A topic that was created. There is one object for each, and one for each of its partitions."""

    def __init__(self, name: str, topic_id: UUID, partition_count: int) -> None:
        self.name = name
        self.topic_id = topic_id
        self.partition_count = partition_count

    @cached_property
    def partitions(self) -> list[Partition]:
        """Its partitions."""
        return [Partition(self, index) for index in range(self.partition_count)]


class Partition:
    """A partition of a topic."""

    __slots__ = ("index", "label", "topic")

    def __init__(self, topic: TopicInfo, index: int) -> None:
        self.topic = topic
        self.index = index
        self.label = TopicPartition(f"{topic.name}/{str(topic.topic_id)[:8]}", index)
        """What histories call it. A topic that is made anew under its old name is another one."""

    def __repr__(self) -> str:
        return str(self.label)
