"""A machine that has no room for another open file: nothing is lost, and trying again works."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from headrace.clock import Clock
from headrace.config import LogConfig
from headrace.errors import TooManyOpenFiles, UnknownTopic
from headrace.log.identity import PRODUCER_ID_BLOCK
from headrace.log.open_files import OPEN_FILES_MAX
from headrace.log.store import LogStore
from headrace.testing.disk import SimulatedDisk

MakeBatch = Callable[..., bytes]
OpenStore = Callable[[], LogStore]
AllocateProducerIds = Callable[[LogStore, int], range]
SIZE_MAX = 1_000_000
DATA_DIR = Path("/home/somebody/.headrace")
CALLS_MAX = 40
opening = pytest.mark.parametrize("operation", ["open", "names", "sync_directory"])


@pytest.fixture
def open_store(disk: SimulatedDisk, clock: Clock) -> OpenStore:
    return lambda: LogStore.open(DATA_DIR, LogConfig(segment_bytes_max=1024), clock, disk=disk)


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_a_sync_that_could_not_begin_makes_nothing_durable_and_the_next_one_does_it_all(
    open_store: OpenStore, make_batch: MakeBatch, disk: SimulatedDisk, error: int
) -> None:
    store = open_store()
    log = store.catalog.begin_creation("orders", 1).at_once().partitions[0]
    log.append(make_batch(3), size_bytes_max=SIZE_MAX)
    disk.fail("sync_directory", error)
    with pytest.raises(TooManyOpenFiles, match=r"syncing .*orders-0 failed.* Try again") as refusal:
        log.sync()
    assert (refusal.value.retriable, refusal.value.definite) == (True, True)
    assert (store.failed, log.durable_offset, log.end_offset) == (None, 0, 3)
    log.sync()
    assert log.durable_offset == 3
    disk.crash(Random(0))
    assert open_store().topics["orders"].partitions[0].end_offset == 3


@pytest.mark.parametrize("operation", ["open", "sync_directory"])
def test_sealing_segments_goes_on_wherever_it_was_interrupted(
    make_batch: MakeBatch, clock: Clock, operation: str
) -> None:
    for after in range(CALLS_MAX):
        disk = SimulatedDisk()
        store = LogStore.open(DATA_DIR, LogConfig(segment_bytes_max=1024), clock, disk=disk)
        log = store.catalog.begin_creation("orders", 1).at_once().partitions[0]
        for _ in range(12):
            log.append(make_batch(value=b"x" * 300), size_bytes_max=SIZE_MAX)
        disk.fail(operation, errno.EMFILE, after=after)
        try:
            log.sync()
        except TooManyOpenFiles:
            assert log.durable_offset == 0
            log.sync()
        assert (store.failed, log.durable_offset) == (None, 12)
        if not disk.has_failed:
            assert after > 3
            return
        names = disk.names(DATA_DIR / "log" / "orders-0")
        assert sum(name.endswith(".index") for name in names) == 5
        disk.crash(Random(after))
        store = LogStore.open(DATA_DIR, LogConfig(segment_bytes_max=1024), clock, disk=disk)
        assert store.topics["orders"].partitions[0].end_offset == 12
    pytest.fail(f"more than {CALLS_MAX} calls of {operation}")


@opening
def test_a_topic_that_could_not_be_created_is_absent_and_can_be_created_later(
    clock: Clock, make_batch: MakeBatch, operation: str
) -> None:
    for after in range(CALLS_MAX):
        disk = SimulatedDisk()
        store = LogStore.open(DATA_DIR, LogConfig(), clock, disk=disk)
        disk.fail(operation, errno.EMFILE, after=after)
        try:
            store.catalog.begin_creation("orders", 2).at_once()
        except TooManyOpenFiles:
            assert (store.failed, dict(store.topics)) == (None, {})
            disk.kill()
            store = LogStore.open(DATA_DIR, LogConfig(), clock, disk=disk)
            assert dict(store.topics) == {}
            store.catalog.begin_creation("orders", 2).at_once()
        if not disk.has_failed:
            assert after > 0
            return
        log = store.topics["orders"].partitions[1]
        log.append(make_batch(), size_bytes_max=SIZE_MAX)
        log.sync()
        disk.crash(Random(after))
        store = LogStore.open(DATA_DIR, LogConfig(), clock, disk=disk)
        assert store.topics["orders"].partitions[1].end_offset == 1
    pytest.fail(f"more than {CALLS_MAX} calls of {operation}")


@opening
@pytest.mark.parametrize("then", ["delete", "create"])
def test_a_deletion_that_was_interrupted_goes_on_when_the_topic_is_deleted_again_or_made_anew(
    clock: Clock, make_batch: MakeBatch, operation: str, then: str
) -> None:
    for after in range(CALLS_MAX):
        disk = SimulatedDisk()
        store = LogStore.open(DATA_DIR, LogConfig(), clock, disk=disk)
        log = store.catalog.begin_creation("orders", 2).at_once().partitions[0]
        log.append(make_batch(3), size_bytes_max=SIZE_MAX)
        disk.fail(operation, errno.EMFILE, after=after)
        try:
            store.catalog.begin_deletion("orders").at_once()
        except TooManyOpenFiles:
            assert (store.failed, dict(store.topics)) == (None, {})
            if then == "delete":
                store.catalog.begin_deletion("orders").at_once()
        if not disk.has_failed:
            assert after > 0
            return
        if then == "create":
            log = store.catalog.begin_creation("orders", 1).at_once().partitions[0]
            log.append(make_batch(), size_bytes_max=SIZE_MAX)
            log.sync()
        else:
            with pytest.raises(UnknownTopic):
                store.catalog.begin_deletion("orders").at_once()
        disk.crash(Random(after))
        store = LogStore.open(DATA_DIR, LogConfig(), clock, disk=disk)
        ends = {name: topic.partitions[0].end_offset for name, topic in store.topics.items()}
        assert ends == ({"orders": 1} if then == "create" else {})
    pytest.fail(f"more than {CALLS_MAX} calls of {operation}")


@pytest.mark.parametrize("operation", ["open", "sync_directory"])
def test_producer_ids_that_could_not_be_reserved_are_not_given_away(
    open_store: OpenStore,
    disk: SimulatedDisk,
    allocate_producer_ids: AllocateProducerIds,
    operation: str,
) -> None:
    store = open_store()
    allocate_producer_ids(store, PRODUCER_ID_BLOCK)
    disk.fail(operation, errno.EMFILE)
    with pytest.raises(TooManyOpenFiles, match="reserving producer ids"):
        allocate_producer_ids(store, 10)
    given = allocate_producer_ids(store, 10)
    disk.crash(Random(0))
    assert not set(given).intersection(allocate_producer_ids(open_store(), 10))


@opening
def test_a_store_that_could_not_be_opened_leaves_no_file_open_and_opens_later(
    clock: Clock, make_batch: MakeBatch, operation: str
) -> None:
    disk = SimulatedDisk()
    store = LogStore.open(DATA_DIR, LogConfig(), clock, disk=disk)
    log = store.catalog.begin_creation("orders", 2).at_once().partitions[0]
    log.append(make_batch(), size_bytes_max=SIZE_MAX)
    log.sync()
    for after in range(CALLS_MAX):
        disk.kill()
        disk.fail(operation, errno.EMFILE, after=after)
        try:
            store = LogStore.open(DATA_DIR, LogConfig(), clock, disk=disk)
        except TooManyOpenFiles:
            assert disk.open_file_count == 0
            continue
        assert store.topics["orders"].partitions[0].durable_offset == 1
        assert after > 1
        return
    pytest.fail(f"more than {CALLS_MAX} calls of {operation}")


def test_many_partitions_and_segments_share_a_limited_number_of_open_files(
    open_store: OpenStore, make_batch: MakeBatch, disk: SimulatedDisk
) -> None:
    store = open_store()
    logs = store.catalog.begin_creation("orders", 50).at_once().partitions
    for _ in range(6):
        for log in logs:
            log.append(make_batch(value=b"x" * 600), size_bytes_max=SIZE_MAX)
            log.sync()
    for log in logs:
        for offset in range(6):
            assert log.read(offset, size_bytes_max=1)
    lock = 1
    assert disk.open_file_count == lock + OPEN_FILES_MAX
    store.close()
    assert disk.open_file_count == 0
