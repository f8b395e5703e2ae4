"""Consumer groups by KIP-848 under generated sequences of members, topics, lost answers, and time."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from uuid import UUID

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from kio.schema.errors import ErrorCode

from headrace.kafka.groups.committing import Committer
from headrace.kafka.groups.consumer.heartbeat import ConsumerGroupLimits, Occasion
from headrace.kafka.groups.consumer.state import ConsumerGroupState, MemberState, TopicInfo
from headrace.kafka.groups.coordinator import GroupChanged, GroupCoordinator
from headrace.kafka.groups.loading import GroupLoader, Resumption
from headrace.kafka.groups.persistence import records_of_change
from headrace.kafka.groups.settings import GroupSettings
from headrace.kafka.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)

if TYPE_CHECKING:
    from headrace.kafka.groups.consumer.state import ConsumerGroup, ConsumerMember, Partition
    from headrace.kafka.groups.coordinator import Outcome
    from headrace.kafka.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse

GROUP = "payments"
CLIENT_COUNT = 4
SESSION_TIMEOUT_MS = 45_000
REBALANCE_TIMEOUT_MS = 60_000
TOPICS = ("orders", "orders.eu", "refunds")
SUBSCRIPTIONS: tuple[tuple[frozenset[str], str], ...] = (
    (frozenset({"orders"}), ""),
    (frozenset({"orders", "refunds"}), ""),
    (frozenset(), "orders.*"),
    (frozenset({"refunds"}), r"orders\.[a-z]+"),
    (frozenset(), ""),
)
CONVERGENCE_ROUNDS_MAX = 12


@dataclass(eq=False)
class Client:
    """A consumer: what it believes, and what it works on."""

    name: str
    instance_id: str | None
    incarnation: int = 0
    epoch: int = 0
    owned: frozenset[Partition] = frozenset()
    """What it reads from: only what it was told, until it has let go or was fenced."""
    names: frozenset[str] = frozenset({"orders"})
    regex: str = ""
    to_revoke: frozenset[Partition] = field(default_factory=frozenset)
    must_say_all: bool = False
    """After an answer that got lost, the next heartbeat says everything."""

    @property
    def member_id(self) -> str:
        return f"{self.name}-{self.incarnation}"


class ConsumerGroupMachine(RuleBasedStateMachine):
    """Clients that join, revoke, commit, fall silent and come back, against what must always hold."""

    def __init__(self) -> None:
        super().__init__()
        self.coordinator = GroupCoordinator()
        self.now_ms = 0
        self.topics = {"orders": TopicInfo(UUID(int=1), 3), "refunds": TopicInfo(UUID(int=2), 2)}
        self.topic_number = 2
        self.clients = [
            Client(name=f"c{number}", instance_id=f"host-{number}" if number < 2 else None)
            for number in range(CLIENT_COUNT)
        ]
        self.log: list[tuple[bytes, bytes | None]] = []
        self.epochs_seen: dict[str, int] = {}
        self.group_epoch_seen = 0

    # What happens

    @rule(index=st.integers(0, CLIENT_COUNT - 1), is_answer_lost=st.booleans())
    def heartbeat(self, index: int, is_answer_lost: bool) -> None:
        self._beat(self.clients[index], is_answer_lost=is_answer_lost)

    @rule(index=st.integers(0, CLIENT_COUNT - 1))
    def revocation_is_done(self, index: int) -> None:
        self._let_go(self.clients[index])

    @rule(index=st.integers(0, CLIENT_COUNT - 1), subscription=st.sampled_from(SUBSCRIPTIONS))
    def subscribe(self, index: int, subscription: tuple[frozenset[str], str]) -> None:
        client = self.clients[index]
        client.names, client.regex = subscription
        self._beat(client, says_all=True)

    @rule(index=st.integers(0, CLIENT_COUNT - 1), for_good=st.booleans(), arrives=st.booleans())
    def leave(self, index: int, for_good: bool, arrives: bool) -> None:
        client = self.clients[index]
        epoch = -1 if for_good or client.instance_id is None else -2
        # A consumer lets go of everything before it says goodbye.
        self._lose_everything(client)
        if arrives:
            self._send(self._request(client, epoch))
        client.incarnation += 1

    @rule(index=st.integers(0, CLIENT_COUNT - 1))
    def crash(self, index: int) -> None:
        client = self.clients[index]
        self._lose_everything(client)
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

    @rule(index=st.integers(0, CLIENT_COUNT - 1), shift=st.integers(-2, 2))
    def commit(self, index: int, shift: int) -> None:
        """Only the one who owns a partition may commit it."""
        client = self.clients[index]
        group = self.group
        for partition in self._all_partitions():
            committer = Committer(
                group_id=GROUP,
                member_id=client.member_id,
                generation_id=client.epoch + shift,
                partitions=[partition],
            )
            accepted = self.coordinator.check_commit(committer) is ErrorCode.none
            if accepted and group is not None and group.members:
                member = group.members[client.member_id]
                assert 0 <= committer.generation_id <= member.epoch
                if committer.generation_id < member.epoch:
                    assert partition in member.owned

    @rule(is_compacted=st.booleans())
    def the_broker_restarts(self, is_compacted: bool) -> None:
        before = self.group
        if is_compacted:
            self.log = list({key: (key, value) for key, value in self.log}.values())
        loader = GroupLoader()
        for key, value in self.log:
            loader.take(key, value)
        self.coordinator = GroupCoordinator()
        settings = GroupSettings(consumer_session_timeout_ms=SESSION_TIMEOUT_MS)
        resumption = Resumption(now_ms=self.now_ms, settings_of=lambda _: settings, topics=dict(self.topics))
        for group in loader.groups(resumption):
            self.coordinator.apply(GroupChanged(group))
        if before is None:
            assert self.group is None
            return
        assert self.group is not None
        assert (self.group.epoch, self.group.assignment_epoch) == (before.epoch, before.assignment_epoch)
        assert self.group.target == before.target
        assert self.group.members == {
            key: replace(
                member,
                session_deadline_ms=self.now_ms + SESSION_TIMEOUT_MS,
                revocation_deadline_ms=self.now_ms + REBALANCE_TIMEOUT_MS
                if member.pending_revocation
                else None,
            )
            for key, member in before.members.items()
        }
        topics = {name: self.topics[name] for name in self.group.subscribed_names if name in self.topics}
        assert self.group.topics == (topics if topics == before.topics else {})

    @rule(by_ms=st.sampled_from([1_000, 5_000, 20_000, SESSION_TIMEOUT_MS, REBALANCE_TIMEOUT_MS]))
    def time_passes(self, by_ms: int) -> None:
        end_ms = self.now_ms + by_ms
        while (group := self.group) is not None:
            deadline_ms = group.next_deadline_ms()
            if deadline_ms is None or deadline_ms > end_ms:
                break
            self.now_ms = deadline_ms
            self._expire()
        self.now_ms = end_ms

    @rule(
        silent=st.sets(st.integers(0, CLIENT_COUNT - 1)),
        topic=st.sampled_from(TOPICS),
        change=st.sampled_from(["create", "grow", "delete"]),
    )
    def all_who_live_behave_until_the_group_is_at_rest(
        self, silent: set[int], topic: str, change: str
    ) -> None:
        for number in silent:
            self.crash(number)
        alive = [client for number, client in enumerate(self.clients) if number not in silent]
        # Those who are gone are noticed first; those who live keep their sessions meanwhile.
        for _ in range(2 * REBALANCE_TIMEOUT_MS // 20_000):
            self.time_passes(20_000)
            for client in alive:
                self._beat(client)
                self._let_go(client)
        if not alive:
            assert self.group is None or self.group.state is ConsumerGroupState.EMPTY
            return
        self._converge(alive)
        self.change_topic(topic, change)
        self._converge(alive)

    # What must hold

    @invariant()
    def no_partition_is_read_by_two(self) -> None:
        owned = [partition for client in self.clients for partition in client.owned]
        assert len(owned) == len(set(owned)), "a partition has two readers"

    @invariant()
    def no_partition_is_given_to_two(self) -> None:
        if self.group is not None:
            given = [partition for each in self.group.members.values() for partition in each.owned]
            assert len(given) == len(set(given))
            targets = [partition for each in self.group.target.values() for partition in each]
            assert len(targets) == len(set(targets))

    @invariant()
    def epochs_only_grow(self) -> None:
        if self.group is None:
            return
        assert self.group.epoch >= self.group_epoch_seen
        assert self.group.assignment_epoch <= self.group.epoch
        self.group_epoch_seen = self.group.epoch
        for member in self.group.members.values():
            if member.epoch >= 0:
                assert member.epoch >= self.epochs_seen.get(member.member_id, 0)
                assert member.epoch <= self.group.epoch
                self.epochs_seen[member.member_id] = member.epoch

    @invariant()
    def the_group_knows_what_its_members_want(self) -> None:
        if self.group is not None:
            wanted = map(self.group.subscriptions_of, self.group.members.values())
            assert self.group.subscribed_names == frozenset[str]().union(*wanted)

    @invariant()
    def every_wait_has_an_end(self) -> None:
        for member in () if self.group is None else self.group.members.values():
            is_unrevoked = member.state is MemberState.UNREVOKED_PARTITIONS and member.epoch >= 0
            assert (member.revocation_deadline_ms is not None) == is_unrevoked
            assert bool(member.pending_revocation) == is_unrevoked

    @property
    def group(self) -> ConsumerGroup | None:
        return self.coordinator.consumer_groups.get(GROUP)

    # How the clients live

    def _beat(self, client: Client, *, is_answer_lost: bool = False, says_all: bool = False) -> None:
        says_all = says_all or client.must_say_all or client.epoch == 0
        request = self._request(client, client.epoch, says_all=says_all)
        response = self._send(request)
        if is_answer_lost and response.error_code is ErrorCode.none:
            client.must_say_all = True
        elif response.error_code is ErrorCode.none:
            client.must_say_all = False
            self._take_in(client, response)
        elif response.error_code in {ErrorCode.unknown_member_id, ErrorCode.fenced_member_epoch}:
            self._lose_everything(client)
        else:
            # Its place is taken by an earlier self that never said goodbye: it comes back as another.
            assert response.error_code in {ErrorCode.unreleased_instance_id, ErrorCode.fenced_instance_id}
            self._lose_everything(client)
            client.incarnation += response.error_code is ErrorCode.fenced_instance_id

    def _take_in(self, client: Client, response: ConsumerGroupHeartbeatResponse) -> None:
        client.epoch = response.member_epoch
        if response.assignment is None:
            return
        assigned = frozenset(
            (topic.topic_id, index)
            for topic in response.assignment.topic_partitions
            for index in topic.partitions
            if topic.topic_id is not None
        )
        client.to_revoke = client.owned - assigned
        client.owned |= assigned

    def _let_go(self, client: Client) -> None:
        if client.to_revoke:
            client.owned -= client.to_revoke
            client.to_revoke = frozenset()
            self._beat(client, says_all=True)

    def _lose_everything(self, client: Client) -> None:
        client.epoch, client.owned, client.to_revoke = 0, frozenset(), frozenset()

    def _request(
        self, client: Client, epoch: int, *, says_all: bool = False
    ) -> ConsumerGroupHeartbeatRequest:
        return ConsumerGroupHeartbeatRequest(
            group_id=GROUP,
            member_id=client.member_id,
            member_epoch=epoch,
            instance_id=client.instance_id,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS if says_all else -1,
            subscribed_topic_names=tuple(client.names) if says_all else None,
            subscribed_topic_regex=client.regex if says_all else None,
            topic_partitions=tuple(
                TopicPartitions(topic_id=topic_id, partitions=(index,)) for topic_id, index in client.owned
            )
            if says_all
            else None,
        )

    def _send(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        occasion = Occasion(
            now_ms=self.now_ms,
            topics=dict(self.topics),
            limits=ConsumerGroupLimits(session_timeout_ms=SESSION_TIMEOUT_MS),
        )
        before = self.group
        outcome, response = self.coordinator.handle_consumer_heartbeat(request, occasion)
        assert before is self.group, "handling a request changed something"
        self._carry_out(outcome)
        return response

    def _carry_out(self, outcome: Outcome) -> None:
        for record in outcome.records:
            assert isinstance(record, GroupChanged)
            self.log += records_of_change(self.group, record.group, self.now_ms)
            self.coordinator.apply(record)

    def _expire(self) -> None:
        before = self._members()
        self._carry_out(self.coordinator.handle_time(GROUP, self.now_ms))
        # A consumer knows its timeouts, too, and stops reading when the broker may have given it up.
        for client in self.clients:
            if client.member_id in before.keys() - self._members().keys():
                self._lose_everything(client)

    def _resumed(self, member: ConsumerMember) -> ConsumerMember:
        deadline_ms = self.now_ms + REBALANCE_TIMEOUT_MS if member.pending_revocation else None
        return replace(
            member,
            session_deadline_ms=self.now_ms + SESSION_TIMEOUT_MS,
            revocation_deadline_ms=deadline_ms,
        )

    def _members(self) -> dict[str, ConsumerMember]:
        return {} if self.group is None else dict(self.group.members)

    def _all_partitions(self) -> list[Partition]:
        return [
            (topic.topic_id, index)
            for topic in self.topics.values()
            for index in range(topic.partition_count)
        ]

    def _converge(self, alive: list[Client]) -> None:
        for _ in range(CONVERGENCE_ROUNDS_MAX):
            self.now_ms += 1_000
            for client in alive:
                self._beat(client)
                self._let_go(client)
        group = self.group
        assert group is not None
        assert group.state is ConsumerGroupState.STABLE, "the group does not come to rest"
        assert group.members.keys() == {client.member_id for client in alive}
        wanted = {
            (self.topics[name].topic_id, index)
            for member in group.members.values()
            for name in group.subscriptions_of(member)
            if name in self.topics
            for index in range(self.topics[name].partition_count)
        }
        assert {partition for client in alive for partition in client.owned} == wanted
        for client in alive:
            member = group.members[client.member_id]
            assert client.owned == member.assigned.keys() == group.target[client.member_id]
            assert client.epoch == member.epoch == group.epoch


ConsumerGroupMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=50)
test_consumer_groups_hold_their_invariants = ConsumerGroupMachine.TestCase
