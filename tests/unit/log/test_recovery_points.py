"""What a process finds that follows on another: only what is known to be durable counts as it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from headrace.clock import Clock
from headrace.config import LogConfig
from headrace.errors import CorruptBatch, StorageError
from headrace.log.batch import HEADER_BYTES
from headrace.log.partition import PartitionLog
from headrace.log.store import LogStore
from headrace.testing.disk import SimulatedDisk

MakeBatch = Callable[..., bytes]
OpenPartition = Callable[..., PartitionLog]
OpenStore = Callable[[], LogStore]
SIZE_MAX = 1_000_000
DATA_DIR = Path("/home/somebody/.headrace")
POINTS = DATA_DIR / "recovery-points.json"
SEGMENT = "00000000000000000000.log"


class WatchedDisk(SimulatedDisk):
    """Counts the bytes that are written again."""

    def __init__(self) -> None:
        super().__init__()
        self.rewritten_bytes = 0

    def rewrite(self, file: int, position: int, data: bytes | bytearray | memoryview) -> None:
        self.rewritten_bytes += len(data)
        super().rewrite(file, position, data)


@pytest.fixture
def disk() -> WatchedDisk:
    return WatchedDisk()


@pytest.fixture
def open_store(disk: WatchedDisk, clock: Clock) -> OpenStore:
    return lambda: LogStore.open(DATA_DIR, LogConfig(segment_bytes_max=1024), clock, disk=disk)


def _append(partition: PartitionLog, *batches: bytes) -> None:
    for batch in batches:
        partition.append(batch, size_bytes_max=SIZE_MAX)
    partition.sync()


def _partition(store: LogStore) -> PartitionLog:
    return store.topics["orders"].partitions[0]


def test_a_duplicate_of_a_batch_whose_sync_failed_is_durable_once_a_new_process_says_so(
    open_partition: OpenPartition, make_batch: MakeBatch, disk: WatchedDisk
) -> None:
    first, second = (make_batch(producer=(7, 0, sequence)) for sequence in range(2))
    log = open_partition()
    _append(log, first)
    disk.fail("sync_file")
    with pytest.raises(StorageError, match="start again"):
        _append(log, second)
    disk.kill()
    log = open_partition()
    again = log.append(second, size_bytes_max=SIZE_MAX)
    assert again.duplicate
    assert log.durable_offset > again.last_offset
    disk.crash(Random(1))
    assert open_partition().end_offset == 2


def test_a_store_that_was_closed_in_good_order_is_opened_without_writing_anything(
    open_store: OpenStore, make_batch: MakeBatch, disk: WatchedDisk, clock: Clock
) -> None:
    store = open_store()
    _append(
        store.catalog.begin_creation("orders", 2).at_once().partitions[1], *[make_batch(value=b"x" * 200)] * 8
    )
    store.close()
    synced: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(disk, "sync_file", synced.append)
        store = open_store()
    assert store.topics["orders"].partitions[1].durable_offset == 8
    assert (disk.rewritten_bytes, synced) == (0, [])


def test_after_a_kill_only_what_is_beyond_the_recovery_point_is_written_again(
    open_store: OpenStore, make_batch: MakeBatch, disk: WatchedDisk
) -> None:
    batch = make_batch()
    store = open_store()
    _append(store.catalog.begin_creation("orders", 1).at_once().partitions[0], batch, batch)
    store.close()
    _append(_partition(open_store()), batch)
    disk.kill()
    assert _partition(open_store()).durable_offset == 3
    assert disk.rewritten_bytes == len(batch)
    disk.kill()
    assert _partition(open_store()).durable_offset == 3
    assert disk.rewritten_bytes == len(batch), "opening has moved the recovery point"


def test_the_recovery_point_of_a_partition_that_somebody_cut_goes_back_with_it(
    open_store: OpenStore, make_batch: MakeBatch, disk: WatchedDisk
) -> None:
    batch = make_batch()
    store = open_store()
    _append(store.catalog.begin_creation("orders", 1).at_once().partitions[0], batch, batch, batch)
    store.close()
    path = DATA_DIR / "log" / "orders-0" / SEGMENT
    disk.overwrite(path, disk.content(path)[: len(batch)])
    store = open_store()
    disk.fail("sync_file")
    with pytest.raises(StorageError, match="start again"):
        _append(_partition(store), batch)
    disk.kill()
    assert _partition(open_store()).durable_offset == 2
    disk.crash(Random(1))
    assert _partition(open_store()).durable_offset == 2


def test_a_topic_that_is_made_anew_does_not_take_over_the_recovery_point_of_the_old_one(
    open_store: OpenStore, make_batch: MakeBatch, disk: WatchedDisk
) -> None:
    batch = make_batch()
    store = open_store()
    _append(store.catalog.begin_creation("orders", 1).at_once().partitions[0], batch)
    store.close()
    store = open_store()
    store.catalog.begin_deletion("orders").at_once()
    log = store.catalog.begin_creation("orders", 1).at_once().partitions[0]
    disk.fail("sync_file")
    with pytest.raises(StorageError, match="start again"):
        _append(log, batch)
    disk.kill()
    assert _partition(open_store()).durable_offset == 1
    disk.crash(Random(1))
    assert _partition(open_store()).durable_offset == 1


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{}", b'{"format": 2}', b'{"format": 1, "durable_offsets": 1}']
)
def test_recovery_points_that_cannot_be_read_are_reported_and_done_without(
    open_store: OpenStore,
    make_batch: MakeBatch,
    disk: WatchedDisk,
    caplog: pytest.LogCaptureFixture,
    content: bytes,
) -> None:
    store = open_store()
    _append(store.catalog.begin_creation("orders", 1).at_once().partitions[0], make_batch())
    store.close()
    written = disk.content(POINTS)
    disk.overwrite(POINTS, content)
    assert _partition(open_store()).durable_offset == 1
    assert disk.rewritten_bytes > HEADER_BYTES
    assert "recovery-points.json can't be read" in caplog.text
    assert disk.content(POINTS) == written


def test_a_store_whose_disk_has_failed_leaves_the_recovery_points_as_they_are(
    open_store: OpenStore, make_batch: MakeBatch, disk: WatchedDisk
) -> None:
    store = open_store()
    log = store.catalog.begin_creation("orders", 1).at_once().partitions[0]
    before = disk.content(POINTS) if POINTS.name in disk.names(DATA_DIR) else b""
    disk.fail("sync_file")
    with pytest.raises(StorageError, match="start again"):
        _append(log, make_batch())
    store.close()
    assert (disk.content(POINTS) if POINTS.name in disk.names(DATA_DIR) else b"") == before


def test_what_is_known_to_have_been_durable_is_never_cut_off(
    open_store: OpenStore, make_batch: MakeBatch, disk: WatchedDisk
) -> None:
    batch = make_batch()
    store = open_store()
    _append(store.catalog.begin_creation("orders", 1).at_once().partitions[0], batch, batch)
    store.close()
    path = DATA_DIR / "log" / "orders-0" / SEGMENT
    content = disk.content(path)
    for damaged in (content[:-1], content[:-5] + b"\0" + content[-4:]):
        disk.overwrite(path, damaged)
        with pytest.raises(CorruptBatch, match=r"offset 1: .* had been on the disk, .*truncate -s"):
            open_store()
        assert disk.content(path) == damaged
    disk.overwrite(path, content + content[:-1])
    assert _partition(open_store()).end_offset == 2, "what comes after it may be torn"
