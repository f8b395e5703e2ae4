"""Consumer groups by KIP-848, one rule at a time."""

from __future__ import annotations

from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from headrace.kafka.groups.committing import Committer
from headrace.kafka.groups.consumer.heartbeat import ConsumerGroupLimits, Occasion
from headrace.kafka.groups.consumer.state import ConsumerGroup, ConsumerGroupState, TopicInfo
from headrace.kafka.groups.coordinator import GroupCoordinator
from headrace.kafka.groups.membership import Joiner
from headrace.kafka.groups.offsets import OffsetCommitted
from headrace.kafka.groups.state import GroupState
from headrace.kafka.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from headrace.kafka.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.kafka.messages.leave_group import MemberIdentity

ORDERS, REFUNDS = UUID(int=1), UUID(int=2)
SESSION_MS = 45_000
REBALANCE_MS = 60_000


class Bench:
    """A coordinator, topics, and members that say no more than they have to."""

    def __init__(self, limits: ConsumerGroupLimits | None = None) -> None:
        self.coordinator = GroupCoordinator()
        self.limits = limits or ConsumerGroupLimits()
        self.now_ms = 0
        self.topics = {"orders": TopicInfo(ORDERS, 4)}

    @property
    def group(self) -> ConsumerGroup:
        return self.coordinator.consumer_groups["g"]

    def send(
        self, request: ConsumerGroupHeartbeatRequest, **sender: bool | str
    ) -> ConsumerGroupHeartbeatResponse:
        occasion = Occasion(
            now_ms=self.now_ms,
            topics=self.topics,
            limits=self.limits,
            new_member_id=str(sender.get("new_member_id", "")),
            must_have_id=bool(sender.get("must_have_id", True)),
        )
        outcome, response = self.coordinator.handle_consumer_heartbeat(request, occasion)
        for record in outcome.records:
            self.coordinator.apply(record)
        return response

    def join(
        self,
        member_id: str,
        *names: str,
        regex: str | None = None,
        instance_id: str | None = None,
        assignor: str | None = None,
    ) -> ConsumerGroupHeartbeatResponse:
        return self.send(
            ConsumerGroupHeartbeatRequest(
                group_id="g",
                member_id=member_id,
                member_epoch=0,
                instance_id=instance_id,
                rebalance_timeout_ms=REBALANCE_MS,
                subscribed_topic_names=names if names or regex is not None else ("orders",),
                subscribed_topic_regex=regex,
                server_assignor=assignor,
                topic_partitions=(),
            )
        )

    def beat(
        self,
        member_id: str,
        epoch: int,
        *,
        owned: set[int] | None = None,
        names: tuple[str, ...] | None = None,
        instance_id: str | None = None,
    ) -> ConsumerGroupHeartbeatResponse:
        partitions = None
        if owned is not None:
            partitions = (TopicPartitions(topic_id=ORDERS, partitions=tuple(owned)),)
        return self.send(
            ConsumerGroupHeartbeatRequest(
                group_id="g",
                member_id=member_id,
                member_epoch=epoch,
                instance_id=instance_id,
                subscribed_topic_names=names,
                topic_partitions=partitions,
            )
        )

    def advance(self, by_ms: int) -> None:
        self.now_ms += by_ms
        for record in self.coordinator.handle_time("g", self.now_ms).records:
            self.coordinator.apply(record)

    def check_commit(self, member_id: str, epoch: int, *partitions: int, version: int = 9) -> ErrorCode:
        return self.coordinator.check_commit(
            Committer(
                group_id="g",
                member_id=member_id,
                generation_id=epoch,
                api_version=version,
                partitions=[(ORDERS, index) for index in partitions],
            )
        )


@pytest.fixture
def bench() -> Bench:
    return Bench()


def told(response: ConsumerGroupHeartbeatResponse) -> set[int] | None:
    """The partitions of `orders` that the member is told to own; None if it is told nothing."""
    if response.assignment is None:
        return None
    return {index for topic in response.assignment.topic_partitions for index in topic.partitions}


# Joining and sharing


def test_the_first_member_is_given_everything_at_once(bench: Bench) -> None:
    joined = bench.join("a")
    assert (joined.error_code, joined.member_id, joined.member_epoch) == (ErrorCode.none, "a", 1)
    assert (told(joined), joined.heartbeat_interval_ms) == ({0, 1, 2, 3}, 5_000)
    assert bench.group.state is ConsumerGroupState.STABLE


