"""Topics, as clients know them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.testing.history import TopicPartition

if TYPE_CHECKING:
    from uuid import UUID


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic that was created."""

    name: str
    topic_id: UUID
    partition_count: int

    @property
    def partitions(self) -> list[Partition]:
        """Its partitions."""
        return [Partition(self, index) for index in range(self.partition_count)]


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition of a topic."""

    topic: TopicInfo
    index: int

    @property
    def label(self) -> TopicPartition:
        """What histories call it. A topic that is made anew under its old name is another one."""
        return TopicPartition(f"{self.topic.name}/{str(self.topic.topic_id)[:8]}", self.index)
