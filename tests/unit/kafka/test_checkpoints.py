from __future__ import annotations

import errno
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from random import Random

import pytest

from headrace.config import LogConfig
from headrace.errors import StorageError
from headrace.kafka.checkpoints import CheckpointRequests
from headrace.log.batch import encode_batch, read_header
from headrace.log.checkpoint import CHECKPOINT_NAME, decode_checkpoint
from headrace.log.durable_file import read_whole
from headrace.log.partition import PartitionLog
from headrace.log.record import Record
from headrace.log.store import LogStore
from headrace.testing.clock import ManualClock
from headrace.testing.disk import SimulatedDisk

Call = Callable[[], None]


class Desk:
    """A store, and the work for the disk that nobody has done yet."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk()
        self.work: list[tuple[Call, Call]] = []
        self.failures: list[StorageError] = []
        self.config = LogConfig(checkpoint_bytes=1024)
        self.store = LogStore.open(Path("/data"), self.config, ManualClock(), disk=self.disk)
        self.log: PartitionLog = self.store.catalog.begin_creation("orders", 1).at_once().partitions[0]
        requests = CheckpointRequests(
            self.store, lambda work, then: self.work.append((work, then)), self.failures.append
        )
        self.store.make_checkpoints(requests.ask)

    def append(self, count: int) -> None:
        record = Record(timestamp_ms=1_700_000_000_000, key=None, value=b"x" * 600)
        for _ in range(count):
            self.log.append(encode_batch([record]), size_bytes_max=10_000)

    def do_work(self) -> None:
        while self.work:
            work, then = self.work.pop()
            work()
            then()

    def has_checkpoint(self) -> bool:
        return CHECKPOINT_NAME in self.disk.names(self.log.directory)

    def checkpoint_offset(self) -> int:
        return decode_checkpoint(read_whole(self.disk, self.log.directory / CHECKPOINT_NAME)).next_offset


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_a_checkpoint_is_made_elsewhere_once_enough_was_appended(desk: Desk) -> None:
    desk.append(1)
    assert desk.work == []
    desk.append(10)
    assert len(desk.work) == 1, "one request at a time for each partition"
    assert not desk.has_checkpoint(), "the event loop did not wait for it"
    desk.do_work()
    assert desk.has_checkpoint()
    assert desk.log.durable_offset == 11
    desk.append(2)
    assert len(desk.work) == 1


def test_a_checkpoint_speaks_of_nothing_that_was_appended_while_its_sync_ran(desk: Desk) -> None:
    def append_more() -> None:
        desk.disk.meanwhile = lambda: None
        desk.append(4)

    desk.append(2)
    desk.disk.meanwhile = append_more
    work, then = desk.work.pop()
    work()
    assert desk.log.durable_offset == 2
    assert desk.checkpoint_offset() == 2
    then()
    desk.do_work()
    assert desk.checkpoint_offset() == 6, "what became due meanwhile is made up for"


def test_what_a_checkpoint_speaks_of_survives_a_loss_of_power(desk: Desk) -> None:
    desk.append(2)
    desk.disk.meanwhile = lambda: desk.append(1)
    work, _ = desk.work.pop()
    work()
    desk.disk.meanwhile = lambda: None
    for seed in range(20):
        disk = deepcopy(desk.disk)
        disk.crash(Random(seed))
        store = LogStore.open(Path("/data"), desk.config, ManualClock(), disk=disk)
        log = store.topics["orders"].partitions[0]
        offset = 0
        while offset < log.end_offset:
            offset = read_header(log.read(offset, size_bytes_max=1)).last_offset + 1
        store.close()


def test_a_partition_that_was_closed_meanwhile_gets_none(desk: Desk) -> None:
    desk.append(2)
    desk.store.catalog.begin_deletion("orders").at_once()
    desk.do_work()
    assert desk.disk.names(desk.log.directory) == []
    assert desk.failures == []


def test_a_failed_checkpoint_stops_all_writes_and_is_told(desk: Desk) -> None:
    desk.append(2)
    desk.disk.fail("rename")
    desk.do_work()
    assert desk.failures == [desk.store.failed]
    with pytest.raises(StorageError, match="no writes are taken"):
        desk.append(1)


def test_a_checkpoint_for_which_no_file_could_be_opened_comes_another_time(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    desk.append(2)
    desk.disk.fail("open", errno.EMFILE)
    desk.do_work()
    assert "no checkpoint of" in caplog.text
    assert (desk.store.failed, desk.has_checkpoint()) == (None, False)
    desk.append(2)
    desk.do_work()
    assert desk.has_checkpoint()
