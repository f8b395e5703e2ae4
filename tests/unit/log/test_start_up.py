"""How much is read when a store is opened: it does not grow with the log. Counted, not timed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from headrace.clock import Clock
from headrace.config import LogConfig
from headrace.log.batch import read_header
from headrace.log.partition import PartitionLog
from headrace.log.store import LogStore
from headrace.testing.disk import PowerLoss, SimulatedDisk

MakeBatch = Callable[..., bytes]
SIZE_MAX = 1_000_000
KIB = 1024
DATA_DIR = Path("/home/somebody/.headrace")
DIRECTORY = DATA_DIR / "log" / "orders-0"
TRANSACTIONAL = 0x10
DUE: list[PartitionLog] = []
"""The partitions of which a checkpoint is due."""


class CountingDisk(SimulatedDisk):
    """Counts the bytes that are read and written again."""

    def __init__(self) -> None:
        super().__init__()
        self.read_bytes = 0
        self.rewritten_bytes = 0

    def read(self, file: int, position: int, size_bytes: int) -> bytes:
        data = super().read(file, position, size_bytes)
        self.read_bytes += len(data)
        return data

    def rewrite(self, file: int, position: int, data: bytes | bytearray | memoryview) -> None:
        self.rewritten_bytes += len(data)
        super().rewrite(file, position, data)


@pytest.fixture
def disk() -> CountingDisk:
    return CountingDisk()


@pytest.fixture
def fill(make_batch: MakeBatch, clock: Clock) -> Callable[[PartitionLog, int], None]:
    """Append so many bytes: transactions of two producers, every third of them aborted."""

    def fill_(log: PartitionLog, size_bytes: int) -> None:
        infos = {info.producer_id: info for info in log.producers()}
        sequences = [infos[n].last_sequence + 1 if n in infos else 0 for n in range(2)]
        end = log.size_bytes + size_bytes
        number = 0
        while log.size_bytes < end:
            number += 1
            producer_id = number % 2
            producer = (producer_id, 0, sequences[producer_id])
            now_ms = clock.now_ms()
            batch = make_batch(
                at=[now_ms, now_ms], value=b"x" * 400, producer=producer, attributes=TRANSACTIONAL
            )
            log.append(batch, size_bytes_max=SIZE_MAX)
            sequences[producer_id] += 2
            if number % 5 == 0:
                log.append_marker(producer_id, 0, commits=number % 3 != 0)
            log.sync()

    return fill_


Fill = Callable[[PartitionLog, int], None]


def _open(
    disk: SimulatedDisk,
    clock: Clock,
    *,
    segment_bytes_max: int = 1024 * KIB,
    checkpoint_bytes: int = 32 * KIB,
) -> LogStore:
    """A store whose checkpoints are made by the test when they are due, as by another thread."""
    DUE.clear()
    config = LogConfig(
        segment_bytes_max=segment_bytes_max, index_interval_bytes=1 * KIB, checkpoint_bytes=checkpoint_bytes
    )
    store = LogStore.open(DATA_DIR, config, clock, disk=disk)
    store.make_checkpoints(DUE.append)
    return store


def _log(store: LogStore) -> PartitionLog:
    return store.topics["orders"].partitions[0]


def _grow(store: LogStore, fill: Fill, size_bytes: int) -> None:
    """Append in steps, with a checkpoint between whenever one is due."""
    log = _log(store)
    end = log.size_bytes + size_bytes
    while log.size_bytes < end:
        fill(log, 4 * KIB)
        if DUE:
            DUE.clear()
            log.checkpoint()


def _read_when_opened(disk: CountingDisk, clock: Clock, **config: int) -> tuple[LogStore, int]:
    before = disk.read_bytes
    store = _open(disk, clock, **config)
    return store, disk.read_bytes - before


def test_opening_reads_no_more_however_many_segments_are_sealed(
    disk: CountingDisk, clock: Clock, fill: Fill
) -> None:
    store = _open(disk, clock, segment_bytes_max=16 * KIB)
    store.catalog.begin_creation("orders", 1).at_once()
    reads = []
    for _ in range(3):
        _grow(store, fill, 150 * KIB)
        store.close()
        store, read_bytes = _read_when_opened(disk, clock, segment_bytes_max=16 * KIB)
        reads.append(read_bytes)
    assert _log(store).size_bytes > 450 * KIB
    assert max(reads) < 32 * KIB


def test_opening_after_a_clean_stop_reads_no_more_however_large_the_active_segment_is(
    disk: CountingDisk, clock: Clock, fill: Fill
) -> None:
    store = _open(disk, clock)
    store.catalog.begin_creation("orders", 1).at_once()
    reads = []
    for _ in range(3):
        _grow(store, fill, 200 * KIB)
        _log(store)._checkpoints.appended(64 * KIB)
        store.close()
        store, read_bytes = _read_when_opened(disk, clock)
        reads.append(read_bytes)
    assert [name for name in disk.names(DIRECTORY) if name.endswith(".log")] == [f"{0:020d}.log"]
    assert max(reads) < 4 * KIB
    assert disk.rewritten_bytes == 0


@pytest.mark.parametrize("segment_bytes_max", [16 * KIB, 1024 * KIB])
def test_opening_after_a_crash_reads_and_writes_again_a_bounded_tail(
    disk: CountingDisk, clock: Clock, fill: Fill, segment_bytes_max: int
) -> None:
    store = _open(disk, clock, segment_bytes_max=segment_bytes_max)
    store.catalog.begin_creation("orders", 1).at_once()
    for seed in range(4):
        _grow(store, fill, 100 * KIB)
        end_offset, rewritten_bytes = _log(store).end_offset, disk.rewritten_bytes
        disk.crash(Random(seed)) if seed % 2 else disk.kill()
        store, read_bytes = _read_when_opened(disk, clock, segment_bytes_max=segment_bytes_max)
        assert _log(store).end_offset == end_offset
        # What lies after the last checkpoint is checked once, and read once more to be written again.
        assert read_bytes < 3 * (32 + 4) * KIB
        assert disk.rewritten_bytes - rewritten_bytes <= (32 + 4) * KIB


def test_what_was_not_read_when_opened_is_there_all_the_same(
    disk: CountingDisk, clock: Clock, fill: Fill
) -> None:
    store = _open(disk, clock)
    store.catalog.begin_creation("orders", 1).at_once()
    _grow(store, fill, 300 * KIB)
    log = _log(store)
    known = (
        log.producers(),
        log.aborted_transactions(0, log.end_offset),
        log.last_stable_offset(log.end_offset),
        [log.read(offset, size_bytes_max=1) for offset in range(0, log.end_offset, 7)],
        log.max_timestamp(),
    )
    store.close()
    log = _log(_open(disk, clock))
    assert known == (
        log.producers(),
        log.aborted_transactions(0, log.end_offset),
        log.last_stable_offset(log.end_offset),
        [log.read(offset, size_bytes_max=1) for offset in range(0, log.end_offset, 7)],
        log.max_timestamp(),
    )


def test_what_lies_before_a_checkpoint_is_compared_with_its_checksum_when_it_is_read(
    disk: CountingDisk, clock: Clock, fill: Fill
) -> None:
    store = _open(disk, clock)
    store.catalog.begin_creation("orders", 1).at_once()
    _grow(store, fill, 100 * KIB)
    store.close()
    path = DIRECTORY / f"{0:020d}.log"
    content = bytearray(disk.content(path))
    content[200] ^= 1
    disk.overwrite(path, bytes(content))
    log = _log(_open(disk, clock))
    first = read_header(bytes(content))
    with pytest.raises(Exception, match=r"00\.log: offsets 0 to 1 are damaged: byte 0: .*checksum"):
        log.read(0, size_bytes_max=1)
    assert read_header(log.read(first.last_offset + 1, size_bytes_max=1)).base_offset == 2


def test_a_snapshot_that_is_missing_costs_one_slow_start(
    disk: CountingDisk, clock: Clock, fill: Fill, caplog: pytest.LogCaptureFixture
) -> None:
    store = _open(disk, clock, segment_bytes_max=16 * KIB)
    store.catalog.begin_creation("orders", 1).at_once()
    _grow(store, fill, 200 * KIB)
    known = _log(store).producers()
    store.close()
    for name in disk.names(DIRECTORY):
        if name.endswith(".snapshot"):
            disk.unlink(DIRECTORY / name)
    store, slow_bytes = _read_when_opened(disk, clock, segment_bytes_max=16 * KIB)
    assert "are learnt from its batches from offset 0 on" in caplog.text
    assert _log(store).producers() == known
    disk.kill()
    store, quick_bytes = _read_when_opened(disk, clock, segment_bytes_max=16 * KIB)
    assert _log(store).producers() == known
    assert slow_bytes > 100 * KIB > 32 * KIB > quick_bytes


def test_a_checkpoint_of_a_log_that_somebody_cut_is_removed(
    disk: CountingDisk, clock: Clock, fill: Fill, make_batch: MakeBatch
) -> None:
    store = _open(disk, clock)
    store.catalog.begin_creation("orders", 1).at_once()
    _grow(store, fill, 100 * KIB)
    store.close()
    path = DIRECTORY / f"{0:020d}.log"
    content = disk.content(path)
    disk.overwrite(path, content[: read_header(content).size_bytes])
    store = _open(disk, clock)
    assert _log(store).end_offset == 2
    assert "checkpoint" not in disk.names(DIRECTORY)
    while _log(store).size_bytes < len(content):
        _log(store).append(make_batch(at=clock.now_ms(), value=b"y" * 900), size_bytes_max=SIZE_MAX)
    end_offset = _log(store).end_offset
    disk.kill()
    log = _log(_open(disk, clock))
    assert log.end_offset == end_offset
    assert [info.producer_id for info in log.producers()] == [1]


def test_a_crash_at_any_step_of_a_roll_a_seal_or_a_checkpoint_loses_nothing(
    clock: Clock, make_batch: MakeBatch
) -> None:
    """The story is the same each time, but for the step at which the power goes."""
    disk = SimulatedDisk()
    _play(disk, clock, make_batch, [])
    for step in range(disk.steps):
        disk = SimulatedDisk()
        disk.lose_power_after(step)
        acknowledged = [0]
        with pytest.raises(PowerLoss):
            _play(disk, clock, make_batch, acknowledged)
        disk.crash(Random(step))
        store = _open(disk, clock, segment_bytes_max=6 * KIB, checkpoint_bytes=2 * KIB)
        if not store.topics:
            assert acknowledged == [0]
            continue
        log = _log(store)
        assert log.end_offset >= acknowledged[-1]
        headers = [read_header(log.read(n, size_bytes_max=1)) for n in range(log.end_offset)]
        assert [header.base_offset for header in headers] == list(range(log.end_offset))
        sequences = [header.base_sequence for header in headers]
        assert [info.last_sequence for info in log.producers()] == ([max(sequences)] if sequences else [])
        aborted = [each.last_offset for each in log.aborted_transactions(0, log.end_offset)]
        assert aborted == list(range(7, log.end_offset, 8))


def _play(disk: SimulatedDisk, clock: Clock, make_batch: MakeBatch, acknowledged: list[int]) -> None:
    """Transactions of one producer, each of three batches of one record, every second one aborted."""
    store = _open(disk, clock, segment_bytes_max=6 * KIB, checkpoint_bytes=2 * KIB)
    log = store.catalog.begin_creation("orders", 1).at_once().partitions[0]
    for sequence in range(21):
        producer = (1, 0, sequence)
        batch = make_batch(at=clock.now_ms(), value=b"x" * 700, producer=producer, attributes=TRANSACTIONAL)
        log.append(batch, size_bytes_max=SIZE_MAX)
        if sequence % 3 == 2:
            log.append_marker(1, 0, commits=sequence % 6 == 2)
            log.sync()
            acknowledged.append(log.durable_offset)
        if DUE:
            DUE.clear()
            log.checkpoint()
    store.close()
    names = disk.names(DIRECTORY)
    assert sum(name.endswith(".txnindex") for name in names) == 2
    assert sum(name.endswith(".snapshot") for name in names) == 3