def test_a_member_is_told_its_partitions_only_when_they_change_or_it_says_everything(bench: Bench) -> None:
    bench.join("a")
    assert told(bench.beat("a", 1)) is None
    assert told(bench.join("a")) == {0, 1, 2, 3}


def test_a_partition_changes_hands_only_when_its_owner_has_let_go(bench: Bench) -> None:
    bench.join("a")
    newcomer = bench.join("b")
    assert (newcomer.member_epoch, told(newcomer)) == (2, set())
    revoking = bench.beat("a", 1)
    assert (revoking.member_epoch, told(revoking)) == (1, {0, 1})
    assert told(bench.beat("b", 2)) is None
    assert bench.beat("a", 1, owned={0, 1, 2}).member_epoch == 1
    assert told(bench.beat("b", 2)) is None
    assert bench.group.state is ConsumerGroupState.RECONCILING
    assert bench.beat("a", 1, owned={0, 1}).member_epoch == 2
    assert told(bench.beat("b", 2)) == {2, 3}
    assert bench.group.state.value == "Stable"


def test_a_member_that_does_not_say_what_it_owns_has_not_let_go(bench: Bench) -> None:
    bench.join("a")
    bench.join("b")
    for _ in range(5):
        assert bench.beat("a", 1).member_epoch == 1
    assert told(bench.beat("b", 2)) is None


def test_partitions_of_one_who_leaves_are_free_at_once(bench: Bench) -> None:
    bench.join("a")
    bench.join("b")
    left = bench.beat("a", -1)
    assert (left.error_code, left.member_epoch) == (ErrorCode.none, -1)
    assert told(bench.beat("b", 2)) == {0, 1, 2, 3}


def test_a_group_whose_members_have_left_is_empty_and_counts_on_when_one_comes(bench: Bench) -> None:
    bench.join("a")
    bench.beat("a", -1)
    assert (bench.group.state, bench.group.next_deadline_ms()) == (ConsumerGroupState.EMPTY, None)
    assert bench.join("b").member_epoch == 3


def test_the_members_choose_the_assignor(bench: Bench) -> None:
    bench.join("a", "orders", assignor="range")
    assert bench.group.assignor == "range"
    bench.beat("a", -1)
    bench.join("a", "orders")
    assert bench.group.assignor == "uniform"


def test_a_full_group_takes_nobody_else_but_keeps_those_it_has() -> None:
    bench = Bench(ConsumerGroupLimits(member_count_max=2))
    bench.join("a")
    bench.join("b")
    assert bench.join("c").error_code is ErrorCode.group_max_size_reached
    assert bench.join("a").error_code is ErrorCode.none


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


def test_a_topic_that_is_deleted_and_made_anew_is_another_one(bench: Bench) -> None:
    bench.join("a")
    bench.topics["orders"] = TopicInfo(UUID(int=9), 4)
    bench.beat("a", 1)
    bench.beat("a", 1, owned=set())
    assert {topic_id for topic_id, _ in bench.group.members["a"].assigned} == {UUID(int=9)}


def test_a_member_may_subscribe_anew(bench: Bench) -> None:
    bench.topics["refunds"] = TopicInfo(REFUNDS, 2)
    bench.join("a")
    assert told(bench.beat("a", 1, names=("refunds",))) == set()
    assert told(bench.beat("a", 1, owned=set())) == {0, 1}


def test_a_regular_expression_follows_the_topics_that_come(bench: Bench) -> None:
    assert told(bench.join("a", regex="ord.*")) == {0, 1, 2, 3}
    bench.topics["orders.eu"] = TopicInfo(REFUNDS, 7)
    bench.now_ms += 1_000
    assert told(bench.beat("a", 1)) == set(range(7))


def test_an_expression_that_can_not_be_understood_is_refused_with_the_reason(bench: Bench) -> None:
    refused = bench.join("a", regex="(a")
    assert refused.error_code is ErrorCode.invalid_regular_expression
    assert (
        refused.error_message
        == "SubscribedTopicRegex `(a` is not a valid regular expression: missing closing )."
    )
    assert "g" not in bench.coordinator


# Epochs


