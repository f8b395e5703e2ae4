"""Membership of share groups, one rule at a time."""

from __future__ import annotations

from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from headrace.kafka.groups import coordinator as coordinator_module
from headrace.kafka.groups.committing import Committer
from headrace.kafka.groups.consumer.heartbeat import Occasion
from headrace.kafka.groups.consumer.state import TopicInfo
from headrace.kafka.groups.coordinator import GroupCoordinator, Outcome
from headrace.kafka.groups.expiry import abandoned_groups, expired_offsets
from headrace.kafka.groups.membership import Joiner
from headrace.kafka.groups.offsets import OffsetCommitted, OffsetPending
from headrace.kafka.groups.share.heartbeat import ShareGroupLimits, ShareOccasion
from headrace.kafka.groups.share.state import ShareGroup, ShareGroupState
from headrace.kafka.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from headrace.kafka.messages.heartbeat import HeartbeatRequest
from headrace.kafka.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.kafka.messages.leave_group import MemberIdentity
from headrace.kafka.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from headrace.kafka.messages.sync_group import SyncGroupRequest

ORDERS, REFUNDS = UUID(int=1), UUID(int=2)
SESSION_MS = 45_000
SOONEST_MS, LATEST_MS = 0, 2**62


class Bench:
    """A coordinator, topics, and members that say no more than they have to."""

    def __init__(self, limits: ShareGroupLimits | None = None) -> None:
        self.coordinator = GroupCoordinator()
        self.limits = limits or ShareGroupLimits()
        self.now_ms = 0
        self.topics = {"orders": TopicInfo(ORDERS, 4)}

    @property
    def group(self) -> ShareGroup:
        return self.coordinator.share_groups["g"]

    def send(self, request: ShareGroupHeartbeatRequest) -> ShareGroupHeartbeatResponse:
        occasion = ShareOccasion(
            now_ms=self.now_ms,
            topics=self.topics,
            client_id="client",
            client_host="/host",
            limits=self.limits,
        )
        outcome, response = self.coordinator.handle_share_heartbeat(request, occasion)
        self.apply(outcome)
        return response

    def apply(self, outcome: Outcome) -> None:
        for record in outcome.records:
            self.coordinator.apply(record)

    def join(self, member_id: str, *names: str) -> ShareGroupHeartbeatResponse:
        return self.beat(member_id, 0, names or ("orders",))

    def beat(
        self,
        member_id: str,
        epoch: int,
        names: tuple[str, ...] | None = None,
        *,
        rack_id: str | None = None,
    ) -> ShareGroupHeartbeatResponse:
        return self.send(
            ShareGroupHeartbeatRequest(
                group_id="g",
                member_id=member_id,
                member_epoch=epoch,
                rack_id=rack_id,
                subscribed_topic_names=names,
            )
        )

    def advance(self, by_ms: int) -> None:
        self.now_ms += by_ms
        self.apply(self.coordinator.handle_time("g", self.now_ms))

    def consumer_beat(self, epoch: int) -> ConsumerGroupHeartbeatResponse:
        request = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id="c",
            member_epoch=epoch,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=("orders",),
            topic_partitions=(),
        )
        occasion = Occasion(now_ms=self.now_ms, topics=self.topics)
        outcome, response = self.coordinator.handle_consumer_heartbeat(request, occasion)
        self.apply(outcome)
        return response

    def classic_join(self, member_id: str = "") -> ErrorCode | None:
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=SESSION_MS,
            member_id=member_id,
            protocol_type="consumer",
            protocols=(JoinGroupRequestProtocol(name="range", metadata=b""),),
        )
        joiner = Joiner(token=object(), new_member_id="classic", must_know_id=False)
        outcome, response = self.coordinator.handle_join(request, joiner, self.now_ms)
        self.apply(outcome)
        return None if response is None else response.error_code


@pytest.fixture
def bench() -> Bench:
    return Bench()


def told(response: ShareGroupHeartbeatResponse) -> set[int] | None:
    """The numbers of the partitions that the member is told to read; None if it is told nothing."""
    if response.assignment is None:
        return None
    return {index for topic in response.assignment.topic_partitions for index in topic.partitions}


def offset(group_id: str = "g") -> OffsetCommitted:
    return OffsetCommitted(group_id=group_id, topic="orders", partition=0, offset=7)


# Joining and sharing


