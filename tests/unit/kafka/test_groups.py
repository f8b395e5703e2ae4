"""Consumer groups, one rule at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from headrace.errors import CorruptBatch
from headrace.kafka.groups import coordinator as coordinator_module
from headrace.kafka.groups.committing import Committer
from headrace.kafka.groups.coordinator import GroupCoordinator, GroupLimits, Outcome
from headrace.kafka.groups.membership import Joiner
from headrace.kafka.groups.offsets import (
    OffsetCommitted,
    OffsetForgotten,
    decode_offset_record,
    encode_offset_record,
)
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
    from headrace.kafka.groups.state import Group

SESSION_MS = 10_000
REBALANCE_MS = 60_000


class Bench:
    """A coordinator, a clock, and the answers that waiting requests have got, by their tokens."""

    def __init__(self, limits: GroupLimits | None = None) -> None:
        self.coordinator = GroupCoordinator(limits or GroupLimits())
        self.now_ms = 0
        self.joins: dict[str, JoinGroupResponse] = {}
        self.syncs: dict[str, SyncGroupResponse] = {}

    @property
    def group(self) -> Group:
        return self.coordinator.groups["g"]

    def carry_out(self, outcome: Outcome) -> None:
        for record in outcome.records:
            self.coordinator.apply(record)
        for reply in outcome.replies:
            self._note(str(reply.token), reply.response)

    def _note(self, token: str, response: JoinGroupResponse | SyncGroupResponse | None) -> None:
        if isinstance(response, JoinGroupResponse):
            self.joins[token] = response
        elif response is not None:
            self.syncs[token] = response

    def join(
        self,
        name: str,
        *,
        member_id: str = "",
        instance_id: str | None = None,
        protocols: tuple[str, ...] = ("range",),
        metadata: bytes = b"",
        must_know_id: bool = False,
        can_skip: bool = False,
        session_ms: int = SESSION_MS,
        protocol_type: str = "consumer",
    ) -> JoinGroupResponse | None:
        """Join; the answer is there at once, or later in `joins`."""
        self.joins.pop(name, None)
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocols=tuple(JoinGroupRequestProtocol(name=each, metadata=metadata) for each in protocols),
        )
        joiner = Joiner(
            token=name, new_member_id=f"{name}-id", must_know_id=must_know_id, can_skip_assignment=can_skip
        )
        outcome, response = self.coordinator.handle_join(request, joiner, self.now_ms)
        self.carry_out(outcome)
        self._note(name, response)
        return self.joins.get(name)

    def sync(
        self, name: str, generation_id: int, assignments: dict[str, bytes] | None = None, member_id: str = ""
    ) -> SyncGroupResponse | None:
        self.syncs.pop(name, None)
        request = SyncGroupRequest(
            group_id="g",
            generation_id=generation_id,
            member_id=member_id or f"{name}-id",
            assignments=tuple(
                SyncGroupRequestAssignment(member_id=key, assignment=value)
                for key, value in (assignments or {}).items()
            ),
        )
        outcome, response = self.coordinator.handle_sync(request, name, self.now_ms)
        self.carry_out(outcome)
        self._note(name, response)
        return self.syncs.get(name)

    def heartbeat(
        self, name: str, generation_id: int, instance_id: str | None = None, group_id: str = "g"
    ) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=group_id,
            generation_id=generation_id,
            member_id=f"{name}-id",
            group_instance_id=instance_id,
        )
        outcome, error_code = self.coordinator.handle_heartbeat(request, self.now_ms)
        self.carry_out(outcome)
        return error_code

    def leave(self, member_id: str, instance_id: str | None = None) -> ErrorCode:
        identity = MemberIdentity(member_id=member_id, group_instance_id=instance_id)
        outcome, responses = self.coordinator.handle_leave("g", [identity], self.now_ms)
        self.carry_out(outcome)
        return responses[0].error_code

    def check_commit(self, name: str, generation_id: int) -> ErrorCode:
        return self.coordinator.check_commit(
            Committer(
                group_id="g",
                generation_id=generation_id,
                member_id=f"{name}-id" if name else "",
            )
        )

    def advance(self, by_ms: int) -> None:
        self.now_ms += by_ms
        self.carry_out(self.coordinator.handle_time("g", self.now_ms))

    def stable(self, *names: str) -> int:
        """Bring members together in a stable generation, the first of them the leader."""
        for name in names:
            self.join(name)
        for name in names[:-1]:
            self.join(name, member_id=f"{name}-id")
        generation_id = self.group.generation_id
        for name in reversed(names):
            assignments = {f"{each}-id": each.encode() for each in names} if name == names[0] else None
            self.sync(name, generation_id, assignments)
        assert self.group.state is GroupState.STABLE
        return generation_id


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_the_first_member_leads_and_is_told_who_is_there(bench: Bench) -> None:
    joined = bench.join("a", metadata=b"topics")
    assert joined is not None
    assert (joined.generation_id, joined.leader, joined.protocol_name) == (1, "a-id", "range")
    assert [(each.member_id, each.metadata) for each in joined.members] == [("a-id", b"topics")]


def test_a_new_member_of_a_recent_client_is_first_given_its_id(bench: Bench) -> None:
    first = bench.join("a", must_know_id=True)
    assert first is not None
    assert (first.error_code, first.member_id) == (ErrorCode.member_id_required, "a-id")
    second = bench.join("a", member_id="a-id", must_know_id=True)
    assert second is not None
    assert (second.error_code, second.generation_id) == (ErrorCode.none, 1)


def test_an_id_that_is_never_used_lapses_and_holds_up_nobody(bench: Bench) -> None:
    bench.join("ghost", must_know_id=True)
    assert bench.join("a") is None
    bench.advance(SESSION_MS)
    assert bench.joins["a"].generation_id == 1
    lapsed = bench.join("ghost", member_id="ghost-id")
    assert lapsed is not None
    assert lapsed.error_code is ErrorCode.unknown_member_id


def test_a_second_member_waits_until_the_first_has_joined_again(bench: Bench) -> None:
    bench.stable("a")
    assert bench.join("b") is None
    assert bench.heartbeat("a", 1) is ErrorCode.rebalance_in_progress
    first = bench.join("a", member_id="a-id")
    assert first is not None
    assert first.generation_id == bench.joins["b"].generation_id == 2
    assert [each.member_id for each in first.members] == ["a-id", "b-id"]
    assert bench.joins["b"].members == ()


def test_followers_wait_for_the_leaders_assignment(bench: Bench) -> None:
    bench.join("a")
    bench.join("b")
    bench.join("a", member_id="a-id")
    assert bench.sync("b", 2) is None
    led = bench.sync("a", 2, {"a-id": b"0", "b-id": b"1"})
    assert led is not None
    assert (led.assignment, bench.syncs["b"].assignment) == (b"0", b"1")


def test_a_follower_that_waits_for_its_assignment_is_told_once_when_another_member_comes(
    bench: Bench,
) -> None:
    bench.join("a")
    bench.join("b")
    bench.join("a", member_id="a-id")
    assert bench.sync("b", 2) is None
    bench.join("c")
    assert bench.syncs.pop("b").error_code is ErrorCode.rebalance_in_progress
    bench.join("a", member_id="a-id")
    bench.join("b", member_id="b-id")
    bench.sync("a", 3, {"a-id": b"0", "b-id": b"1", "c-id": b"2"})
    assert "b" not in bench.syncs


def test_a_member_that_joins_anew_while_it_waits_for_its_assignment_has_both_requests_answered(
    bench: Bench,
) -> None:
    bench.join("a")
    bench.join("b")
    bench.join("a", member_id="a-id")
    bench.sync("b", 2)
    bench.join("b", member_id="b-id", metadata=b"another topic")
    assert bench.syncs["b"].error_code is ErrorCode.rebalance_in_progress
    bench.join("a", member_id="a-id")
    assert bench.joins["b"].generation_id == 3


def test_a_member_that_the_leader_left_out_gets_an_empty_assignment(bench: Bench) -> None:
    bench.join("a")
    bench.join("b")
    bench.join("a", member_id="a-id")
    bench.sync("b", 2)
    bench.sync("a", 2, {"a-id": b"0"})
    assert bench.syncs["b"].assignment == b""


def test_a_member_that_only_sends_heartbeats_is_left_behind_when_the_rebalance_has_lasted_long_enough(
    bench: Bench,
) -> None:
    bench.stable("a", "b")
    assert bench.join("c") is None
    for _ in range(REBALANCE_MS // 5_000 - 1):
        bench.advance(5_000)
        for name in "ab":
            assert bench.heartbeat(name, 2) is ErrorCode.rebalance_in_progress
    bench.advance(5_000)
    assert bench.joins["c"].leader == "c-id"
    assert list(bench.group.members) == ["c-id"]
    assert bench.heartbeat("a", 2) is ErrorCode.unknown_member_id


def test_a_leader_that_never_shares_out_is_removed(bench: Bench) -> None:
    bench.join("a")
    bench.join("b")
    bench.join("a", member_id="a-id")
    bench.sync("b", 2)
    for _ in range(REBALANCE_MS // 5_000 - 1):
        bench.advance(5_000)
        assert bench.heartbeat("a", 2) is ErrorCode.none
    bench.advance(5_000)
    assert bench.syncs["b"].error_code is ErrorCode.rebalance_in_progress
    assert "a-id" not in bench.group.members


def test_a_member_that_never_asks_for_its_assignment_is_removed(bench: Bench) -> None:
    bench.join("a")
    bench.join("b")
    bench.join("a", member_id="a-id")
    bench.sync("a", 2, {"a-id": b"0", "b-id": b"1"})
    for _ in range(REBALANCE_MS // 5_000):
        bench.advance(5_000)
        bench.heartbeat("a", 2)
        bench.heartbeat("b", 2)
    assert list(bench.group.members) == ["a-id"]
    assert bench.heartbeat("a", 2) is ErrorCode.rebalance_in_progress


def test_a_silent_member_is_removed_and_the_others_share_out_again(bench: Bench) -> None:
    generation_id = bench.stable("a", "b")
    bench.advance(SESSION_MS - 1)
    assert bench.heartbeat("a", generation_id) is ErrorCode.none
    bench.advance(1)
    assert list(bench.group.members) == ["a-id"]
    assert bench.heartbeat("a", generation_id) is ErrorCode.rebalance_in_progress
    assert bench.heartbeat("b", generation_id) is ErrorCode.unknown_member_id


def test_a_member_that_leaves_makes_the_others_share_out_again_at_once(bench: Bench) -> None:
    generation_id = bench.stable("a", "b")
    assert bench.leave("b-id") is ErrorCode.none
    assert bench.heartbeat("a", generation_id) is ErrorCode.rebalance_in_progress


def test_the_last_member_that_leaves_empties_the_group(bench: Bench) -> None:
    bench.stable("a")
    bench.leave("a-id")
    assert (bench.group.state, bench.group.next_deadline_ms()) == (GroupState.EMPTY, None)


def test_another_member_leads_when_the_leader_is_gone(bench: Bench) -> None:
    bench.stable("a", "b")
    bench.leave("a-id")
    joined = bench.join("b", member_id="b-id")
    assert joined is not None
    assert (joined.leader, joined.generation_id) == ("b-id", 3)


def test_a_follower_that_missed_its_answer_gets_it_again_without_a_rebalance(bench: Bench) -> None:
    generation_id = bench.stable("a", "b")
    again = bench.join("b", member_id="b-id")
    assert again is not None
    assert again.generation_id == generation_id
    assert bench.group.state is GroupState.STABLE


def test_a_leader_that_joins_again_asks_for_a_rebalance(bench: Bench) -> None:
    bench.stable("a", "b")
    assert bench.join("a", member_id="a-id") is None
    assert bench.group.state is GroupState.PREPARING_REBALANCE


def test_a_member_with_another_subscription_asks_for_a_rebalance(bench: Bench) -> None:
    bench.stable("a", "b")
    assert bench.join("b", member_id="b-id", metadata=b"another topic") is None
    assert bench.group.state is GroupState.PREPARING_REBALANCE


def test_an_empty_group_may_wait_for_more_members(bench: Bench) -> None:
    bench = Bench(GroupLimits(initial_rebalance_delay_ms=3_000))
    assert bench.join("a") is None
    bench.advance(2_000)
    assert bench.join("b") is None
    bench.advance(2_999)
    assert bench.joins == {}
    bench.advance(1)
    assert bench.joins["a"].generation_id == bench.joins["b"].generation_id == 1


def test_the_protocol_is_the_one_that_most_members_like_best(bench: Bench) -> None:
    bench.join("a", protocols=("range", "sticky"))
    bench.join("b", protocols=("sticky", "range"))
    bench.join("c", protocols=("sticky", "range", "roundrobin"))
    bench.join("a", member_id="a-id", protocols=("range", "sticky"))
    bench.join("b", member_id="b-id", protocols=("sticky", "range"))
    assert bench.group.protocol_name == "sticky"


@pytest.mark.parametrize(
    ("protocols", "protocol_type"), [(("sticky",), "consumer"), (("range",), "connect"), ((), "consumer")]
)
def test_a_member_that_shares_no_protocol_with_the_others_is_refused(
    bench: Bench, protocols: tuple[str, ...], protocol_type: str
) -> None:
    bench.stable("a")
    refused = bench.join("b", protocols=protocols, protocol_type=protocol_type)
    assert refused is not None
    assert refused.error_code is ErrorCode.inconsistent_group_protocol
    assert bench.group.state is GroupState.STABLE


@pytest.mark.parametrize("session_ms", [0, 999, 1_800_001])
def test_a_session_timeout_out_of_bounds_is_refused(bench: Bench, session_ms: int) -> None:
    refused = bench.join("a", session_ms=session_ms)
    assert refused is not None
    assert refused.error_code is ErrorCode.invalid_session_timeout


def test_a_full_group_takes_nobody_else() -> None:
    bench = Bench(GroupLimits(member_count_max=2))
    bench.stable("a", "b")
    refused = bench.join("c")
    assert refused is not None
    assert refused.error_code is ErrorCode.group_max_size_reached
    assert bench.join("b", member_id="b-id") is not None


def test_too_many_groups_are_refused(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_module, "GROUP_COUNT_MAX", 0)
    refused = bench.join("a")
    assert refused is not None
    assert refused.error_code is ErrorCode.policy_violation


def test_nobody_is_alive_in_a_group_that_does_not_exist(bench: Bench) -> None:
    assert bench.heartbeat("a", 1, group_id="nowhere") is ErrorCode.unknown_member_id
    synced = bench.sync("a", 1)
    assert synced is not None
    assert synced.error_code is ErrorCode.unknown_member_id
    assert bench.leave("a-id") is ErrorCode.unknown_member_id


# Static members


def test_a_static_member_comes_back_under_a_new_id_without_a_rebalance(bench: Bench) -> None:
    bench.join("a")
    bench.join("b", instance_id="host-7")
    bench.join("a", member_id="a-id")
    bench.sync("b", 2)
    bench.sync("a", 2, {"a-id": b"0", "b-id": b"1"})
    returned = bench.join("b2", instance_id="host-7")
    assert returned is not None
    assert (returned.generation_id, returned.member_id) == (2, "b2-id")
    synced = bench.sync("b2", 2)
    assert synced is not None
    assert synced.assignment == b"1"
    assert bench.group.state is GroupState.STABLE


def test_the_old_self_of_a_static_member_is_fenced(bench: Bench) -> None:
    bench.join("a", instance_id="host-7")
    bench.sync("a", 1, {"a-id": b"0"})
    bench.join("a2", instance_id="host-7")
    assert bench.heartbeat("a", 1, instance_id="host-7") is ErrorCode.fenced_instance_id
    refused = bench.join("a", member_id="a-id", instance_id="host-7")
    assert refused is not None
    assert refused.error_code is ErrorCode.fenced_instance_id
    assert bench.leave("a-id", instance_id="host-7") is ErrorCode.fenced_instance_id


@pytest.mark.parametrize(("can_skip", "leader"), [(True, "a2-id"), (False, "a-id")])
def test_a_static_leader_that_comes_back_does_not_share_out_anew(
    bench: Bench, can_skip: bool, leader: str
) -> None:
    bench.join("a", instance_id="host-7")
    bench.sync("a", 1, {"a-id": b"0"})
    returned = bench.join("a2", instance_id="host-7", can_skip=can_skip)
    assert returned is not None
    assert (returned.skip_assignment, returned.leader) == (can_skip, leader)
    synced = bench.sync("a2", 1)
    assert synced is not None
    assert synced.assignment == b"0"


def test_a_static_leader_that_is_away_keeps_its_place_but_does_not_lead(bench: Bench) -> None:
    bench.join("a", instance_id="host-7", session_ms=2 * REBALANCE_MS)
    bench.sync("a", 1, {"a-id": b"0"})
    bench.join("b")
    bench.advance(REBALANCE_MS)
    assert (bench.joins["b"].leader, bench.joins["b"].generation_id) == ("b-id", 2)
    assert [each.member_id for each in bench.joins["b"].members] == ["a-id", "b-id"]


def test_a_static_member_may_be_removed_by_its_instance_id_alone(bench: Bench) -> None:
    bench.join("a", instance_id="host-7")
    assert bench.leave("", instance_id="host-7") is ErrorCode.none
    assert bench.group.state is GroupState.EMPTY


# Commits


def test_a_member_may_commit_in_its_generation_only(bench: Bench) -> None:
    generation_id = bench.stable("a", "b")
    assert bench.check_commit("a", generation_id) is ErrorCode.none
    assert bench.check_commit("a", generation_id - 1) is ErrorCode.illegal_generation
    assert bench.check_commit("a", generation_id + 1) is ErrorCode.illegal_generation
    assert bench.check_commit("stranger", generation_id) is ErrorCode.unknown_member_id
    assert bench.check_commit("", -1) is ErrorCode.unknown_member_id


def test_a_member_may_still_commit_while_the_next_generation_is_prepared(bench: Bench) -> None:
    generation_id = bench.stable("a")
    bench.join("b")
    assert bench.check_commit("a", generation_id) is ErrorCode.none


def test_a_member_may_not_commit_before_it_knows_its_assignment(bench: Bench) -> None:
    bench.join("a")
    assert bench.check_commit("a", 1) is ErrorCode.rebalance_in_progress


def test_a_member_that_was_removed_may_not_commit(bench: Bench) -> None:
    generation_id = bench.stable("a", "b")
    bench.advance(SESSION_MS - 1)
    bench.heartbeat("a", generation_id)
    bench.advance(1)
    assert bench.check_commit("b", generation_id) is ErrorCode.unknown_member_id


def test_a_commit_keeps_its_sender_alive(bench: Bench) -> None:
    bench.stable("a")
    bench.advance(SESSION_MS - 1)
    bench.carry_out(bench.coordinator.handle_alive("g", "a-id", bench.now_ms))
    bench.advance(SESSION_MS - 1)
    assert "a-id" in bench.group.members


@pytest.mark.parametrize(("generation_id", "error_code"), [(-1, "none"), (3, "unknown_member_id")])
def test_a_group_without_members_takes_commits_of_those_who_manage_partitions_themselves(
    bench: Bench, generation_id: int, error_code: str
) -> None:
    assert bench.check_commit("", generation_id) is ErrorCode[error_code]


# Offsets


def committed(topic: str = "t", partition: int = 0, offset: int = 7) -> OffsetCommitted:
    return OffsetCommitted(group_id="g", topic=topic, partition=partition, offset=offset)


def test_offsets_of_too_many_groups_are_refused(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_module, "GROUP_COUNT_MAX", 1)
    assert bench.check_commit("", -1) is ErrorCode.none
    bench.coordinator.apply(committed())
    assert bench.check_commit("", -1) is ErrorCode.none
    bench.coordinator.apply(OffsetForgotten(group_id="g", topic="t", partition=0))
    bench.coordinator.apply(OffsetCommitted(group_id="another", topic="t", partition=0, offset=1))
    assert bench.check_commit("", -1) is ErrorCode.policy_violation


def test_a_group_that_has_offsets_outlives_its_members(bench: Bench) -> None:
    bench.stable("a")
    bench.coordinator.apply(committed())
    bench.leave("a-id")
    assert bench.group.state is GroupState.EMPTY
    assert bench.coordinator.group_ids() == ["g"]


def test_a_group_with_members_is_not_deleted(bench: Bench) -> None:
    bench.stable("a")
    assert bench.coordinator.handle_delete("g") == ((), ErrorCode.non_empty_group)
    assert bench.coordinator.handle_delete("nowhere") == ((), ErrorCode.group_id_not_found)


def test_deleting_a_group_forgets_its_offsets(bench: Bench) -> None:
    bench.coordinator.apply(committed(partition=0))
    bench.coordinator.apply(committed(partition=1))
    records, error_code = bench.coordinator.handle_delete("g")
    assert error_code is ErrorCode.none
    for record in records:
        bench.coordinator.apply(record)
    assert bench.coordinator.group_ids() == []


def test_deleting_a_topic_forgets_its_offsets_and_no_others(bench: Bench) -> None:
    bench.coordinator.apply(committed("gone"))
    bench.coordinator.apply(committed("kept"))
    for record in bench.coordinator.handle_topic_deleted("gone"):
        bench.coordinator.apply(record)
    assert list(bench.coordinator.offsets_of("g")) == [("kept", 0)]


offset_records = st.builds(
    OffsetCommitted,
    group_id=st.text(max_size=50),
    topic=st.text(max_size=50),
    partition=st.integers(0, 2**31 - 1),
    offset=st.integers(0, 2**63 - 1),
    leader_epoch=st.integers(-1, 2**31 - 1),
    metadata=st.text(max_size=50),
    committed_at_ms=st.integers(0, 2**63 - 1),
) | st.builds(
    OffsetForgotten,
    group_id=st.text(max_size=50),
    topic=st.text(max_size=50),
    partition=st.integers(0, 2**31 - 1),
)


@given(offset_records)
def test_records_of_offsets_read_back(record: OffsetCommitted | OffsetForgotten) -> None:
    assert decode_offset_record(*encode_offset_record(record)) == record


def test_a_committed_offset_lies_on_disk_as_kafka_writes_it() -> None:
    record = OffsetCommitted(
        group_id="g", topic="t", partition=2, offset=9, leader_epoch=0, metadata="m", committed_at_ms=5
    )
    key, value = encode_offset_record(record)
    assert key == bytes.fromhex("0001 0001 67 0001 74 00000002")
    assert value == bytes.fromhex("0003 0000000000000009 00000000 0001 6d 0000000000000005")


def test_an_offset_without_a_leader_epoch_is_understood() -> None:
    value = bytes.fromhex("0001 0000000000000009 0001 6d 0000000000000005 ffffffffffffffff")
    decoded = decode_offset_record(bytes.fromhex("0001 0001 67 0001 74 00000002"), value)
    assert decoded == OffsetCommitted(
        group_id="g", topic="t", partition=2, offset=9, metadata="m", committed_at_ms=5
    )


def test_kafkas_records_of_group_metadata_are_skipped() -> None:
    assert decode_offset_record(bytes.fromhex("0002 0001 67"), b"\0\3") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("", None),
        ("0001 0009 67", None),
        ("0001 0001 ff 0001 74 00000002", None),
        ("0001 0001 67 0001 74 00000002", "0003 00"),
        ("0001 0001 67 0001 74 00000002", "0063 0000000000000009"),
    ],
)
def test_a_damaged_record_is_named_as_such(key: str, value: str | None) -> None:
    with pytest.raises(CorruptBatch, match="committed offset"):
        decode_offset_record(bytes.fromhex(key), None if value is None else bytes.fromhex(value))