@pytest.mark.parametrize("epoch", [1, 3, 7])
def test_a_member_in_another_epoch_is_fenced(bench: Bench, epoch: int) -> None:
    for _ in range(2):
        bench.join("b")
        bench.beat("b", -1)
    bench.join("a")
    assert bench.group.members["a"].epoch == 5
    refused = bench.beat("a", epoch)
    assert refused.error_code is ErrorCode.fenced_member_epoch
    assert f"({epoch}) than the one known by the group coordinator (5)" in (refused.error_message or "")


def test_a_member_that_missed_the_answer_may_still_say_the_epoch_before(bench: Bench) -> None:
    bench.join("a")
    bench.topics["orders"] = TopicInfo(ORDERS, 6)
    assert bench.beat("a", 1).member_epoch == 2
    assert bench.beat("a", 1).error_code is ErrorCode.fenced_member_epoch
    assert bench.beat("a", 1, owned={0, 7}).error_code is ErrorCode.fenced_member_epoch
    assert bench.beat("a", 1, owned={0, 1}).member_epoch == 2


def test_a_fenced_member_comes_back_under_its_id(bench: Bench) -> None:
    bench.join("a")
    bench.join("b")
    bench.beat("a", 1)
    again = bench.join("a")
    assert (again.member_epoch, told(again)) == (2, {0, 1})
    assert told(bench.beat("b", 2)) == {2, 3}


@pytest.mark.parametrize("member_id", ["a", "unheard-of"])
def test_one_who_is_no_member_is_told_so(bench: Bench, member_id: str) -> None:
    bench.join("b")
    assert bench.beat(member_id, 1).error_code is ErrorCode.unknown_member_id
    assert bench.beat(member_id, -1).error_code is ErrorCode.unknown_member_id


def test_members_of_before_a_restart_are_unknown_and_join_again(bench: Bench) -> None:
    assert bench.beat("a", 7).error_code is ErrorCode.unknown_member_id
    assert bench.join("a").error_code is ErrorCode.none


def test_nobody_can_leave_a_group_that_is_not_there(bench: Bench) -> None:
    assert bench.beat("a", -1).error_code is ErrorCode.group_id_not_found


# Time


def test_a_member_that_falls_silent_is_removed_and_its_partitions_are_free(bench: Bench) -> None:
    bench.join("a")
    bench.join("b")
    bench.advance(SESSION_MS - 1)
    bench.beat("b", 2)
    bench.advance(1)
    assert set(bench.group.members) == {"b"}
    assert told(bench.beat("b", 2)) == {0, 1, 2, 3}
    assert bench.beat("a", 1).error_code is ErrorCode.unknown_member_id