def test_the_first_member_is_given_everything_at_once(bench: Bench) -> None:
    joined = bench.join("a")
    assert (joined.error_code, joined.member_id, joined.member_epoch) == (ErrorCode.none, "a", 1)
    assert (told(joined), joined.heartbeat_interval_ms) == ({0, 1, 2, 3}, 5_000)
    assert bench.group.state is ShareGroupState.STABLE


def test_a_member_is_told_its_partitions_when_they_change_or_it_says_what_it_wants(bench: Bench) -> None:
    bench.join("a")
    assert told(bench.beat("a", 1)) is None
    assert told(bench.beat("a", 1, ("orders",))) == {0, 1, 2, 3}
    bench.join("b")
    moved = bench.beat("a", 1)
    assert (moved.member_epoch, len(told(moved) or ())) == (2, 2)
    assert told(bench.beat("a", 2)) is None


def test_a_newcomer_reads_before_others_have_heard_that_they_should_not(bench: Bench) -> None:
    bench.join("a")
    newcomer = bench.join("b")
    assert (newcomer.member_epoch, len(told(newcomer) or ())) == (2, 2)
    assert bench.group.members["a"].epoch == 1
    assert len(bench.group.members["a"].assigned) == 4


def test_members_beyond_the_number_of_partitions_read_what_others_read(bench: Bench) -> None:
    bench.topics["orders"] = TopicInfo(ORDERS, 1)
    assert [told(bench.join(member_id)) for member_id in "abc"] == [{0}, {0}, {0}]


def test_partitions_of_one_who_leaves_go_to_those_who_stay(bench: Bench) -> None:
    bench.join("a")
    bench.join("b")
    left = bench.beat("a", -1)
    assert (left.error_code, left.member_id, left.member_epoch) == (ErrorCode.none, "a", -1)
    assert (left.heartbeat_interval_ms, left.assignment) == (0, None)
    assert told(bench.beat("b", 2)) == {0, 1, 2, 3}


def test_one_may_leave_whatever_epoch_it_was_in(bench: Bench) -> None:
    bench.join("a")
    for member_id in "bcd":
        bench.join(member_id)
    assert bench.beat("a", -1).error_code is ErrorCode.none


def test_a_group_whose_members_have_left_is_empty_and_counts_on_when_one_comes(bench: Bench) -> None:
    bench.join("a")
    bench.beat("a", -1)
    assert (bench.group.state, bench.group.next_deadline_ms()) == (ShareGroupState.EMPTY, None)
    assert bench.join("b").member_epoch == 3


def test_a_full_group_takes_nobody_else_but_keeps_those_it_has() -> None:
    bench = Bench(ShareGroupLimits(member_count_max=2))
    bench.join("a")
    bench.join("b")
    refused = bench.join("c")
    assert (refused.error_code, refused.error_message) == (
        ErrorCode.group_max_size_reached,
        "The share group has reached its maximum capacity of 2 members.",
    )
    assert bench.join("a").error_code is ErrorCode.none


def test_a_member_is_known_by_what_it_said_last(bench: Bench) -> None:
    bench.beat("a", 0, ("orders",), rack_id="rack-1")
    bench.beat("a", 1)
    member = bench.group.members["a"]
    assert (member.rack_id, member.client_id, member.client_host) == ("rack-1", "client", "/host")
    assert member.subscribed_names == {"orders"}


# Topics


def test_partitions_that_a_topic_gains_are_shared_out_at_the_next_heartbeat(bench: Bench) -> None:
    bench.join("a")
    bench.topics["orders"] = TopicInfo(ORDERS, 6)
    grown = bench.beat("a", 1)
    assert (grown.member_epoch, told(grown)) == (2, {0, 1, 2, 3, 4, 5})


def test_a_topic_that_does_not_exist_yet_is_shared_out_once_it_does(bench: Bench) -> None:
    assert told(bench.join("a", "refunds")) == set()
    assert told(bench.beat("a", 1)) is None
    bench.topics["refunds"] = TopicInfo(REFUNDS, 2)
    assert told(bench.beat("a", 1)) == {0, 1}


def test_a_topic_that_is_deleted_is_nobody_s_any_more(bench: Bench) -> None:
    bench.join("a")
    del bench.topics["orders"]
    assert told(bench.beat("a", 1)) == set()
    assert bench.coordinator.is_subscribed("g", "orders")


def test_a_topic_that_is_deleted_and_made_anew_is_another_one(bench: Bench) -> None:
    bench.join("a")
    bench.topics["orders"] = TopicInfo(UUID(int=9), 4)
    bench.beat("a", 1)
    assert {topic_id for topic_id, _ in bench.group.members["a"].assigned} == {UUID(int=9)}


