"""Fetches in a session over a real log, held against fetches that name everything each time."""

from __future__ import annotations

from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from headrace.config import MIB, Address, BrokerConfig, Durability, LogConfig
from headrace.kafka.commit import GroupCommit
from headrace.kafka.handlers.fetch import handle_fetch
from headrace.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.kafka.services import Call, Services
from headrace.kafka.unsent_answers import Backlog, UnsentAnswers
from headrace.kafka.watchers import Watchers
from headrace.log.batch import encode_batch
from headrace.log.partition import PartitionLog
from headrace.log.record import Record
from headrace.log.store import LogStore
from headrace.testing.clock import ManualClock
from headrace.testing.disk import SimulatedDisk
from headrace.testing.partition import delete_records

PARTITION_COUNT = 4
STEPS = 60
TRANSACTIONAL = 0x10


class World:
    """A topic that grows, shrinks, and is deleted and made anew, and a client with a session."""

    def __init__(self, random: Random, durability: Durability | None = None) -> None:
        self.random = random
        self.store = LogStore.open(Path("/data"), LogConfig(), ManualClock(), disk=SimulatedDisk())
        self.store.catalog.begin_creation("t", PARTITION_COUNT).at_once()
        self.sequences: dict[Any, int] = {}
        self.unsynced: list[Any] = []
        watchers = Watchers()
        durabilities: list[Durability] = ["os", "sync"]
        chosen = random.choice(durabilities) if durability is None else durability
        self.commit = GroupCommit(chosen, self.unsynced.append, watchers.notify, lambda _: None)
        unused: Any = SimpleNamespace()
        patient: Any = SimpleNamespace(call_later=lambda *_: SimpleNamespace(cancel=lambda: None))
        self.call = Call(
            services=Services(
                config=BrokerConfig(),
                store=self.store,
                clock=ManualClock(),
                scheduler=patient,
                commit=self.commit,
                watchers=watchers,
                groups=unused,
                topics=unused,
                producer_ids=unused,
                transactions=unused,
                shares=unused,
                unsent_answers=UnsentAnswers(MIB),
            ),
            client_id="test",
            host="127.0.0.1",
            address=Address("127.0.0.1", 9_092),
            api_version=12,
        )
        self.session_id = 0
        self.epoch = 0
        self.offsets = dict.fromkeys(range(PARTITION_COUNT), 0)
        self.in_session: dict[int, int] = {}
        self.view: dict[int, Any] = {}

    def change(self) -> None:
        if "t" not in self.store.topics:
            self.store.catalog.begin_creation("t", PARTITION_COUNT).at_once()
            return
        log = self.random.choice(self.store.topics["t"].partitions)
        what = self.random.randrange(20)
        if what < 10:
            log.append(self.batch(log), size_bytes_max=10_000)
            self.commit.appended(log)
        elif what < 14:
            log.append_marker(1, 0, commits=what % 2 == 0)
            self.commit.appended(log)
        elif what < 16:
            delete_records(log, self.random.randint(0, self.commit.high_watermark(log)))
        elif what == 16:
            self.store.catalog.begin_deletion("t").at_once()
        else:
            self.sync()

    def batch(self, log: Any) -> bytes:
        record = Record(timestamp_ms=0, key=None, value=b"x" * self.random.randint(1, 50))
        if self.random.random() < 0.5:
            return encode_batch([record])
        sequence = self.sequences.get(log, 0)
        self.sequences[log] = sequence + 1
        return encode_batch(
            [record], producer_id=1, producer_epoch=0, base_sequence=sequence, attributes=TRANSACTIONAL
        )

    def sync(self) -> None:
        while self.unsynced:
            logs = self.unsynced.pop(0)
            for log in logs:
                if not log.extent[-1]:
                    log.sync()
            self.commit.synced(logs, None)

    def request(
        self, offsets: dict[int, int], session_id: int, epoch: int, isolation: int, *, max_wait_ms: int = 0
    ) -> Any:
        partitions = tuple(
            FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=100)
            for number, offset in offsets.items()
        )
        return handle_fetch(
            self.call,
            FetchRequest(
                max_wait_ms=max_wait_ms,
                min_bytes=1,
                max_bytes=10_000,
                isolation_level=isolation,
                topics=(FetchTopic(topic="t", partitions=partitions),) if partitions else (),
                session_id=session_id,
                session_epoch=epoch,
            ),
        )

    def fetch(self) -> None:
        isolation = int(self.random.random() < 0.5)
        changed = {
            number: offset for number, offset in self.offsets.items() if self.in_session.get(number) != offset
        }
        answer = self.request(changed, self.session_id, self.epoch, isolation)
        assert answer.error_code is ErrorCode.none
        told = {each.partition_index: each for topic in answer.responses for each in topic.partitions}
        expected = self.request(self.offsets, 0, -1, isolation)
        for each in expected.responses[0].partitions:
            number = each.partition_index
            news = told.pop(number, None)
            if news is None:
                assert each.error_code is ErrorCode.none
                assert each.records == b""
                assert self.view[number] == _facts(each)
            else:
                assert news == each
            self.view[number] = _facts(each)
            self.in_session[number] = self.offsets[number]
            self.consume(each)
        assert told == {}
        self.session_id = answer.session_id
        self.epoch += 1

    def consume(self, data: Any) -> None:
        number = data.partition_index
        if data.error_code is ErrorCode.offset_out_of_range:
            self.offsets[number] = data.log_start_offset
        elif data.error_code is not ErrorCode.none:
            self.offsets[number] = 0
        elif data.records and self.random.random() < 0.8:
            self.offsets[number] += 1


