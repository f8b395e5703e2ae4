"""The topics that there are, as consumer groups see them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from headrace.kafka.groups.consumer.state import TopicInfo

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.log.store import LogStore


class SubscribableTopics(Mapping[str, TopicInfo]):
    """By name. Always those that the store has now."""

    def __init__(self, store: LogStore) -> None:
        self._store = store

    def __getitem__(self, name: str) -> TopicInfo:
        topic = self._store.topics[name]
        return TopicInfo(topic.topic_id, len(topic.partitions))

    def __contains__(self, name: object) -> bool:
        return name in self._store.topics

    def __iter__(self) -> Iterator[str]:
        return iter(self._store.topics)

    def __len__(self) -> int:
        return len(self._store.topics)
