"""Share groups under generated sequences of members, topics, lost answers, restarts and time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from kio.schema.errors import ErrorCode

from headrace.kafka.groups.consumer.state import TopicInfo
from headrace.kafka.groups.coordinator import GroupChanged, GroupCoordinator, GroupGone
from headrace.kafka.groups.loading import GroupLoader, Resumption
from headrace.kafka.groups.persistence import records_of_change
from headrace.kafka.groups.settings import GroupSettings
from headrace.kafka.groups.share.heartbeat import ShareGroupLimits, ShareOccasion
from headrace.kafka.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

if TYPE_CHECKING:
    from headrace.kafka.groups.consumer.state import Partition
    from headrace.kafka.groups.coordinator import Outcome
    from headrace.kafka.groups.share.state import ShareGroup
    from headrace.kafka.messages.share_group_heartbeat import ShareGroupHeartbeatResponse

GROUP = "parcels"
CLIENT_COUNT = 5
SESSION_TIMEOUT_MS = 45_000
TOPICS = ("orders", "refunds", "returns")


@dataclass(eq=False)
class Client:
    """A share consumer: what it believes."""

    name: str
    incarnation: int = 0
    epoch: int = 0
    assigned: frozenset[Partition] = frozenset()
    names: tuple[str, ...] = ("orders",)
    must_say_all: bool = False
    """After an answer that got lost, the next heartbeat says everything."""

    @property
    def member_id(self) -> str:
        return f"{self.name}-{self.incarnation}"

    def begin_anew(self) -> None:
        self.epoch, self.assigned = 0, frozenset()


class ShareGroupMachine(RuleBasedStateMachine):
    """Clients that join, fall silent and come back, against what must always hold."""

    def __init__(self) -> None:
        super().__init__()
        self.coordinator = GroupCoordinator()
        self.now_ms = 0
        self.topics = {"orders": TopicInfo(UUID(int=1), 3), "refunds": TopicInfo(UUID(int=2), 2)}
        self.topic_number = 2
        self.clients = [Client(name=f"c{number}") for number in range(CLIENT_COUNT)]
        self.log: list[tuple[bytes, bytes | None]] = []
        self.group_epoch_seen = 0

    # What happens

    @rule(index=st.integers(0, CLIENT_COUNT - 1), is_answer_lost=st.booleans())
    def heartbeat(self, index: int, is_answer_lost: bool) -> None:
        self._beat(self.clients[index], is_answer_lost=is_answer_lost)

    @rule(
        index=st.integers(0, CLIENT_COUNT - 1),
        names=st.lists(st.sampled_from(TOPICS), min_size=1, max_size=3).map(tuple),
    )
    def subscribe(self, index: int, names: tuple[str, ...]) -> None:
        client = self.clients[index]
        client.names = names
        self._beat(client, says_all=True)

    @rule(index=st.integers(0, CLIENT_COUNT - 1), arrives=st.booleans())
    def leave(self, index: int, arrives: bool) -> None:
        client = self.clients[index]
        if arrives:
            self._send(
                ShareGroupHeartbeatRequest(group_id=GROUP, member_id=client.member_id, member_epoch=-1)
            )
        client.begin_anew()
        client.incarnation += 1

    @rule(topic=st.sampled_from(TOPICS), change=st.sampled_from(["create", "grow", "delete"]))
    def change_topic(self, topic: str, change: str) -> None:
        if change == "delete":
            self.topics.pop(topic, None)
        elif topic not in self.topics:
            self.topic_number += 1
            self.topics[topic] = TopicInfo(UUID(int=self.topic_number), 2)
        elif change == "grow" and self.topics[topic].partition_count < 8:
            known = self.topics[topic]
            self.topics[topic] = TopicInfo(known.topic_id, known.partition_count + 1)

    @rule()
    def delete_group(self) -> None:
        _, error_code = self.coordinator.handle_delete(GROUP)
        if error_code is ErrorCode.none:
            self._carry_out(self.coordinator.handle_end(GROUP))
            self.group_epoch_seen = 0
        assert (self.group is None) == (error_code is not ErrorCode.non_empty_group)

    @rule(is_compacted=st.booleans())
    def the_broker_restarts(self, is_compacted: bool) -> None:
        before = self.group
        if is_compacted:
            self.log = list({key: (key, value) for key, value in self.log}.values())
        loader = GroupLoader()
        for key, value in self.log:
            loader.take(key, value)
        self.coordinator = GroupCoordinator()
        group_settings = GroupSettings(share_session_timeout_ms=SESSION_TIMEOUT_MS)
        resumption = Resumption(
            now_ms=self.now_ms, settings_of=lambda _: group_settings, topics=dict(self.topics)
        )
        for group in loader.groups(resumption):
            self.coordinator.apply(GroupChanged(group))
        if before is None:
            assert self.coordinator.group_ids() == []
            return
        topics = {name: self.topics[name] for name in before.subscribed_names if name in self.topics}
        deadline_ms = self.now_ms + SESSION_TIMEOUT_MS
        members = {
            key: replace(member, session_deadline_ms=deadline_ms) for key, member in before.members.items()
        }
        is_as_it_was = topics == before.topics
        assert self.group == replace(before, members=members, topics=topics if is_as_it_was else {})

    @rule(by_ms=st.sampled_from([1_000, 5_000, 20_000, SESSION_TIMEOUT_MS]))
    def time_passes(self, by_ms: int) -> None:
        end_ms = self.now_ms + by_ms
        while (group := self.group) is not None:
            deadline_ms = group.next_deadline_ms()
            if deadline_ms is None or deadline_ms > end_ms:
                break
            self.now_ms = deadline_ms
            self._carry_out(self.coordinator.handle_time(GROUP, self.now_ms))
        self.now_ms = end_ms

    @rule(silent=st.sets(st.integers(0, CLIENT_COUNT - 1)))
    def all_who_live_come_to_rest(self, silent: set[int]) -> None:
        alive = [client for number, client in enumerate(self.clients) if number not in silent]
        for _ in range(4):
            self.time_passes(SESSION_TIMEOUT_MS // 3)
            for client in alive:
                self._beat(client)
        # One more round tells everybody what the last one has changed, also one who had to join anew.
        for client in (*alive, *alive):
            self._beat(client)
        for number in silent:
            self.clients[number].begin_anew()
        self._check_rest(alive)

    # What must hold

    @invariant()
    def epochs_only_grow(self) -> None:
        group = self.group
        if group is not None:
            assert group.epoch >= self.group_epoch_seen
            assert group.assignment_epoch <= group.epoch
            assert all(member.epoch <= group.epoch for member in group.members.values())
            self.group_epoch_seen = group.epoch

    @invariant()
    def the_group_knows_what_its_members_want(self) -> None:
        if self.group is not None:
            wanted = (member.subscribed_names for member in self.group.members.values())
            assert self.group.subscribed_names == frozenset[str]().union(*wanted)
            assert self.group.topics.keys() <= self.group.subscribed_names
            assert self.group.target.keys() <= self.group.members.keys()

    @property
    def group(self) -> ShareGroup | None:
        return self.coordinator.share_groups.get(GROUP)

    # How the clients live

    def _beat(self, client: Client, *, is_answer_lost: bool = False, says_all: bool = False) -> None:
        says_all = says_all or client.must_say_all or client.epoch == 0
        request = ShareGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=client.member_id,
            member_epoch=client.epoch,
            subscribed_topic_names=client.names if says_all else None,
        )
        response = self._send(request)
        if response.error_code is not ErrorCode.none:
            # Who joins is never refused.
            assert client.epoch > 0
            assert response.error_code in {
                ErrorCode.unknown_member_id,
                ErrorCode.group_id_not_found,
                ErrorCode.fenced_member_epoch,
            }
            client.begin_anew()
        elif is_answer_lost:
            client.must_say_all = True
        else:
            client.must_say_all = False
            client.epoch = response.member_epoch
            if response.assignment is not None:
                client.assigned = frozenset(
                    (topic.topic_id, index)
                    for topic in response.assignment.topic_partitions
                    for index in topic.partitions
                    if topic.topic_id is not None
                )

    def _send(self, request: ShareGroupHeartbeatRequest) -> ShareGroupHeartbeatResponse:
        occasion = ShareOccasion(
            now_ms=self.now_ms,
            topics=dict(self.topics),
            limits=ShareGroupLimits(session_timeout_ms=SESSION_TIMEOUT_MS),
        )
        before = self.group
        outcome, response = self.coordinator.handle_share_heartbeat(request, occasion)
        assert before is self.group, "handling a request changed something"
        self._carry_out(outcome)
        return response

    def _carry_out(self, outcome: Outcome) -> None:
        for record in outcome.records:
            assert isinstance(record, GroupChanged | GroupGone)
            after = record.group if isinstance(record, GroupChanged) else None
            self.log += records_of_change(self.group, after, self.now_ms)
            self.coordinator.apply(record)

    def _check_rest(self, alive: list[Client]) -> None:
        group = self.group
        members = {} if group is None else group.members
        assert members.keys() == {client.member_id for client in alive}
        if group is None:
            return
        for client in alive:
            assert client.epoch == group.epoch
            assert client.assigned == members[client.member_id].assigned == group.target[client.member_id]
        read = {partition for client in alive for partition in client.assigned}
        names = {name for client in alive for name in client.names if name in self.topics}
        assert read == {
            (self.topics[name].topic_id, index)
            for name in names
            for index in range(self.topics[name].partition_count)
        }


ShareGroupMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=50)
test_share_groups_hold_their_invariants = ShareGroupMachine.TestCase
