"""Administrators at work: they delete records, and make, fill and delete a topic again and again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kio.schema.errors import ErrorCode

from headrace.kafka.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from headrace.kafka.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from headrace.testing.history import Deletion, Outcome
from headrace.testing.simulation.admin import ANY_TIME, Admin
from headrace.testing.simulation.client import error_of
from headrace.testing.simulation.consumers import LATEST, Reader
from headrace.testing.simulation.network import ConnectionLost
from headrace.testing.simulation.producers import IdempotentProducer

if TYPE_CHECKING:
    from random import Random

    from headrace.testing.simulation.client import World
    from headrace.testing.simulation.topics import Partition, TopicInfo

EVERYTHING: Final = 2**63
PACE_S_MAX: Final = 0.5
UNKNOWN_TOPIC: Final = frozenset({ErrorCode.unknown_topic_or_partition, ErrorCode.unknown_topic_id})


class Trimmer(Reader):
    """Deletes records from the beginning of partitions."""

    def __init__(
        self, world: World, name: str, random: Random, partitions: list[Partition], count: int
    ) -> None:
        super().__init__(world, name, random, is_read_committed=False)
        self._partitions = partitions
        self._left = count
        self.deleted_below: dict[Partition, int] = {}
        """What has been acknowledged."""

    async def run(self) -> None:
        """Delete, so many times."""
        for _ in range(self._left):
            await self.loop.sleep(self.random.uniform(0, PACE_S_MAX))
            partition = self.random.choice(self._partitions)
            await self._trim(partition, await self.offset_at(partition, LATEST))

    async def _trim(self, partition: Partition, end_offset: int) -> None:
        below = self.random.randint(0, end_offset)
        began = self.history.tick()
        asked = DeleteRecordsPartition(partition_index=partition.index, offset=below)
        topic = DeleteRecordsTopic(name=partition.topic.name, partitions=(asked,))
        try:
            response = await self.try_request(DeleteRecordsRequest(topics=(topic,), timeout_ms=30_000))
        except ConnectionLost:
            outcome = Outcome.UNKNOWN
        else:
            answer = response.topics[0].partitions[0]
            outcome = Outcome.OK if error_of(answer) is ErrorCode.none else Outcome.UNKNOWN
            assert error_of(answer) in {ErrorCode.none, ErrorCode.kafka_storage_error}, answer
            if outcome is Outcome.OK:
                assert answer.low_watermark >= below, answer
                self.deleted_below[partition] = max(self.deleted_below.get(partition, 0), below)
        self.trace(f"deleted below {below} of {partition.label}: {outcome.value}")
        self.history.add(
            Deletion(
                process=self.name,
                invoked=began,
                completed=self.history.tick(),
                outcome=outcome,
                partition=partition.label,
                below_offset=below,
            )
        )


class Rebuilder(Admin):
    """Makes a topic, fills it, deletes it, and makes it again: each time it begins empty, at offset 0."""

    def __init__(self, world: World, name: str, random: Random, count: int) -> None:
        super().__init__(world, name, random)
        self._left = count
        self.last: TopicInfo | None = None
        """The topic that is there at the end."""

    async def run(self) -> None:
        """Do so, so many times."""
        for number in range(self._left):
            topic = await self.create_topic("rebuilt", 1, ANY_TIME)
            assert self.last is None or topic.topic_id != self.last.topic_id, "a deleted topic is back"
            self.last = topic
            producer = IdempotentProducer(
                self.world, f"{self.name}-{number}", self.random, topic.partitions, self.random.randint(1, 4)
            )
            producer.is_prompt = True
            await producer.run()
            assert producer.first_offset == 0, f"a new topic begins at offset {producer.first_offset}"
            if number + 1 < self._left:
                await self._delete(topic)

    async def _delete(self, topic: TopicInfo) -> None:
        """Delete the topic, by its name or by its id, until it is gone."""
        for partition in topic.partitions:
            self.history.add(
                Deletion(
                    process=self.name,
                    invoked=self.history.tick(),
                    completed=self.history.tick(),
                    outcome=Outcome.UNKNOWN,
                    partition=partition.label,
                    below_offset=EVERYTHING,
                )
            )
        self.speak(DeleteTopicsRequest)
        by_id = self.version(DeleteTopicsRequest) >= 6 and self.random.random() < 0.5
        state = DeleteTopicState(
            name=None if by_id else topic.name, topic_id=topic.topic_id if by_id else None
        )
        request = DeleteTopicsRequest(topics=(state,), topic_names=(topic.name,), timeout_ms=30_000)
        while True:
            answer = (await self.request(request)).responses[0]
            self.trace(f"deleted {topic.name}: {error_of(answer).name}")
            if error_of(answer) in {ErrorCode.none, *UNKNOWN_TOPIC}:
                return
            assert error_of(answer) is ErrorCode.kafka_storage_error, answer
            await self.pause()