def test_a_member_that_does_not_let_go_in_time_is_removed_though_it_lives(bench: Bench) -> None:
    bench.join("a")
    bench.join("b")
    bench.beat("a", 1)
    for _ in range(REBALANCE_MS // 10_000):
        bench.beat("a", 1)
        bench.beat("b", 2)
        bench.advance(10_000)
    assert set(bench.group.members) == {"b"}
    assert told(bench.beat("b", 2)) == {0, 1, 2, 3}


def test_one_who_has_let_go_is_not_held_to_the_deadline_any_more(bench: Bench) -> None:
    bench.join("a")
    bench.join("b")
    bench.beat("a", 1)
    bench.beat("a", 1, owned={0, 1})
    for _ in range(2 * REBALANCE_MS // 10_000):
        bench.advance(10_000)
        bench.beat("a", 2)
        bench.beat("b", 2)
    assert set(bench.group.members) == {"a", "b"}


# Static members


def test_a_static_member_that_leaves_for_a_while_finds_its_partitions_again(bench: Bench) -> None:
    bench.join("a", instance_id="host-1")
    bench.join("b")
    bench.beat("a", 1)
    bench.beat("a", 1, owned={0, 1})
    bench.beat("b", 2)
    away = bench.beat("a", -2, instance_id="host-1")
    assert (away.error_code, away.member_epoch) == (ErrorCode.none, -2)
    assert told(bench.beat("b", 2)) is None
    back = bench.join("a2", instance_id="host-1")
    assert (back.member_epoch, told(back)) == (2, {0, 1})
    assert set(bench.group.members) == {"a2", "b"}


def test_a_static_member_that_stays_away_loses_its_place(bench: Bench) -> None:
    bench.join("a", instance_id="host-1")
    bench.beat("a", -2, instance_id="host-1")
    bench.advance(SESSION_MS)
    assert bench.group.state is ConsumerGroupState.EMPTY


def test_what_a_static_member_was_to_give_up_is_free_when_it_leaves_for_a_while(bench: Bench) -> None:
    bench.join("a", instance_id="host-1")
    bench.join("b")
    bench.beat("a", 1)
    bench.beat("a", -2, instance_id="host-1")
    assert told(bench.beat("b", 2)) == {2, 3}


def test_nobody_takes_the_place_of_a_static_member_that_is_there(bench: Bench) -> None:
    bench.join("a", instance_id="host-1")
    assert bench.join("b", instance_id="host-1").error_code is ErrorCode.unreleased_instance_id
    assert bench.beat("b", 1, instance_id="host-1").error_code is ErrorCode.fenced_instance_id
    assert bench.beat("b", -1, instance_id="host-1").error_code is ErrorCode.fenced_instance_id


def test_a_static_member_is_fenced_by_its_new_self(bench: Bench) -> None:
    bench.join("a", instance_id="host-1")
    bench.beat("a", -2, instance_id="host-1")
    assert bench.beat("a", 1, instance_id="host-1").error_code is ErrorCode.fenced_member_epoch
    bench.join("b", instance_id="host-1")
    assert bench.beat("a", 1, instance_id="host-1").error_code is ErrorCode.fenced_instance_id
    assert bench.beat("b", 1, instance_id="host-9").error_code is ErrorCode.unknown_member_id


# What is refused


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"group_id": ""}, "GroupId can't be empty."),
        ({"member_id": ""}, "MemberId can't be empty."),
        ({"instance_id": ""}, "InstanceId can't be empty."),
        ({"rack_id": ""}, "RackId can't be empty."),
        ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
        ({"topic_partitions": None}, "TopicPartitions must be empty when (re-)joining."),
        (
            {"subscribed_topic_names": None},
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        ),
        ({"member_epoch": -3}, "MemberEpoch is invalid."),
        (
            {"subscribed_topic_names": ("t",) * 10_001},
            "SubscribedTopicNames has more than 10000 names: use SubscribedTopicRegex.",
        ),
    ],
)
def test_requests_that_make_no_sense_are_refused(
    bench: Bench, fields: dict[str, object], message: str
) -> None:
    complete: dict[str, object] = {
        "group_id": "g",
        "member_id": "a",
        "member_epoch": 0,
        "rebalance_timeout_ms": REBALANCE_MS,
        "subscribed_topic_names": ("orders",),
        "topic_partitions": (),
    }
    refused = bench.send(ConsumerGroupHeartbeatRequest(**{**complete, **fields}))  # type: ignore[arg-type]  # by name
    assert (refused.error_code, refused.error_message) == (ErrorCode.invalid_request, message)
    assert bench.coordinator.group_ids() == []


def test_a_static_member_that_leaves_for_a_while_says_who_it_is(bench: Bench) -> None:
    bench.join("a", instance_id="host-1")
    assert bench.beat("a", -2).error_code is ErrorCode.invalid_request


def test_an_unknown_assignor_is_refused(bench: Bench) -> None:
    refused = bench.join("a", "orders", assignor="lottery")
    assert refused.error_code is ErrorCode.unsupported_assignor
    assert refused.error_message == (
        "ServerAssignor lottery is not supported. Supported assignors: uniform, range."
    )


def test_old_clients_leave_it_to_the_broker_to_name_them(bench: Bench) -> None:
    request = ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="",
        member_epoch=0,
        rebalance_timeout_ms=REBALANCE_MS,
        subscribed_topic_names=("orders",),
        topic_partitions=(),
    )
    assert bench.send(request, must_have_id=False, new_member_id="made-up").member_id == "made-up"


# Commits


def test_a_member_commits_in_its_epoch(bench: Bench) -> None:
    bench.join("a")
    assert bench.check_commit("a", 1, 0) is ErrorCode.none
    assert bench.check_commit("a", 2, 0) is ErrorCode.stale_member_epoch
    assert bench.check_commit("b", 1, 0) is ErrorCode.unknown_member_id
    assert bench.check_commit("a", 1, 0, version=8) is ErrorCode.unsupported_version