def test_a_member_may_subscribe_anew_and_to_nothing(bench: Bench) -> None:
    bench.topics["refunds"] = TopicInfo(REFUNDS, 2)
    bench.join("a")
    assert told(bench.beat("a", 1, ("refunds",))) == {0, 1}
    assert told(bench.beat("a", 2, ())) == set()
    assert not bench.group.is_subscribed("refunds")


def test_a_subscription_that_says_the_same_in_other_words_is_none(bench: Bench) -> None:
    bench.topics["refunds"] = TopicInfo(REFUNDS, 2)
    bench.join("a", "orders", "refunds")
    assert bench.beat("a", 1, ("refunds", "orders", "refunds")).member_epoch == 1


# Epochs


@pytest.mark.parametrize(
    ("epoch", "known"),
    [
        (3, "a smaller member epoch (3) than {}, and it does not match the previous member epoch (1)"),
        (7, "a greater member epoch (7) than {}"),
    ],
)
def test_a_member_in_another_epoch_is_fenced(bench: Bench, epoch: int, known: str) -> None:
    bench.join("a")
    for member_id in ("b", "c", "d", "e"):
        bench.join(member_id)
    assert bench.beat("a", 1).member_epoch == 5
    refused = bench.beat("a", epoch)
    assert refused.error_code is ErrorCode.fenced_member_epoch
    known = known.format("the one known by the group coordinator (5)")
    assert refused.error_message == (
        f"The share group member has {known}. The member must abandon all its partitions and rejoin."
    )


def test_a_member_that_missed_the_answer_may_still_say_the_epoch_before(bench: Bench) -> None:
    bench.join("a")
    bench.join("b")
    assert bench.beat("a", 1).member_epoch == 2
    assert bench.beat("a", 1).member_epoch == 2


def test_a_member_that_joins_anew_takes_up_its_place(bench: Bench) -> None:
    bench.join("a")
    bench.join("b")
    again = bench.join("a")
    assert (again.member_epoch, len(told(again) or ())) == (2, 2)
    assert set(bench.group.members) == {"a", "b"}


@pytest.mark.parametrize("epoch", [1, -1])
def test_one_who_is_no_member_is_told_so(bench: Bench, epoch: int) -> None:
    bench.join("b")
    refused = bench.beat("a", epoch)
    assert refused.error_code is ErrorCode.unknown_member_id
    assert refused.error_message == "Member a is not a member of group g."


@pytest.mark.parametrize(("epoch", "message"), [(1, "Share group g not found."), (-1, "Group g not found.")])
def test_a_group_begins_with_a_member_that_joins(bench: Bench, epoch: int, message: str) -> None:
    refused = bench.beat("a", epoch)
    assert (refused.error_code, refused.error_message) == (ErrorCode.group_id_not_found, message)
    assert "g" not in bench.coordinator


# Time


def test_a_member_that_falls_silent_is_removed(bench: Bench) -> None:
    bench.join("a")
    bench.join("b")
    bench.advance(SESSION_MS - 1)
    bench.beat("b", 2)
    bench.advance(1)
    assert set(bench.group.members) == {"b"}
    assert told(bench.beat("b", 2)) == {0, 1, 2, 3}
    assert bench.beat("a", 1).error_code is ErrorCode.unknown_member_id


def test_a_group_without_members_stays_until_it_is_deleted(bench: Bench) -> None:
    bench.join("a")
    bench.advance(SESSION_MS)
    assert bench.coordinator.is_empty("g")
    assert abandoned_groups(bench.coordinator, ()) == []
    forgotten, error_code = bench.coordinator.handle_delete("g")
    assert (forgotten, error_code) == ((), ErrorCode.none)
    bench.apply(bench.coordinator.handle_end("g"))
    assert "g" not in bench.coordinator
    assert bench.coordinator.group_ids() == []


def test_a_group_with_members_is_not_deleted(bench: Bench) -> None:
    bench.join("a")
    assert bench.coordinator.handle_delete("g") == ((), ErrorCode.non_empty_group)
    assert bench.coordinator.handle_end("g").records == ()


