"""Consumer groups at work: timers by a clock that stands still, offsets in a log on disk."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from kio.schema.errors import ErrorCode

from headrace.config import BrokerConfig
from headrace.errors import HeadraceError, StorageError, TooManyOpenFiles
from headrace.kafka.answer import Pending
from headrace.kafka.commit import GroupCommit
from headrace.kafka.consumer_groups import ConsumerGroups
from headrace.kafka.groups.consumer.heartbeat import Occasion
from headrace.kafka.groups.membership import Joiner
from headrace.kafka.groups.offsets import OffsetCommitted, OffsetForgotten
from headrace.kafka.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from headrace.kafka.messages.heartbeat import HeartbeatRequest
from headrace.kafka.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from headrace.kafka.messages.leave_group import MemberIdentity
from headrace.kafka.services import OFFSETS_TOPIC
from headrace.log.broker_overrides import BrokerOverrides
from headrace.log.partition import PartitionLog
from headrace.log.store import LogStore
from headrace.testing.clock import ManualClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SESSION_MS = 6_000
RETENTION_MS = 3_600_000
CHECK_MS = 600_000
HEARTBEAT_MS = 30_000


class FakeTimer:
    def __init__(self, at_s: float, callback: Callable[[], None]) -> None:
        self.at_s = at_s
        self.callback = callback
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class FakeScheduler:
    """Rings timers when the test lets time pass."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.timers: list[FakeTimer] = []

    def call_later(self, delay: float, callback: Callable[[], None], /) -> FakeTimer:
        timer = FakeTimer(self._clock.monotonic_s() + delay, callback)
        self.timers.append(timer)
        return timer

    @property
    def running(self) -> list[FakeTimer]:
        return [timer for timer in self.timers if not timer.is_cancelled]

    def advance(self, by_ms: int) -> None:
        self._clock.advance(by_ms)
        for timer in self.running:
            if timer.at_s <= self._clock.monotonic_s():
                timer.cancel()
                timer.callback()


class Bench:
    """Groups over a log whose syncs the test finishes."""

    def __init__(self, data_dir: Path) -> None:
        self.clock = ManualClock()
        self.scheduler = FakeScheduler(self.clock)
        config = BrokerConfig(
            data_dir=data_dir,
            offsets_retention_minutes=RETENTION_MS // 60_000,
            offsets_check_interval_ms=CHECK_MS,
        )
        self.store = LogStore.open(data_dir, config.log, self.clock)
        for name, partition_count in (("t", 3), (OFFSETS_TOPIC, 1)):
            if name not in self.store.topics:
                self.store.catalog.begin_creation(name, partition_count).at_once()
        self.syncs: list[Any] = []
        self.commit = GroupCommit("sync", self.syncs.append, lambda _: None, lambda _: None)
        self.groups = ConsumerGroups(config, self.store, self.clock, self.scheduler, self.commit)

    def finish_sync(self, error: StorageError | None = None) -> None:
        logs = self.syncs.pop(0)
        if error is None:
            for log in logs:
                log.sync()
        self.commit.synced(logs, error)

    def finish_all_syncs(self) -> None:
        while self.syncs:
            self.finish_sync()

    def join(self) -> str:
        """A member joins an empty group; its id is returned."""
        pending: Pending[Any] = Pending()
        request = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=10 * SESSION_MS,
            member_id="",
            protocol_type="consumer",
            protocols=(JoinGroupRequestProtocol(name="range", metadata=b""),),
        )
        joiner = Joiner(token=pending, new_member_id="m", must_know_id=False)
        outcome, response = self.groups.coordinator.handle_join(request, joiner, self.groups.now_ms())
        assert response is None
        answers: list[Any] = []
        pending.then(answers.append)
        self.groups.carry_out(outcome)
        return str(answers[0].member_id)

    def heartbeat(self, member_id: str) -> ErrorCode:
        request = HeartbeatRequest(group_id="g", generation_id=1, member_id=member_id)
        outcome, error_code = self.groups.coordinator.handle_heartbeat(request, self.groups.now_ms())
        self.groups.carry_out(outcome)
        return error_code

    def leave(self, member_id: str) -> None:
        identity = MemberIdentity(member_id=member_id, group_instance_id=None)
        outcome, _ = self.groups.coordinator.handle_leave("g", [identity], self.groups.now_ms())
        self.groups.carry_out(outcome)

    def consume(self, epoch: int) -> list[ConsumerGroupHeartbeatResponse]:
        """A member of a consumer group joins, stays or leaves; the answer is there once it is."""
        request = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id="c",
            member_epoch=epoch,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=("t",),
            topic_partitions=(),
        )
        occasion = Occasion(
            now_ms=self.groups.now_ms(), topics=self.groups.topics, limits=self.groups.consumer_limits_of("g")
        )
        outcome, response = self.groups.coordinator.handle_consumer_heartbeat(request, occasion)
        self.groups.carry_out(outcome)
        answer = self.groups.answer("g", response)
        heard: list[ConsumerGroupHeartbeatResponse] = []
        if isinstance(answer, Pending):
            answer.then(heard.append)
        else:
            heard.append(answer)
        return heard

    def set_for_group(self, **texts: str) -> None:
        given = {name.replace("_", "."): text for name, text in texts.items()}
        self.store.begin_override(BrokerOverrides(groups={"g": given})).at_once()

    def write(self, *records: OffsetCommitted | OffsetForgotten) -> list[HeadraceError | None]:
        heard: list[HeadraceError | None] = []
        self.groups.write(records, heard.append)
        return heard

    def offsets(self) -> dict[tuple[str, int], int]:
        return {key: record.offset for key, record in self.groups.coordinator.offsets_of("g").items()}


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path / "data")
    yield bench
    bench.groups.close()
    bench.store.close()


