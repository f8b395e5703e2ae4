"""Requests about the membership of share groups, over a log whose syncs the test finishes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from kio.schema.errors import ErrorCode

from headrace.config import Address, BrokerConfig
from headrace.errors import StorageError
from headrace.kafka.answer import Pending
from headrace.kafka.authorized_operations import GROUP_OPERATIONS, NOT_ASKED
from headrace.kafka.commit import GroupCommit
from headrace.kafka.consumer_groups import ConsumerGroups
from headrace.kafka.groups.offsets import OffsetCommitted
from headrace.kafka.handlers.api_versions import handle_api_versions
from headrace.kafka.handlers.cluster import handle_find_coordinator
from headrace.kafka.handlers.consumer_groups import handle_consumer_group_describe
from headrace.kafka.handlers.group_admin import handle_describe_groups, handle_list_groups
from headrace.kafka.handlers.share_groups import handle_share_group_describe, handle_share_group_heartbeat
from headrace.kafka.messages.api_versions import ApiVersionsRequest
from headrace.kafka.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from headrace.kafka.messages.describe_groups import DescribeGroupsRequest
from headrace.kafka.messages.find_coordinator import Coordinator, FindCoordinatorRequest
from headrace.kafka.messages.list_groups import ListGroupsRequest
from headrace.kafka.messages.share_group_describe import DescribedGroup, ShareGroupDescribeRequest
from headrace.kafka.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from headrace.kafka.services import NODE_ID, OFFSETS_TOPIC, Call
from headrace.log.store import LogStore
from headrace.testing.clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SESSION_MS = 6_000
INTERVAL_MS = 1_500
TOPIC_ID = "AAAAAAAAAAAAAAAAAAAABQ"


class Timer:
    def __init__(self, at_s: float, callback: Callable[[], None]) -> None:
        self.at_s = at_s
        self.callback = callback
        self.is_done = False

    def cancel(self) -> None:
        self.is_done = True


class Bench:
    """Groups over a log, and calls of clients that come from one place."""

    def __init__(self, data_dir: Path) -> None:
        self.clock = ManualClock()
        self.timers: list[Timer] = []
        self.config = BrokerConfig(
            data_dir=data_dir,
            share_session_timeout_ms=SESSION_MS,
            share_heartbeat_interval_ms=INTERVAL_MS,
            group_member_count_max=2,
        )
        self.store = LogStore.open(data_dir, self.config.log, self.clock)
        for name, partition_count in (("t", 3), (OFFSETS_TOPIC, 1)):
            if name not in self.store.topics:
                self.store.catalog.begin_creation(name, partition_count).at_once()
        self.syncs: list[Any] = []
        commit = self.commit = GroupCommit("sync", self.syncs.append, lambda _: None, lambda _: None)
        self.groups = ConsumerGroups(self.config, self.store, self.clock, self, commit)

    def call_later(self, delay: float, callback: Callable[[], None], /) -> Timer:
        timer = Timer(self.clock.monotonic_s() + delay, callback)
        self.timers.append(timer)
        return timer

    def advance(self, by_ms: int) -> None:
        self.clock.advance(by_ms)
        for timer in list(self.timers):
            if not timer.is_done and timer.at_s <= self.clock.monotonic_s():
                timer.is_done = True
                timer.callback()

    def finish_syncs(self, error: StorageError | None = None) -> None:
        while self.syncs:
            logs = self.syncs.pop(0)
            for log in logs:
                log.sync()
            self.commit.synced(logs, error)

    def call(self, api_version: int = 1) -> Call:
        services: Any = SimpleNamespace(groups=self.groups, store=self.store, config=self.config)
        address = Address("127.0.0.1", 9_092)
        return Call(
            services=services, client_id="test", host="10.0.0.7", address=address, api_version=api_version
        )

    def ask(self, epoch: int, member_id: str = "a") -> list[ShareGroupHeartbeatResponse]:
        """A member joins, stays or leaves; the answer is there once it is."""
        request = ShareGroupHeartbeatRequest(
            group_id="g",
            member_id=member_id,
            member_epoch=epoch,
            subscribed_topic_names=("t",) if epoch == 0 else None,
        )
        answer = handle_share_group_heartbeat(self.call(), request)
        heard: list[ShareGroupHeartbeatResponse] = []
        if isinstance(answer, Pending):
            answer.then(heard.append)
        else:
            heard.append(answer)
        return heard

    def beat(self, epoch: int, member_id: str = "a") -> ShareGroupHeartbeatResponse:
        heard = self.ask(epoch, member_id)
        self.finish_syncs()
        return heard[0]

    def describe(self, group_id: str, *, include_operations: bool = False) -> DescribedGroup:
        request = ShareGroupDescribeRequest(
            group_ids=(group_id, group_id), include_authorized_operations=include_operations
        )
        (described,) = handle_share_group_describe(self.call(), request).groups
        return described

    def listed(self, *, states: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
        request = ListGroupsRequest(states_filter=states, types_filter=types)
        groups = handle_list_groups(self.call(5), request).groups
        return [(each.group_id, each.protocol_type, each.group_state, each.group_type) for each in groups]

    def find(self, key: str, *, version: int = 6, key_type: int = 2) -> Coordinator:
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=(key,))
        (found,) = handle_find_coordinator(self.call(version), request).coordinators
        return found

    def close(self) -> None:
        self.groups.close()
        self.store.close()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path / "data")
    yield bench
    bench.close()


def commit_offset(bench: Bench, group_id: str) -> None:
    bench.groups.coordinator.apply(OffsetCommitted(group_id=group_id, topic="t", partition=0, offset=7))


# Heartbeats


def test_a_member_hears_nothing_that_a_crash_could_take_back(bench: Bench) -> None:
    heard = bench.ask(0)
    assert heard == []
    bench.finish_syncs()
    assert (heard[0].member_epoch, heard[0].heartbeat_interval_ms) == (1, INTERVAL_MS)


def test_a_member_hears_of_a_disk_that_failed(bench: Bench) -> None:
    heard = bench.ask(0)
    bench.finish_syncs(StorageError("the disk is gone"))
    assert heard[0].error_code is ErrorCode.coordinator_not_available


def test_a_member_hears_of_a_log_that_takes_nothing(bench: Bench) -> None:
    bench.store.topics[OFFSETS_TOPIC].partitions[0].close()
    (heard,) = bench.ask(0)
    assert heard.error_code is ErrorCode.coordinator_not_available
    assert bench.groups.coordinator.share_groups == {}


def test_a_heartbeat_that_changes_nothing_is_not_written_down(bench: Bench) -> None:
    bench.beat(0)
    end_offset = bench.store.topics[OFFSETS_TOPIC].partitions[0].end_offset
    bench.advance(1_000)
    assert len(bench.ask(1)) == 1
    assert bench.store.topics[OFFSETS_TOPIC].partitions[0].end_offset == end_offset


def test_a_group_is_no_larger_than_groups_may_be(bench: Bench) -> None:
    bench.beat(0, "a")
    bench.beat(0, "b")
    assert bench.beat(0, "c").error_code is ErrorCode.group_max_size_reached


def test_a_member_that_falls_silent_is_removed_when_its_session_has_timed_out(bench: Bench) -> None:
    bench.beat(0)
    for _ in range(5):
        bench.advance(SESSION_MS - 1_000)
        bench.beat(1)
    bench.advance(SESSION_MS + 1)
    assert bench.groups.coordinator.is_empty("g")
    bench.finish_syncs()
    assert bench.beat(1).error_code is ErrorCode.unknown_member_id


# Restart


def test_a_group_goes_on_after_a_restart_and_its_sessions_begin_anew(bench: Bench, tmp_path: Path) -> None:
    bench.beat(0, "a")
    bench.beat(0, "b")
    before = bench.groups.coordinator.share_groups["g"]
    bench.close()
    restarted = Bench(tmp_path / "data")
    after = restarted.groups.coordinator.share_groups["g"]
    assert (after.epoch, after.target, after.topics) == (before.epoch, before.target, before.topics)
    assert [each.assigned for each in after.members.values()] == [
        each.assigned for each in before.members.values()
    ]
    restarted.advance(SESSION_MS - 1)
    assert restarted.beat(2, "b").error_code is ErrorCode.none
    restarted.advance(2)
    assert set(restarted.groups.coordinator.share_groups["g"].members) == {"b"}
    restarted.close()


def test_an_empty_group_is_there_after_a_restart_and_a_deleted_one_is_not(
    bench: Bench, tmp_path: Path
) -> None:
    bench.beat(0)
    bench.beat(-1)
    bench.close()
    restarted = Bench(tmp_path / "data")
    assert restarted.listed() == [("g", "share", "Empty", "share")]
    restarted.groups.carry_out(restarted.groups.coordinator.handle_end("g"))
    restarted.finish_syncs()
    restarted.close()
    again = Bench(tmp_path / "data")
    assert again.listed() == []
    again.close()


def test_an_empty_group_is_not_swept_away(bench: Bench) -> None:
    bench.groups.start_sweeping()
    bench.beat(0)
    bench.beat(-1)
    bench.advance((bench.config.offsets_retention_minutes + 1) * 60_000)
    bench.finish_syncs()
    assert bench.listed() == [("g", "share", "Empty", "share")]


# What tools see


def test_a_group_is_described_with_its_members(bench: Bench) -> None:
    bench.beat(0, "a")
    bench.beat(0, "b")
    described = bench.describe("g")
    assert (described.error_code, described.group_state) == (ErrorCode.none, "Stable")
    assert (described.group_epoch, described.assignment_epoch, described.assignor_name) == (2, 2, "simple")
    assert [(each.member_id, each.member_epoch) for each in described.members] == [("a", 1), ("b", 2)]
    (first, second) = described.members
    assert (first.client_id, first.client_host, first.subscribed_topic_names) == ("test", "/10.0.0.7", ("t",))
    (topic,) = second.assignment.topic_partitions
    assert (topic.topic_name, len(topic.partitions)) == ("t", 1)
    assert topic.topic_id == bench.store.topics["t"].topic_id


def test_a_topic_that_is_gone_is_not_described(bench: Bench) -> None:
    bench.beat(0)
    bench.store.catalog.begin_deletion("t").at_once()
    assert bench.describe("g").members[0].assignment.topic_partitions == ()


@pytest.mark.parametrize(("is_asked", "operations"), [(True, GROUP_OPERATIONS), (False, NOT_ASKED)])
def test_who_asks_is_told_what_it_may_do(bench: Bench, is_asked: bool, operations: int) -> None:
    bench.beat(0)
    assert bench.describe("g", include_operations=is_asked).authorized_operations == operations
    assert GROUP_OPERATIONS == 3_400


def test_a_group_that_is_none_or_another_is_not_described(bench: Bench) -> None:
    commit_offset(bench, "offsets")
    for group_id, error_code, message in (
        ("offsets", ErrorCode.group_id_not_found, "Group offsets is not a share group."),
        ("nobody", ErrorCode.group_id_not_found, "Group nobody not found."),
        ("", ErrorCode.invalid_group_id, None),
    ):
        described = bench.describe(group_id)
        assert (described.error_code, described.error_message) == (error_code, message)
        assert (described.group_id, described.group_state, described.members) == (group_id, "", ())


def test_a_share_group_is_not_described_as_a_group_of_another_kind(bench: Bench) -> None:
    bench.beat(0)
    (classic,) = handle_describe_groups(bench.call(6), DescribeGroupsRequest(groups=("g",))).groups
    assert (classic.error_code, classic.group_state) == (ErrorCode.group_id_not_found, "Dead")
    assert classic.error_message == "Group g is not a classic group."
    request = ConsumerGroupDescribeRequest(group_ids=("g",))
    (consumer,) = handle_consumer_group_describe(bench.call(), request).groups
    assert consumer.error_code is ErrorCode.group_id_not_found
    assert consumer.error_message == "Group g is not a consumer group."


def test_share_groups_are_listed_by_their_type_and_state(bench: Bench) -> None:
    bench.beat(0)
    commit_offset(bench, "offsets")
    share = ("g", "share", "Stable", "share")
    assert bench.listed() == [share, ("offsets", "", "Empty", "classic")]
    assert bench.listed(types=("Share",)) == [share]
    assert bench.listed(states=("stable",)) == [share]
    assert bench.listed(states=("empty",), types=("share",)) == []


# Coordinators


@pytest.mark.parametrize(
    "key",
    [
        f"g:{TOPIC_ID}:0",
        f"g:{TOPIC_ID}==:0",
        f"g:{TOPIC_ID}:-1",
        f"g:{TOPIC_ID}:+2147483647",
        f"with:colons:{TOPIC_ID}:7",
        f"g:{TOPIC_ID}:0:",
    ],
)
def test_this_broker_coordinates_what_share_groups_have_of_partitions(bench: Bench, key: str) -> None:
    found = bench.find(key)
    assert (found.error_code, found.error_message) == (ErrorCode.none, None)
    assert (found.key, found.node_id, found.host, found.port) == (key, NODE_ID, "127.0.0.1", 9_092)


@pytest.mark.parametrize(
    "key",
    [
        "",
        f"g:{TOPIC_ID}",
        f"g:{TOPIC_ID}:",
        f"g:{TOPIC_ID}:x",
        f"g:{TOPIC_ID}:1 ",
        f"g:{TOPIC_ID}:2147483648",
        f"g:{TOPIC_ID}=:1",
        f":{TOPIC_ID}:0",
        f"  :{TOPIC_ID}:0",
        "g::0",
        "g:xx:0",
        "g:00000000-0000-0000-0000-000000000005:0",
    ],
)
def test_a_key_that_is_not_that_of_a_share_partition_is_refused(bench: Bench, key: str) -> None:
    found = bench.find(key)
    assert (found.error_code, found.node_id, found.port) == (ErrorCode.invalid_request, -1, -1)
    assert found.error_message == f"the key of a share partition is group:topicId:partition, not {key!r}"


def test_old_versions_and_other_types_of_coordinators_are_refused(bench: Bench) -> None:
    old = bench.find(f"g:{TOPIC_ID}:0", version=5)
    assert old.error_code is ErrorCode.invalid_request
    assert old.error_message == "coordinators of share partitions are found by version 6 or later"
    other = bench.find("g", key_type=3)
    assert other.error_code is ErrorCode.invalid_request
    assert "there are no coordinators of type 3" in (other.error_message or "")


def test_clients_are_told_that_there_are_share_groups(bench: Bench) -> None:
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    response = handle_api_versions(bench.call(4), request)
    assert {each.name: each.max_version for each in response.supported_features or ()}["share.version"] == 1
    offered = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
    assert (offered[76], offered[77]) == ((1, 1), (1, 1))
