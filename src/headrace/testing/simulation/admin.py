"""An administrator, who asks until the answer is clear."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kio.schema.errors import ErrorCode

from headrace.kafka.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from headrace.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from headrace.testing.simulation.client import Client, error_of
from headrace.testing.simulation.topics import TopicInfo

if TYPE_CHECKING:
    from collections.abc import Mapping

FIRST_METADATA_VERSION_WITH_IDS: Final = 10
ANY_TIME: Final = {"message.timestamp.after.max.ms": str(2**63 - 1)}
"""Clocks jump in these stories, and records are not to be refused for it."""


class Admin(Client):
    """Creates topics. Its requests don't arrive late: one that deletes a topic would hit the next one."""

    is_prompt = True

    async def create_topic(
        self, name: str, partition_count: int, config: Mapping[str, str] | None = None
    ) -> TopicInfo:
        """Create a topic, which may be there already if an earlier answer was lost."""
        configs = tuple(CreatableTopicConfig(name=key, value=value) for key, value in (config or {}).items())
        topic = CreatableTopic(
            name=name,
            num_partitions=partition_count,
            replication_factor=1,
            assignments=(),
            configs=configs,
        )
        while True:
            response = await self.request(CreateTopicsRequest(topics=(topic,)))
            error_code = error_of(response.topics[0])
            if error_code in {ErrorCode.none, ErrorCode.topic_already_exists}:
                return await self.describe_topic(name)
            assert error_code is ErrorCode.kafka_storage_error, response
            await self.pause()

    async def describe_topic(self, name: str) -> TopicInfo:
        """The topic's id and partitions."""
        self.speak(MetadataRequest, first=FIRST_METADATA_VERSION_WITH_IDS)
        asked = MetadataRequest(topics=(MetadataRequestTopic(name=name),), allow_auto_topic_creation=False)
        topic = (await self.request(asked)).topics[0]
        assert error_of(topic) is ErrorCode.none, topic
        return TopicInfo(name, topic.topic_id, len(topic.partitions))
