"""Members of a group by KIP-848: the broker shares out the partitions, and each hears of its part in time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from kio.schema.errors import ErrorCode

from headrace.kafka.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from headrace.kafka.messages.offset_commit import OffsetCommitRequest
from headrace.kafka.messages.offset_fetch import OffsetFetchRequest
from headrace.testing.simulation.client import error_of
from headrace.testing.simulation.groups import HEARTBEAT_S, NO_ERROR, REBALANCE_MS, Member, MustRejoin

if TYPE_CHECKING:
    from random import Random

    from headrace.testing.simulation.client import World
    from headrace.testing.simulation.groups import Group
    from headrace.testing.simulation.topics import Partition

FIRST_VERSION_WITH_EPOCHS: Final = 9
JOINING: Final = 0
LEAVING: Final = -1


class ConsumerMember(Member):
    """A member that owns what the broker tells it to, and says so."""

    def __init__(
        self, world: World, name: str, random: Random, group: Group, *, is_read_committed: bool
    ) -> None:
        super().__init__(world, name, random, group, is_read_committed=is_read_committed)
        self.speak(OffsetCommitRequest, first=FIRST_VERSION_WITH_EPOCHS)
        self.speak(OffsetFetchRequest, first=FIRST_VERSION_WITH_EPOCHS)
        self._target: list[Partition] = []
        self._says_all = True
        """Whether the next heartbeat says everything: the first one, and one after an error."""

    async def join(self) -> None:
        """Join with nothing, under an id of its own."""
        self.member_id = str(UUID(int=self.random.getrandbits(128)))
        self.generation = JOINING
        self.positions = {}
        self._target = []
        self._says_all = True
        await self.beat()

    async def beat(self) -> None:
        """Say what is owned, and take what is assigned."""
        self.heartbeat_due_s = self.loop.time() + HEARTBEAT_S
        began = self.history.tick()
        response = await self.try_request(
            ConsumerGroupHeartbeatRequest(
                group_id=self.shared.name,
                member_id=self.member_id,
                member_epoch=self.generation,
                rebalance_timeout_ms=REBALANCE_MS if self._says_all else -1,
                subscribed_topic_names=self._topic_names() if self._says_all else None,
                topic_partitions=self._owned(),
            )
        )
        self._says_all = error_of(response) is not NO_ERROR
        self.check(error_of(response))
        if self._says_all:
            return
        self.generation = response.member_epoch
        if response.assignment is not None:
            self._target = self._partitions(response.assignment.topic_partitions)
        await self._own(began)

    async def leave(self) -> None:
        """Leave the group."""
        await self.try_request(
            ConsumerGroupHeartbeatRequest(
                group_id=self.shared.name, member_id=self.member_id, member_epoch=LEAVING
            )
        )

    def check(self, error_code: Any) -> None:
        """Raise MustRejoin for the errors that a member has to expect."""
        if error_code is ErrorCode.stale_member_epoch:
            # A heartbeat will tell the new epoch.
            self.heartbeat_due_s = 0.0
            return
        if error_code in {ErrorCode.fenced_member_epoch, ErrorCode.unknown_member_id}:
            self.trace(f"has to join again: {error_code.name}")
            raise MustRejoin
        expected = {NO_ERROR, ErrorCode.kafka_storage_error, ErrorCode.coordinator_not_available}
        assert error_code in expected, error_code

    async def _own(self, began: int) -> None:
        """Give up what is assigned no more, and take what is."""
        given_up = [each for each in self.positions if each not in self._target]
        for partition in given_up:
            del self.positions[partition]
        added = [each for each in self._target if each not in self.positions]
        if added:
            self.note_assignment(added, began)
        for partition in added:
            self.place(partition, await self.committed(partition) or 0)
        self.note_reached()
        if given_up or added:
            # Others may have what was given up once the broker has heard of it.
            self.heartbeat_due_s = 0.0

    def _partitions(self, assigned: tuple[TopicPartitions, ...]) -> list[Partition]:
        numbers = {(topic.topic_id, index) for topic in assigned for index in topic.partitions}
        return [each for each in self.shared.partitions if (each.topic.topic_id, each.index) in numbers]

    def _topic_names(self) -> tuple[str, ...]:
        return tuple(sorted({each.topic.name for each in self.shared.partitions}))

    def _owned(self) -> tuple[TopicPartitions, ...]:
        by_topic: dict[UUID, list[int]] = {}
        for partition in sorted(self.positions, key=str):
            by_topic.setdefault(partition.topic.topic_id, []).append(partition.index)
        return tuple(
            TopicPartitions(topic_id=topic_id, partitions=tuple(sorted(indexes)))
            for topic_id, indexes in by_topic.items()
        )