def _facts(data: Any) -> tuple[int, int, int]:
    return data.high_watermark, data.last_stable_offset, data.log_start_offset


@pytest.mark.parametrize("seed", range(40))
def test_a_session_over_a_log_tells_what_full_fetches_would(seed: int) -> None:
    random = Random(seed)
    world = World(random)
    for _ in range(STEPS):
        for _ in range(random.randint(0, 3)):
            world.change()
        world.fetch()
    world.store.close()


@pytest.mark.parametrize("isolation", [0, 1])
def test_a_sync_that_ends_while_a_fetch_looks_at_its_partition_is_not_missed(
    isolation: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(Random(0), "sync")
    log = world.store.topics["t"].partitions[0]
    session_id = world.request({0: 0}, 0, 0, isolation).session_id
    log.append(encode_batch([Record(timestamp_ms=0, key=None, value=b"x")]), size_bytes_max=10_000)
    last_stable_offset = PartitionLog.last_stable_offset

    def sync_meanwhile(log: PartitionLog, high_watermark: int) -> int:
        log.sync()
        return last_stable_offset(log, high_watermark)

    with monkeypatch.context() as patch:
        patch.setattr(PartitionLog, "last_stable_offset", sync_meanwhile)
        assert world.request({}, session_id, 1, isolation).responses == ()
    (topic,) = world.request({}, session_id, 2, isolation).responses
    (partition,) = topic.partitions
    assert (partition.high_watermark, len(partition.records) > 0) == (1, True)


def test_a_mistake_in_one_parked_fetch_is_answered_and_wakes_the_others_all_the_same(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(Random(0), "sync")
    log = world.store.topics["t"].partitions[0]
    parked = [world.request({0: 0}, 0, -1, 0, max_wait_ms=1_000) for _ in range(2)]
    log.append(encode_batch([Record(timestamp_ms=0, key=None, value=b"x")]), size_bytes_max=10_000)
    world.commit.appended(log)
    last_stable_offset = PartitionLog.last_stable_offset
    mistakes = iter([ZeroDivisionError("a mistake")])

    def fail_once(log: PartitionLog, high_watermark: int) -> int:
        if (mistake := next(mistakes, None)) is not None:
            raise mistake
        return last_stable_offset(log, high_watermark)

    monkeypatch.setattr(PartitionLog, "last_stable_offset", fail_once)
    world.sync()
    bad, good = (each.response for each in parked)
    assert (bad.error_code, bad.responses) == (ErrorCode.unknown_server_error, ())
    assert good.responses[0].partitions[0].high_watermark == 1
    assert "a mistake" in caplog.text
    assert world.call.services.watchers.count == 0


def test_a_parked_fetch_waits_for_room_when_clients_have_not_taken_their_answers() -> None:
    world = World(Random(0), "os")
    log = world.store.topics["t"].partitions[0]
    slow = Backlog(world.call.services.unsent_answers)
    parked = world.request({0: 0}, 0, -1, 0, max_wait_ms=1_000)
    slow.note(2 * MIB)
    log.append(encode_batch([Record(timestamp_ms=0, key=None, value=b"x")]), size_bytes_max=10_000)
    world.commit.appended(log)
    assert not parked.is_resolved
    slow.note(0)
    assert len(parked.response.responses[0].partitions[0].records) > 0
    assert not world.call.services.unsent_answers.is_short
    assert world.call.services.watchers.count == 0


def test_a_parked_fetch_whose_time_is_over_gets_nothing_where_there_is_no_room() -> None:
    world = World(Random(0), "os")
    timers: list[Any] = []
    scheduler: Any = world.call.services.scheduler

    def call_later(_delay_s: float, act: Any) -> Any:
        timers.append(act)
        return SimpleNamespace(cancel=lambda: None)

    scheduler.call_later = call_later
    log = world.store.topics["t"].partitions[0]
    slow = Backlog(world.call.services.unsent_answers)
    parked = world.request({0: 0}, 0, -1, 0, max_wait_ms=1_000)
    slow.note(2 * MIB)
    log.append(encode_batch([Record(timestamp_ms=0, key=None, value=b"x")]), size_bytes_max=10_000)
    world.commit.appended(log)
    (give_up,) = timers
    give_up()
    assert [len(each.partitions[0].records) for each in parked.response.responses] in ([], [0])
    assert not world.call.services.unsent_answers.is_short
