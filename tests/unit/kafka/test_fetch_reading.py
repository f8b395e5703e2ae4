"""Fetches in a session over a real log, held against fetches that name everything each time."""

from __future__ import annotations

from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from headrace.config import Address, BrokerConfig, LogConfig
from headrace.kafka.commit import GroupCommit
from headrace.kafka.handlers.fetch import handle_fetch
from headrace.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from headrace.kafka.services import Call, Services
from headrace.kafka.watchers import Watchers
from headrace.log.batch import encode_batch
from headrace.log.record import Record
from headrace.log.store import LogStore
from headrace.testing.clock import ManualClock
from headrace.testing.disk import SimulatedDisk

PARTITION_COUNT = 4
STEPS = 60
TRANSACTIONAL = 0x10


class World:
    """A topic that grows, shrinks, and is deleted and made anew, and a client with a session."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.store = LogStore.open(Path("/data"), LogConfig(), ManualClock(), disk=SimulatedDisk())
        self.store.create_topic("t", PARTITION_COUNT)
        self.sequences: dict[Any, int] = {}
        self.unsynced: list[Any] = []
        watchers = Watchers()
        durability = random.choice(["os", "sync"])
        self.commit = GroupCommit(durability, self.unsynced.append, watchers.notify, lambda _: None)  # type: ignore[arg-type]  # one of the two
        unused: Any = SimpleNamespace()
        self.call = Call(
            services=Services(
                config=BrokerConfig(),
                store=self.store,
                clock=ManualClock(),
                scheduler=unused,
                commit=self.commit,
                watchers=watchers,
                groups=unused,
                topics=unused,
                producer_ids=unused,
                transactions=unused,
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
            self.store.create_topic("t", PARTITION_COUNT)
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
            log.delete_records(self.random.randint(0, self.commit.high_watermark(log)))
        elif what == 16:
            self.store.delete_topic("t")
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

    def request(self, offsets: dict[int, int], session_id: int, epoch: int, isolation: int) -> Any:
        partitions = tuple(
            FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=100)
            for number, offset in offsets.items()
        )
        return handle_fetch(
            self.call,
            FetchRequest(
                max_wait_ms=0,
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