def committed(offset: int, partition: int = 0) -> OffsetCommitted:
    return OffsetCommitted(group_id="g", topic="t", partition=partition, offset=offset)


def test_a_member_that_falls_silent_is_removed_when_its_session_has_timed_out(bench: Bench) -> None:
    member_id = bench.join()
    for _ in range(5):
        bench.scheduler.advance(SESSION_MS - 1_000)
        assert bench.heartbeat(member_id) is ErrorCode.none
    bench.scheduler.advance(SESSION_MS + 1)
    assert bench.groups.coordinator.is_empty("g")
    assert bench.scheduler.running == []


def test_heartbeats_do_not_pile_up_timers(bench: Bench) -> None:
    member_id = bench.join()
    for _ in range(100):
        bench.scheduler.advance(10)
        bench.heartbeat(member_id)
        assert len(bench.scheduler.running) == 1


def test_closing_stops_all_timers(bench: Bench) -> None:
    bench.join()
    bench.groups.close()
    assert bench.scheduler.running == []


def test_an_offset_counts_once_it_is_durable_and_not_before(bench: Bench) -> None:
    heard = bench.write(committed(7))
    assert (heard, bench.offsets()) == ([], {})
    bench.finish_sync()
    assert (heard, bench.offsets()) == ([None], {("t", 0): 7})


def test_commits_take_effect_in_the_order_of_the_log(bench: Bench) -> None:
    bench.write(committed(1))
    bench.write(committed(2))
    bench.write(committed(3))
    while bench.syncs:
        bench.finish_sync()
    assert bench.offsets() == {("t", 0): 3}


def test_an_offset_that_the_disk_did_not_take_does_not_count(bench: Bench) -> None:
    error = StorageError("the disk is gone")
    heard = bench.write(committed(7))
    bench.finish_sync(error)
    assert (heard, bench.offsets()) == ([error], {})


def test_nothing_is_written_for_no_records(bench: Bench) -> None:
    assert bench.write() == [None]
    assert bench.store.topics[OFFSETS_TOPIC].partitions[0].end_offset == 0


def test_offsets_are_recovered_from_the_log(bench: Bench, tmp_path: Path) -> None:
    for offset in range(300):
        bench.write(committed(offset, partition=offset % 3))
    bench.write(OffsetForgotten(group_id="g", topic="t", partition=1))
    bench.store.close()
    recovered = Bench(tmp_path / "data")
    assert recovered.offsets() == {("t", 0): 297, ("t", 2): 299}
    recovered.store.close()


def test_a_deleted_topic_takes_along_offsets_that_are_not_durable_yet(bench: Bench, tmp_path: Path) -> None:
    bench.write(committed(1, partition=0))
    bench.finish_sync()
    bench.write(committed(5_000, partition=1))
    heard: list[HeadraceError | None] = []
    bench.store.catalog.begin_deletion("t").at_once()
    bench.groups.topics_deleted({"t"}, heard.append)
    assert heard == []
    bench.finish_all_syncs()
    assert (heard, bench.offsets()) == ([None], {})
    bench.store.close()
    recovered = Bench(tmp_path / "data")
    assert recovered.offsets() == {}
    recovered.store.close()


