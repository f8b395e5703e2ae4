"""Consumer groups under generated sequences of members, answers that get lost, and time."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from kio.schema.errors import ErrorCode

from headrace.kafka.groups.committing import Committer
from headrace.kafka.groups.coordinator import GroupChanged, GroupCoordinator, GroupLimits
from headrace.kafka.groups.loading import GroupLoader, Resumption
from headrace.kafka.groups.membership import Joiner
from headrace.kafka.groups.persistence import records_of_change
from headrace.kafka.groups.settings import GroupSettings
from headrace.kafka.groups.state import GroupState
from headrace.kafka.messages.heartbeat import HeartbeatRequest
from headrace.kafka.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from headrace.kafka.messages.leave_group import MemberIdentity
from headrace.kafka.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)

if TYPE_CHECKING:
    from headrace.kafka.groups.coordinator import Outcome
    from headrace.kafka.groups.state import Group

GROUP = "payments"
PARTITION_COUNT = 5
SESSION_TIMEOUT_MS = 6_000
REBALANCE_TIMEOUT_MS = 20_000
CLIENT_COUNT = 4


@dataclass(eq=False)
class Client:
    """A consumer: what it believes, and the request that it waits for."""

    name: str
    instance_id: str | None
    member_id: str = ""
    generation_id: int = -1
    leads: bool = False
    peers: tuple[str, ...] = ()
    waits_for: Token | None = None
    is_assigned: bool = False


@dataclass(eq=False)
class Token:
    """A request on its way. `client` is None once the client has given up on it."""

    client: Client | None
    answers: list[Any] = field(default_factory=list)


class GroupMachine(RuleBasedStateMachine):
    """Clients that join, share out, commit, fall silent and come back, against what must always hold."""

    def __init__(self) -> None:
        super().__init__()
        self.coordinator = GroupCoordinator(GroupLimits(initial_rebalance_delay_ms=0))
        self.now_ms = 0
        self.ids = 0
        self.tokens: list[Token] = []
        self.log: list[tuple[bytes, bytes | None]] = []
        self.clients = [
            Client(name=f"c{number}", instance_id="static" if number == 0 else None)
            for number in range(CLIENT_COUNT)
        ]
        self.owners: dict[tuple[int, int], str] = {}
        self.generation_seen = 0

    # What happens

    @rule(
        index=st.integers(0, CLIENT_COUNT - 1),
        asks_for_id=st.booleans(),
        metadata=st.sampled_from([b"a", b"b"]),
    )
    def join(self, index: int, asks_for_id: bool, metadata: bytes) -> None:
        client = self.clients[index]
        self._give_up(client)
        token = self._token(client)
        self.ids += 1
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            member_id=client.member_id,
            group_instance_id=client.instance_id,
            protocol_type="consumer",
            protocols=(JoinGroupRequestProtocol(name="range", metadata=metadata),),
        )
        joiner = Joiner(token=token, new_member_id=f"{client.name}-{self.ids}", must_know_id=asks_for_id)
        outcome, response = self._unchanged(
            lambda: self.coordinator.handle_join(request, joiner, self.now_ms)
        )
        self._carry_out(outcome)
        self._answer(token, response)

    @rule(index=st.integers(0, CLIENT_COUNT - 1), knows_everybody=st.booleans())
    def sync(self, index: int, knows_everybody: bool) -> None:
        client = self.clients[index]
        if client.generation_id < 0:
            return
        self._give_up(client)
        token = self._token(client)
        peers = client.peers if knows_everybody else client.peers[:1]
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=client.generation_id,
            member_id=client.member_id,
            group_instance_id=client.instance_id,
            assignments=tuple(
                SyncGroupRequestAssignment(
                    member_id=peer, assignment=bytes(range(PARTITION_COUNT)[number :: len(peers)])
                )
                for number, peer in enumerate(peers)
            )
            if client.leads
            else (),
        )
        outcome, response = self._unchanged(lambda: self.coordinator.handle_sync(request, token, self.now_ms))
        self._carry_out(outcome)
        self._answer(token, response)

    @rule(index=st.integers(0, CLIENT_COUNT - 1))
    def heartbeat(self, index: int) -> None:
        client = self.clients[index]
        request = HeartbeatRequest(
            group_id=GROUP,
            generation_id=client.generation_id,
            member_id=client.member_id,
            group_instance_id=client.instance_id,
        )
        outcome, error_code = self._unchanged(lambda: self.coordinator.handle_heartbeat(request, self.now_ms))
        self._carry_out(outcome)
        if error_code is ErrorCode.none:
            assert self._is_member_of_present_generation(client)
        elif error_code is not ErrorCode.rebalance_in_progress:
            self._forget(client)

    @rule(index=st.integers(0, CLIENT_COUNT - 1))
    def leave(self, index: int) -> None:
        client = self.clients[index]
        self._give_up(client)
        identity = MemberIdentity(member_id=client.member_id, group_instance_id=client.instance_id)
        outcome, _ = self._unchanged(lambda: self.coordinator.handle_leave(GROUP, [identity], self.now_ms))
        self._carry_out(outcome)
        self._forget(client)

    @rule(index=st.integers(0, CLIENT_COUNT - 1))
    def crash(self, index: int) -> None:
        client = self.clients[index]
        self._give_up(client)
        self._forget(client)

    @rule(index=st.integers(0, CLIENT_COUNT - 1), shift=st.integers(-1, 1))
    def commit(self, index: int, shift: int) -> None:
        client = self.clients[index]
        committer = Committer(
            group_id=GROUP,
            generation_id=client.generation_id + shift,
            member_id=client.member_id,
            instance_id=client.instance_id,
        )
        accepted = self.coordinator.check_commit(committer) is ErrorCode.none
        group = self.group
        if accepted and group is not None and group.members:
            assert shift == 0 or client.generation_id + shift == group.generation_id
            assert client.member_id in group.members
            assert committer.generation_id == group.generation_id

    @rule(by_ms=st.sampled_from([1, 500, 3_000, SESSION_TIMEOUT_MS, REBALANCE_TIMEOUT_MS]))
    def time_passes(self, by_ms: int) -> None:
        end_ms = self.now_ms + by_ms
        while (deadline_ms := self._next_deadline_ms()) is not None and deadline_ms <= end_ms:
            self._expire_at(deadline_ms)
        self.now_ms = end_ms

    @rule()
    def the_broker_restarts(self) -> None:
        for client in self.clients:
            self._give_up(client)
        self.tokens.clear()
        before = self.group
        self.coordinator = GroupCoordinator(GroupLimits(initial_rebalance_delay_ms=0))
        loader = GroupLoader()
        for key, value in self.log:
            loader.take(key, value)
        resumption = Resumption(now_ms=self.now_ms, settings_of=lambda _: GroupSettings(), topics={})
        for group in loader.groups(resumption):
            self.coordinator.apply(GroupChanged(group))
        if (
            before is not None
            and before.generation_id
            and before.state in {GroupState.STABLE, GroupState.EMPTY}
        ):
            assert self.group is not None
            assert self.group.state is before.state
            assert self.group.generation_id == before.generation_id
            assert self.group.leader_id == before.leader_id
            assert [(key, each.assignment) for key, each in self.group.members.items()] == [
                (key, each.assignment) for key, each in before.members.items()
            ]
        # A generation that nobody was given an assignment of begins once more.
        self.generation_seen = 0 if self.group is None else self.group.generation_id

    @precondition(lambda self: self.group is not None)
    @rule()
    def everybody_falls_silent(self) -> None:
        for client in self.clients:
            self._give_up(client)
            self._forget(client)
        steps = 0
        while (deadline_ms := self._next_deadline_ms()) is not None:
            self._expire_at(deadline_ms)
            steps += 1
            assert steps < 100, "time alone does not bring the group to rest"
        assert self.group is not None
        assert self.group.state is GroupState.EMPTY
        assert all(len(token.answers) == 1 for token in self.tokens), "a request was never answered"

    # What must hold

    @invariant()
    def each_request_is_answered_at_most_once(self) -> None:
        assert all(len(token.answers) <= 1 for token in self.tokens)

    @invariant()
    def a_request_without_an_answer_is_not_forgotten(self) -> None:
        members = [] if self.group is None else self.group.members.values()
        held = {id(token) for each in members for token in (each.join_token, each.sync_token)}
        assert all(token.answers or id(token) in held for token in self.tokens)

    @invariant()
    def a_group_with_members_has_one_leader_among_them(self) -> None:
        if self.group is not None and self.group.members:
            assert self.group.leader is not None
            assert self.group.state is not GroupState.EMPTY

    @invariant()
    def generations_only_grow(self) -> None:
        if self.group is not None:
            assert self.group.generation_id >= self.generation_seen
            self.generation_seen = self.group.generation_id

    @invariant()
    def every_wait_has_an_end(self) -> None:
        group = self.group
        if group is not None and (group.members or group.pending_ids):
            assert group.next_deadline_ms() is not None

    @invariant()
    def waiting_members_wait_for_what_can_come(self) -> None:
        for member in () if self.group is None else self.group.members.values():
            assert self.group is not None
            assert member.join_token is None or self.group.state is GroupState.PREPARING_REBALANCE
            assert member.sync_token is None or self.group.state is GroupState.COMPLETING_REBALANCE

    # How the clients live

    @property
    def group(self) -> Group | None:
        return self.coordinator.groups.get(GROUP)

    def _next_deadline_ms(self) -> int | None:
        return None if self.group is None else self.group.next_deadline_ms()

    def _expire_at(self, deadline_ms: int) -> None:
        self.now_ms = max(self.now_ms, deadline_ms)
        self._carry_out(self._unchanged(lambda: self.coordinator.handle_time(GROUP, self.now_ms)))
        following_ms = self._next_deadline_ms()
        assert following_ms is None or following_ms > self.now_ms, "a timer would ring for ever"

    def _unchanged(self, handle: Any) -> Any:
        before = copy.copy(self.coordinator.groups), copy.deepcopy(self.coordinator.offsets)
        outcome = handle()
        assert (self.coordinator.groups, self.coordinator.offsets) == before, "handling changed something"
        return outcome

    def _carry_out(self, outcome: Outcome) -> None:
        for record in outcome.records:
            assert isinstance(record, GroupChanged)
            self.log += records_of_change(self.group, record.group, self.now_ms)
            self.coordinator.apply(record)
        for reply in outcome.replies:
            assert isinstance(reply.token, Token)
            self._answer(reply.token, reply.response)

    def _token(self, client: Client) -> Token:
        token = Token(client)
        self.tokens.append(token)
        client.waits_for = token
        return token

    def _give_up(self, client: Client) -> None:
        if client.waits_for is not None:
            client.waits_for.client = None
            client.waits_for = None

    def _forget(self, client: Client) -> None:
        client.member_id, client.generation_id, client.leads = "", -1, False

    def _answer(self, token: Token, response: JoinGroupResponse | SyncGroupResponse | None) -> None:
        if response is None:
            return
        token.answers.append(response)
        client = token.client
        if client is None:
            return
        client.waits_for = None
        if isinstance(response, JoinGroupResponse):
            self._joined(client, response)
        else:
            self._synced(client, response)

    def _joined(self, client: Client, response: JoinGroupResponse) -> None:
        if response.error_code is ErrorCode.member_id_required:
            client.member_id = response.member_id
        elif response.error_code is ErrorCode.none:
            client.member_id, client.generation_id = response.member_id, response.generation_id
            client.leads = response.leader == response.member_id
            client.peers = tuple(member.member_id for member in response.members)
            assert client.leads == bool(client.peers)
            assert self._is_member_of_present_generation(client)
        else:
            self._forget(client)

    def _synced(self, client: Client, response: SyncGroupResponse) -> None:
        if response.error_code is ErrorCode.none:
            assert self._is_member_of_present_generation(client)
            for partition in response.assignment:
                key = (client.generation_id, partition)
                owner = self.owners.setdefault(key, client.name)
                assert owner == client.name, f"partition {partition} has two owners"
        elif response.error_code is not ErrorCode.rebalance_in_progress:
            self._forget(client)

    def _is_member_of_present_generation(self, client: Client) -> bool:
        group = self.group
        return (
            group is not None
            and client.member_id in group.members
            and client.generation_id == group.generation_id
        )


GroupMachine.TestCase.settings = settings(max_examples=300, stateful_step_count=50)
test_groups_hold_their_invariants = GroupMachine.TestCase
