"""Members of a group by the classic protocol, with faults of real ones: they die, freeze and wake up late.

A member that was frozen past its session timeout does what a zombie does: it commits first and learns later
that its place is taken.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from kio.schema.errors import ErrorCode

from headrace.kafka.messages.heartbeat import HeartbeatRequest
from headrace.kafka.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.kafka.messages.leave_group import LeaveGroupRequest, MemberIdentity
from headrace.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headrace.kafka.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from headrace.kafka.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from headrace.testing.history import Assignment, OffsetCommit, OffsetFetch, Outcome
from headrace.testing.simulation.client import error_of
from headrace.testing.simulation.consumers import Reader
from headrace.testing.simulation.network import ConnectionLost

if TYPE_CHECKING:
    from random import Random

    from headrace.testing.simulation.client import World
    from headrace.testing.simulation.topics import Partition

SESSION_MS: Final = 3_000
REBALANCE_MS: Final = 5_000
HEARTBEAT_S: Final = 0.5
FREEZE_S_MAX: Final = 8.0
NO_ERROR: Final = ErrorCode.none


class MustRejoin(Exception):
    """The member is not what it was any more, and has to join again."""


class Group:
    """What the members of a group share in this story: the partitions, and how far they have come."""

    def __init__(self, name: str, partitions: list[Partition]) -> None:
        self.name = name
        self.partitions = partitions
        self.reached: dict[Partition, int] = dict.fromkeys(partitions, 0)

    def is_done(self, end_offsets: dict[Partition, int]) -> bool:
        """Whether somebody has read each partition to its end."""
        return all(self.reached[each] >= end_offsets[each] for each in self.partitions)


class Member(Reader):
    """A consumer in a group."""

    def __init__(
        self, world: World, name: str, random: Random, group: Group, *, is_read_committed: bool
    ) -> None:
        super().__init__(world, name, random, is_read_committed=is_read_committed)
        self.group = group.name
        self.shared = group
        self.member_id = ""
        self.generation = -1
        self.is_calm = False
        self.is_stopping = False
        self.heartbeat_due_s = 0.0

    async def run(self) -> None:
        """Join, read, commit; and again."""
        while not self.is_stopping:
            try:
                await self.join()
                while not self.is_stopping:
                    await self._work()
            except MustRejoin:
                self.positions.clear()
            except ConnectionLost:
                await self.pause()

    async def join(self) -> None:
        """Join, and be given partitions."""
        protocol = JoinGroupRequestProtocol(name="by-turns", metadata=b"")
        response = await self.try_request(
            JoinGroupRequest(
                group_id=self.shared.name,
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=REBALANCE_MS,
                member_id=self.member_id,
                protocol_type="consumer",
                protocols=(protocol,),
            )
        )
        if error_of(response) is ErrorCode.member_id_required:
            self.member_id = response.member_id
            raise MustRejoin
        self.check(error_of(response))
        self.member_id, self.generation = response.member_id, response.generation_id
        assignments: tuple[SyncGroupRequestAssignment, ...] = ()
        if response.leader == self.member_id:
            assignments = self._assign(sorted(each.member_id for each in response.members))
        await self._sync(assignments)
        await self._take_positions()

    def _assign(self, member_ids: list[str]) -> tuple[SyncGroupRequestAssignment, ...]:
        shares: dict[str, list[int]] = {each: [] for each in member_ids}
        for number in range(len(self.shared.partitions)):
            shares[member_ids[number % len(member_ids)]].append(number)
        return tuple(
            SyncGroupRequestAssignment(member_id=each, assignment=json.dumps(share).encode())
            for each, share in shares.items()
        )

    async def _sync(self, assignments: tuple[SyncGroupRequestAssignment, ...]) -> None:
        began = self.history.tick()
        response = await self.try_request(
            SyncGroupRequest(
                group_id=self.shared.name,
                generation_id=self.generation,
                member_id=self.member_id,
                assignments=assignments,
                protocol_type="consumer",
                protocol_name="by-turns",
            )
        )
        self.check(error_of(response))
        numbers = json.loads(response.assignment or b"[]")
        self.heartbeat_due_s = self.loop.time() + HEARTBEAT_S
        partitions = [self.shared.partitions[number] for number in numbers]
        self.positions = dict.fromkeys(partitions, 0)
        self.note_assignment(partitions, began)

    def note_assignment(self, partitions: list[Partition], began: int) -> None:
        """Take what was assigned."""
        self.trace(f"is given {[str(each.label) for each in partitions]} in {self.generation}")
        self.history.add(
            Assignment(
                process=self.name,
                invoked=began,
                completed=self.history.tick(),
                group=self.shared.name,
                generation=self.generation,
                partitions=tuple(each.label for each in partitions),
            )
        )

    async def _take_positions(self) -> None:
        for partition in tuple(self.positions):
            self.place(partition, await self.committed(partition) or 0)
        self.note_reached()

    def note_reached(self) -> None:
        """Tell the others how far this member has come."""
        for partition, position in self.positions.items():
            self.shared.reached[partition] = max(self.shared.reached[partition], position)

    async def committed(self, partition: Partition) -> int | None:
        """Where the group has come to, if anybody has committed."""
        topic = OffsetFetchRequestTopic(
            name=partition.topic.name,
            topic_id=partition.topic.topic_id,
            partition_indexes=(partition.index,),
        )
        asked = OffsetFetchRequest(
            group_id=self.shared.name,
            topics=(topic,),
            require_stable=True,
            groups=(OffsetFetchRequestGroup(group_id=self.shared.name, topics=(topic,)),),
        )
        while True:
            began = self.history.tick()
            response = await self.try_request(asked)
            answer = (response.groups or (response,))[0].topics[0].partitions[0]
            if error_of(answer) is not ErrorCode.unstable_offset_commit:
                break
            await self.pause()
        assert error_of(answer) is NO_ERROR, answer
        offset = None if answer.committed_offset < 0 else answer.committed_offset
        self.history.add(
            OffsetFetch(
                process=self.name,
                invoked=began,
                completed=self.history.tick(),
                group=self.shared.name,
                partition=partition.label,
                offset=offset,
            )
        )
        return offset

    async def _work(self) -> None:
        if self.loop.time() >= self.heartbeat_due_s:
            await self.beat()
        await self.read_and_commit()
        if not self.is_calm and self.random.random() < 0.06:
            await self._misbehave()
        await self.loop.sleep(self.random.uniform(0.05, 0.2))

    async def read_and_commit(self) -> None:
        """Read on, and commit at times."""
        if self.positions:
            await self.poll(wait_ms=self.random.choice((0, 100)))
            self.note_reached()
        if self.random.random() < 0.3:
            await self.commit()

    async def beat(self) -> None:
        """Tell that the member is alive."""
        self.heartbeat_due_s = self.loop.time() + HEARTBEAT_S
        response = await self.try_request(
            HeartbeatRequest(
                group_id=self.shared.name, generation_id=self.generation, member_id=self.member_id
            )
        )
        self.check(error_of(response))

    async def commit(self) -> None:
        """Commit all positions."""
        if not self.positions:
            return
        committed = dict(self.positions)
        began = self.history.tick()

        def note_unknown() -> None:
            self._note_commit(committed, began, Outcome.UNKNOWN)

        with self.in_doubt(note_unknown):
            try:
                response = await self.try_request(self._commit_request(committed))
            except ConnectionLost:
                note_unknown()
                raise
        error_code = error_of(response.topics[0].partitions[0])
        if error_code is NO_ERROR:
            self._note_commit(committed, began, Outcome.OK)
        elif error_code is ErrorCode.kafka_storage_error:
            self._note_commit(committed, began, Outcome.UNKNOWN)
        else:
            self._note_commit(committed, began, Outcome.FAILED)
        self.check(error_code)

    def _commit_request(self, positions: dict[Partition, int]) -> OffsetCommitRequest:
        topics = tuple(
            OffsetCommitRequestTopic(
                name=partition.topic.name,
                topic_id=partition.topic.topic_id,
                partitions=(
                    OffsetCommitRequestPartition(
                        partition_index=partition.index, committed_offset=position, committed_metadata=""
                    ),
                ),
            )
            for partition, position in positions.items()
        )
        return OffsetCommitRequest(
            group_id=self.shared.name,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            topics=topics,
        )

    def _note_commit(self, positions: dict[Partition, int], began: int, outcome: Outcome) -> None:
        self.trace(f"committed {[(str(each.label), at) for each, at in positions.items()]}: {outcome.value}")
        for partition, position in positions.items():
            self.history.add(
                OffsetCommit(
                    process=self.name,
                    invoked=began,
                    completed=self.history.tick(),
                    outcome=outcome,
                    group=self.shared.name,
                    partition=partition.label,
                    offset=position,
                    generation=self.generation,
                )
            )

    async def _misbehave(self) -> None:
        what = self.random.choice(("freeze", "freeze", "die", "leave"))
        self.trace(f"will {what}")
        if what == "freeze":
            await self.loop.sleep(self.random.uniform(0, FREEZE_S_MAX))
            await self.commit()
        elif what == "die":
            self.disconnect()
            self.member_id = ""
            raise MustRejoin
        else:
            await self.leave()
            raise MustRejoin

    async def leave(self) -> None:
        """Leave the group."""
        member_id, self.member_id = self.member_id, ""
        await self.try_request(
            LeaveGroupRequest(
                group_id=self.shared.name,
                member_id=member_id,
                members=(MemberIdentity(member_id=member_id),),
            )
        )

    def check(self, error_code: Any) -> None:
        """Raise MustRejoin for the errors that a member has to expect."""
        if error_code is NO_ERROR or error_code is ErrorCode.kafka_storage_error:
            return
        if error_code is ErrorCode.unknown_member_id:
            self.member_id = ""
        self.trace(f"has to join again: {error_code.name}")
        expected = (
            ErrorCode.unknown_member_id,
            ErrorCode.illegal_generation,
            ErrorCode.rebalance_in_progress,
            ErrorCode.coordinator_not_available,
        )
        assert error_code in expected, error_code
        raise MustRejoin