# What is refused


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"member_id": ""}, None),
        ({"member_id": "x" * 37}, None),
        ({"group_id": ""}, "GroupId can't be empty."),
        ({"group_id": "  "}, "GroupId can't be empty."),
        ({"rack_id": ""}, "RackId can't be empty."),
        ({"subscribed_topic_names": None}, "SubscribedTopicNames must be set in first request."),
        ({"subscribed_topic_names": ()}, "SubscribedTopicNames must be set in first request."),
        ({"member_epoch": -2}, "MemberEpoch is invalid."),
        ({"subscribed_topic_names": ("t",) * 10_001}, "SubscribedTopicNames has more than 10000 names."),
    ],
)
def test_requests_that_make_no_sense_are_refused(
    bench: Bench, fields: dict[str, object], message: str | None
) -> None:
    complete: dict[str, object] = {
        "group_id": "g",
        "member_id": "a",
        "member_epoch": 0,
        "subscribed_topic_names": ("orders",),
    }
    refused = bench.send(ShareGroupHeartbeatRequest(**{**complete, **fields}))  # type: ignore[arg-type]  # by name
    assert (refused.error_code, refused.error_message) == (ErrorCode.invalid_request, message)
    assert bench.coordinator.group_ids() == []


def test_there_are_no_more_groups_than_there_may_be(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.join("a")
    monkeypatch.setattr(coordinator_module, "GROUP_COUNT_MAX", 1)
    request = ShareGroupHeartbeatRequest(
        group_id="h", member_id="a", member_epoch=0, subscribed_topic_names=("orders",)
    )
    refused = bench.send(request)
    assert refused.error_code is ErrorCode.policy_violation
    assert refused.error_message == "There are 1 groups already: delete one that nobody needs."
    assert bench.join("b").error_code is ErrorCode.none


# Groups of other kinds


@pytest.mark.parametrize("is_empty", [False, True])
def test_nobody_uses_a_share_group_as_one_of_another_kind(bench: Bench, is_empty: bool) -> None:
    bench.join("a")
    if is_empty:
        bench.beat("a", -1)
    coordinator = bench.coordinator
    for member_id in ("", "a"):
        assert bench.classic_join(member_id) is ErrorCode.inconsistent_group_protocol
    sync = SyncGroupRequest(group_id="g", generation_id=1, member_id="a", assignments=())
    refused = coordinator.handle_sync(sync, object(), 0)[1]
    assert refused is not None
    assert refused.error_code is ErrorCode.unknown_member_id
    heartbeat = HeartbeatRequest(group_id="g", generation_id=1, member_id="a")
    assert coordinator.handle_heartbeat(heartbeat, 0)[1] is ErrorCode.unknown_member_id
    outcome, left = coordinator.handle_leave("g", [MemberIdentity(member_id="a")], 0)
    assert ([each.error_code for each in left], outcome) == ([ErrorCode.unknown_member_id], Outcome())
    for epoch in (0, 1, -1):
        refusal = bench.consumer_beat(epoch)
        assert refusal.error_code is ErrorCode.group_id_not_found
        assert refusal.error_message == "Group g is not a consumer group."
    assert coordinator.groups == {}
    assert coordinator.consumer_groups == {}


def test_a_share_group_has_no_offsets(bench: Bench) -> None:
    bench.join("a")
    for committer in (
        Committer(group_id="g"),
        Committer(group_id="g", member_id="a", generation_id=1),
        Committer(group_id="g", is_transactional=True),
    ):
        assert bench.coordinator.check_commit(committer) is ErrorCode.group_id_not_found
    assert bench.coordinator.check_fetch("g", "a", 9) is ErrorCode.none
    assert bench.coordinator.check_delete_offsets("g") is ErrorCode.group_id_not_found
    assert expired_offsets(bench.coordinator, {"g": SOONEST_MS}, LATEST_MS) == []


@pytest.mark.parametrize("kind", ["classic", "consumer", "offsets", "pending offsets"])
def test_nobody_uses_a_group_of_another_kind_as_a_share_group(bench: Bench, kind: str) -> None:
    if kind == "classic":
        bench.classic_join()
        bench.advance(10 * SESSION_MS)
    elif kind == "consumer":
        bench.consumer_beat(0)
        bench.consumer_beat(-1)
    elif kind == "offsets":
        bench.coordinator.apply(offset())
    else:
        bench.coordinator.apply(OffsetPending(producer_id=1, committed=offset()))
    assert bench.coordinator.is_empty("g")
    for response in (bench.join("a"), bench.beat("a", 1), bench.beat("a", -1)):
        assert response.error_code is ErrorCode.group_id_not_found
        assert response.error_message == "Group g is not a share group."
    assert bench.coordinator.share_groups == {}