def test_a_member_may_say_an_earlier_epoch_for_what_it_has_had_since_then(bench: Bench) -> None:
    bench.join("a")
    bench.topics["orders"] = TopicInfo(ORDERS, 6)
    bench.beat("a", 1)
    assert bench.check_commit("a", 1, 0, 3) is ErrorCode.none
    assert bench.check_commit("a", 1, 0, 5) is ErrorCode.stale_member_epoch
    assert bench.check_commit("a", 0, 0) is ErrorCode.stale_member_epoch


def test_one_who_claims_no_membership_commits_only_where_there_are_no_members(bench: Bench) -> None:
    bench.join("a")
    assert bench.check_commit("", -1, 0) is ErrorCode.unknown_member_id
    bench.beat("a", -1)
    assert bench.check_commit("", -1, 0) is ErrorCode.none
    assert bench.check_commit("a", 1, 0) is ErrorCode.unknown_member_id


@pytest.mark.parametrize(("version", "error_code"), [(8, "illegal_generation"), (9, "unknown_member_id")])
def test_a_zombie_can_not_commit_to_a_group_that_is_gone(bench: Bench, version: int, error_code: str) -> None:
    assert bench.check_commit("a", 1, 0, version=version) is ErrorCode[error_code]


@pytest.mark.parametrize(
    ("member_id", "epoch", "error_code"),
    [
        (None, -1, "none"),
        ("a", 1, "none"),
        ("a", 2, "stale_member_epoch"),
        ("b", 1, "unknown_member_id"),
    ],
)
def test_members_hear_offsets_in_their_epoch(
    bench: Bench, member_id: str | None, epoch: int, error_code: str
) -> None:
    bench.join("a")
    assert bench.coordinator.check_fetch("g", member_id, epoch) is ErrorCode[error_code]


# Both protocols


def classic_join(bench: Bench, member_id: str = "") -> ErrorCode | None:
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=REBALANCE_MS,
        member_id=member_id,
        protocol_type="consumer",
        protocols=(JoinGroupRequestProtocol(name="range", metadata=b""),),
    )
    joiner = Joiner(token=object(), new_member_id="classic", must_know_id=False)
    outcome, response = bench.coordinator.handle_join(request, joiner, bench.now_ms)
    for record in outcome.records:
        bench.coordinator.apply(record)
    return None if response is None else response.error_code


def test_a_group_with_members_keeps_its_protocol(bench: Bench) -> None:
    bench.join("a")
    assert classic_join(bench) is ErrorCode.inconsistent_group_protocol
    bench.beat("a", -1)
    assert classic_join(bench) is None
    refused = bench.join("a")
    assert refused.error_code is ErrorCode.group_id_not_found
    assert refused.error_message == "Group g is not a consumer group."


def test_an_empty_group_takes_the_protocol_of_who_comes_next_and_keeps_its_offsets(bench: Bench) -> None:
    committed = OffsetCommitted(group_id="g", topic="orders", partition=0, offset=7)
    bench.coordinator.apply(committed)
    assert classic_join(bench) is None
    assert bench.coordinator.groups["g"].state is GroupState.COMPLETING_REBALANCE
    bench.advance(SESSION_MS + REBALANCE_MS)
    assert bench.join("a").error_code is ErrorCode.none
    assert "g" not in bench.coordinator.groups
    assert bench.coordinator.offsets_of("g") == {("orders", 0): committed}


def test_tools_send_members_away(bench: Bench) -> None:
    bench.join("a")
    bench.join("b", instance_id="host-1")
    identities = [
        MemberIdentity(member_id="a", group_instance_id=None),
        MemberIdentity(member_id="", group_instance_id="host-1"),
        MemberIdentity(member_id="c", group_instance_id=None),
        MemberIdentity(member_id="", group_instance_id="host-2"),
    ]
    outcome, responses = bench.coordinator.handle_leave("g", identities, bench.now_ms)
    for record in outcome.records:
        bench.coordinator.apply(record)
    unknown = ErrorCode.unknown_member_id
    assert [each.error_code for each in responses] == [ErrorCode.none, ErrorCode.none, unknown, unknown]
    assert bench.group.state is ConsumerGroupState.EMPTY
