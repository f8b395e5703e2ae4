"""A disk that fails: nothing is acknowledged any more, and a restart is clean."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.clock import Clock
from headrace.config import LogConfig
from headrace.errors import StorageError
from headrace.log.partition import PartitionLog
from headrace.log.store import LogStore
from headrace.testing.disk import SimulatedDisk

MakeBatch = Callable[..., bytes]
OpenStore = Callable[[], LogStore]
SIZE_MAX = 1_000_000
DATA_DIR = Path("/home/somebody/.headrace")


@pytest.fixture
def open_store(disk: SimulatedDisk, clock: Clock) -> OpenStore:
    return lambda: LogStore.open(DATA_DIR, LogConfig(segment_bytes_max=1024), clock, disk=disk)


@pytest.mark.parametrize("operation", ["append", "sync_file", "sync_directory"])
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EROFS])
def test_after_a_failed_write_or_sync_nothing_is_written_any_more(
    open_store: OpenStore, make_batch: MakeBatch, disk: SimulatedDisk, operation: str, error: int
) -> None:
    store = open_store()
    healthy, sick = store.catalog.begin_creation("orders", 2).at_once().partitions
    healthy.append(make_batch(3), size_bytes_max=SIZE_MAX)
    healthy.sync()
    disk.fail(operation, error)
    with pytest.raises(StorageError, match=f"{os.strerror(error)}.* start again") as first:
        _append_and_sync(sick, make_batch())
    assert store.failed is first.value
    assert sick.durable_offset == 0
    steps = disk.steps
    calls: list[Callable[[], object]] = [
        lambda: sick.append(make_batch(), size_bytes_max=SIZE_MAX),
        lambda: healthy.append(make_batch(), size_bytes_max=SIZE_MAX),
        sick.sync,
        healthy.sync,
        lambda: store.catalog.begin_creation("more", 1).at_once(),
        lambda: store.catalog.begin_deletion("orders").at_once(),
        lambda: store.take_producer_ids(1),
    ]
    for call in calls:
        with pytest.raises(StorageError, match="no writes are taken after a failure"):
            call()
    assert len(healthy.read(0, size_bytes_max=SIZE_MAX)) > 0
    store.close()
    assert disk.steps == steps, "not even closing tries to sync again"
    store = open_store()
    assert store.failed is None
    assert store.topics["orders"].partitions[0].end_offset == 3


def _append_and_sync(partition: PartitionLog, batch: bytes) -> None:
    partition.append(batch, size_bytes_max=SIZE_MAX)
    partition.sync()


@pytest.mark.parametrize("operation", ["make_directory", "append", "sync_file", "rename", "sync_directory"])
def test_a_topic_that_could_not_be_created_stops_writes_and_is_whole_or_absent_afterwards(
    open_store: OpenStore, disk: SimulatedDisk, operation: str
) -> None:
    store = open_store()
    disk.fail(operation, errno.ENOSPC)
    with pytest.raises(StorageError, match="creating topic orders failed: No space left"):
        store.catalog.begin_creation("orders", 2).at_once()
    assert store.failed is not None
    store.close()
    store = open_store()
    if "orders" not in store.topics:
        store.catalog.begin_creation("orders", 2).at_once()
    assert len(store.topics["orders"].partitions) == 2


def test_a_file_that_cannot_be_opened_is_refused_without_stopping_everything(
    open_store: OpenStore, make_batch: MakeBatch, disk: SimulatedDisk
) -> None:
    store = open_store()
    partition = store.catalog.begin_creation("orders", 1).at_once().partitions[0]
    disk.fail("open", errno.EMFILE)
    with pytest.raises(StorageError, match=r"failed before it began: .*Too many open files.* Try again"):
        partition.append(make_batch(), size_bytes_max=SIZE_MAX)
    assert store.failed is None
    assert partition.append(make_batch(), size_bytes_max=SIZE_MAX).base_offset == 0


def test_a_read_that_fails_is_an_error_and_no_more(
    open_store: OpenStore, make_batch: MakeBatch, disk: SimulatedDisk
) -> None:
    store = open_store()
    partition = store.catalog.begin_creation("orders", 1).at_once().partitions[0]
    partition.append(make_batch(), size_bytes_max=SIZE_MAX)
    disk.fail("read")
    with pytest.raises(StorageError, match=r"reading .*orders-0 at offset 0 failed"):
        partition.read(0, size_bytes_max=SIZE_MAX)
    assert partition.read(0, size_bytes_max=SIZE_MAX)


def test_a_search_by_time_that_fails_is_an_error_and_no_more(
    open_store: OpenStore, make_batch: MakeBatch, disk: SimulatedDisk
) -> None:
    store = open_store()
    log = store.catalog.begin_creation("orders", 1).at_once().partitions[0]
    for _ in range(20):
        log.append(make_batch(value=b"x" * 100), size_bytes_max=SIZE_MAX)
    store.close()
    store = open_store()
    log = store.topics["orders"].partitions[0]
    searches: list[Callable[[], object]] = [lambda: log.offset_for_timestamp(1000), log.max_timestamp]
    for search in searches:
        disk.fail("read")
        with pytest.raises(StorageError, match=r"searching .*orders-0 by time failed"):
            search()
        assert search() is not None