def test_offsets_of_a_topic_that_a_crash_left_behind_do_not_come_back_with_a_new_topic_of_its_name(
    bench: Bench, tmp_path: Path
) -> None:
    bench.write(committed(5_000))
    bench.finish_sync()
    bench.store.catalog.begin_deletion("t").at_once()
    bench.store.close()
    for _ in range(2):
        # The first start finds offsets without their topic, the second one a new topic of the same name.
        config = BrokerConfig(data_dir=tmp_path / "data")
        store = LogStore.open(tmp_path / "data", config.log, bench.clock)
        syncs: list[Any] = []
        commit = GroupCommit("sync", syncs.append, lambda _: None, lambda _: None)
        groups = ConsumerGroups(config, store, bench.clock, bench.scheduler, commit)
        assert groups.coordinator.offsets_of("g") == {}
        if "t" not in store.topics:
            store.catalog.begin_creation("t", 3).at_once()
        store.close()


def test_offsets_and_groups_that_nobody_needs_any_more_are_forgotten_in_the_end(
    bench: Bench, tmp_path: Path
) -> None:
    bench.groups.start_sweeping()
    bench.consume(0)
    bench.write(committed(7))
    bench.finish_sync()
    for _ in range(2 * RETENTION_MS // HEARTBEAT_MS):
        bench.scheduler.advance(HEARTBEAT_MS)
        bench.consume(1)
    assert bench.offsets() == {("t", 0): 7}
    bench.consume(-1)
    bench.scheduler.advance(RETENTION_MS - CHECK_MS)
    assert bench.offsets() == {("t", 0): 7}
    bench.scheduler.advance(CHECK_MS)
    bench.scheduler.advance(CHECK_MS)
    bench.finish_all_syncs()
    assert bench.offsets() == {}
    bench.scheduler.advance(CHECK_MS)
    bench.finish_all_syncs()
    assert "g" not in bench.groups.coordinator
    bench.store.close()
    recovered = Bench(tmp_path / "data")
    assert recovered.offsets() == {}
    recovered.store.close()


def test_offsets_that_could_not_be_forgotten_for_a_passing_reason_are_forgotten_another_time(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_arguments: object, **_options: object) -> None:
        raise TooManyOpenFiles("no further file could be opened")

    bench.groups.start_sweeping()
    bench.write(committed(7))
    bench.finish_sync()
    with monkeypatch.context() as patch:
        patch.setattr(PartitionLog, "append", refuse)
        bench.scheduler.advance(RETENTION_MS + CHECK_MS)
    assert bench.offsets() == {("t", 0): 7}
    bench.scheduler.advance(CHECK_MS)
    bench.finish_all_syncs()
    assert bench.offsets() == {}


def test_a_clock_that_is_set_wrong_costs_nobody_their_offsets(bench: Bench) -> None:
    bench.groups.start_sweeping()
    bench.write(replace(committed(7), committed_at_ms=bench.clock.now_ms()))
    bench.finish_sync()
    bench.clock.jump(100 * RETENTION_MS)
    bench.scheduler.advance(CHECK_MS)
    assert (bench.syncs, bench.offsets()) == ([], {("t", 0): 7})


def test_an_offset_that_is_on_its_way_is_not_forgotten_for_the_one_before_it(bench: Bench) -> None:
    bench.groups.start_sweeping()
    bench.write(committed(7))
    bench.finish_sync()
    bench.scheduler.advance(RETENTION_MS)
    bench.write(committed(8))
    bench.scheduler.advance(CHECK_MS)
    bench.finish_all_syncs()
    assert bench.offsets() == {("t", 0): 8}


def test_a_member_hears_nothing_that_a_crash_could_take_back(bench: Bench) -> None:
    joined = bench.consume(0)
    again = bench.consume(0)
    assert (joined, again) == ([], [])
    bench.finish_all_syncs()
    assert [each.member_epoch for each in (*joined, *again)] == [1, 1]
    assert [each.error_code for each in bench.consume(1)] == [ErrorCode.none]


def test_a_member_hears_of_a_disk_that_failed_and_of_nothing_else_from_then_on(bench: Bench) -> None:
    joined = bench.consume(0)
    bench.finish_sync(StorageError("the disk is gone"))
    refused = [each.error_code for each in (*joined, *bench.consume(1))]
    assert refused == [ErrorCode.coordinator_not_available] * 2


def test_a_heartbeat_that_changes_nothing_is_not_written_down(bench: Bench) -> None:
    bench.consume(0)
    bench.finish_all_syncs()
    end_offset = bench.store.topics[OFFSETS_TOPIC].partitions[0].end_offset
    for _ in range(3):
        bench.scheduler.advance(HEARTBEAT_MS)
        bench.consume(1)
    assert bench.store.topics[OFFSETS_TOPIC].partitions[0].end_offset == end_offset


def test_groups_go_on_after_a_restart_and_their_sessions_begin_anew(bench: Bench, tmp_path: Path) -> None:
    bench.consume(0)
    bench.finish_all_syncs()
    bench.scheduler.advance(40_000)
    bench.store.close()
    recovered = Bench(tmp_path / "data")
    recovered.scheduler.advance(40_000)
    assert [each.member_epoch for each in recovered.consume(1)] == [1]
    recovered.scheduler.advance(45_001)
    assert recovered.groups.coordinator.is_empty("g")
    recovered.finish_all_syncs()
    recovered.groups.close()
    recovered.store.close()


def test_a_group_with_settings_of_its_own_lives_by_them_from_its_next_heartbeat_on(bench: Bench) -> None:
    assert bench.groups.settings_of("g") == bench.groups.settings_of("other")
    bench.set_for_group(consumer_session_timeout_ms="60000", consumer_heartbeat_interval_ms="9000")
    assert bench.groups.settings_of("g").consumer_session_timeout_ms == 60_000
    assert bench.groups.settings_of("other").consumer_session_timeout_ms == 45_000
    bench.consume(0)
    bench.finish_all_syncs()
    assert [each.heartbeat_interval_ms for each in bench.consume(1)] == [9_000]
    bench.scheduler.advance(59_999)
    assert not bench.groups.coordinator.is_empty("g")
    bench.scheduler.advance(2)
    assert bench.groups.coordinator.is_empty("g")


def test_a_group_without_settings_any_more_lives_by_those_of_the_broker(bench: Bench) -> None:
    bench.set_for_group(consumer_session_timeout_ms="60000")
    assert bench.groups.settings_of("g").consumer_session_timeout_ms == 60_000
    bench.set_for_group(consumer_session_timeout_ms="50000")
    assert bench.groups.settings_of("g").consumer_session_timeout_ms == 50_000
    bench.store.begin_override(BrokerOverrides()).at_once()
    assert bench.groups.settings_of("g").consumer_session_timeout_ms == 45_000


def test_after_a_restart_members_have_a_session_as_their_group_has_it(bench: Bench, tmp_path: Path) -> None:
    bench.set_for_group(consumer_session_timeout_ms="60000")
    bench.consume(0)
    bench.finish_all_syncs()
    bench.store.close()
    recovered = Bench(tmp_path / "data")
    recovered.scheduler.advance(59_999)
    assert not recovered.groups.coordinator.is_empty("g")
    recovered.scheduler.advance(2)
    assert recovered.groups.coordinator.is_empty("g")
    recovered.finish_all_syncs()
    recovered.groups.close()
    recovered.store.close()


def test_a_group_that_has_ended_does_not_come_back(bench: Bench, tmp_path: Path) -> None:
    bench.groups.start_sweeping()
    bench.consume(0)
    bench.consume(-1)
    bench.scheduler.advance(CHECK_MS)
    bench.finish_all_syncs()
    bench.store.close()
    recovered = Bench(tmp_path / "data")
    assert "g" not in recovered.groups.coordinator
    recovered.store.close()


def test_a_classic_group_that_was_empty_before_a_restart_has_been_so_since_then(
    bench: Bench, tmp_path: Path
) -> None:
    member_id = bench.join()
    bench.write(committed(7))
    bench.finish_all_syncs()
    bench.leave(member_id)
    bench.finish_all_syncs()
    bench.store.close()
    recovered = Bench(tmp_path / "data")
    recovered.groups.start_sweeping()
    recovered.scheduler.advance(RETENTION_MS - 1)
    recovered.finish_all_syncs()
    assert recovered.offsets() == {("t", 0): 7}
    recovered.scheduler.advance(CHECK_MS)
    recovered.finish_all_syncs()
    assert recovered.offsets() == {}
    recovered.groups.close()
    recovered.store.close()


def test_offsets_of_other_topics_stay(bench: Bench) -> None:
    bench.write(committed(7))
    bench.finish_sync()
    heard: list[HeadraceError | None] = []
    bench.groups.topics_deleted({"another"}, heard.append)
    assert (heard, bench.offsets()) == ([None], {("t", 0): 7})
