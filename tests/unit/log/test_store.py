from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path
from random import Random
from uuid import UUID

import pytest

from headrace.clock import Clock
from headrace.config import LogConfig
from headrace.errors import (
    ConfigError,
    DataDirectoryInUse,
    PartitionClosed,
    StorageError,
    TooManyOpenFiles,
    TopicExists,
    UnknownTopic,
    UsageError,
)
from headrace.log.identity import PRODUCER_ID_BLOCK
from headrace.log.store import LogStore
from headrace.testing.disk import SimulatedDisk

MakeBatch = Callable[..., bytes]
OpenStore = Callable[[], LogStore]
AllocateProducerIds = Callable[[LogStore, int], range]
SIZE_MAX = 1_000_000
DATA_DIR = Path("/home/somebody/.headrace")


@pytest.fixture
def open_store(disk: SimulatedDisk, clock: Clock) -> OpenStore:
    return lambda: LogStore.open(DATA_DIR, LogConfig(segment_bytes_max=1024), clock, disk=disk)


def _topics(store: LogStore) -> dict[str, tuple[UUID, int, dict[str, str]]]:
    return {
        name: (topic.topic_id, len(topic.partitions), dict(topic.config))
        for name, topic in store.topics.items()
    }


def test_a_topic_comes_back_with_its_id_its_partitions_and_its_records(
    open_store: OpenStore, make_batch: MakeBatch
) -> None:
    store = open_store()
    topic = store.catalog.begin_creation("orders", 3, {"retention.ms": "1000"}).at_once()
    topic.partitions[2].append(make_batch(5), size_bytes_max=SIZE_MAX)
    before = _topics(store)
    store.close()
    store = open_store()
    assert _topics(store) == before == {"orders": (topic.topic_id, 3, {"retention.ms": "1000"})}
    assert [partition.end_offset for partition in store.topics["orders"].partitions] == [0, 0, 5]


def test_partitions_lie_where_kafka_would_put_them(
    open_store: OpenStore, make_batch: MakeBatch, disk: SimulatedDisk
) -> None:
    topic = open_store().catalog.begin_creation("orders", 2).at_once()
    topic.partitions[1].append(make_batch(), size_bytes_max=SIZE_MAX)
    assert disk.names(DATA_DIR / "log") == ["orders-0", "orders-1"]
    assert disk.names(DATA_DIR / "log" / "orders-1") == ["00000000000000000000.log"]


def test_two_topics_of_one_name_cannot_be(open_store: OpenStore) -> None:
    store = open_store()
    store.catalog.begin_creation("orders", 1).at_once()
    with pytest.raises(TopicExists, match="orders exists already"):
        store.catalog.begin_creation("orders", 2).at_once()


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../x", "a b", "x" * 250, "\x00"])
def test_a_name_that_could_be_a_path_is_refused(open_store: OpenStore, name: str) -> None:
    with pytest.raises(ConfigError, match="not a topic name"):
        open_store().catalog.begin_creation(name, 1).at_once()


def test_a_name_may_be_as_long_as_kafka_allows(tmp_path: Path, clock: Clock) -> None:
    store = LogStore.open(tmp_path / "data", LogConfig(), clock)
    store.catalog.begin_creation("x" * 249, 1).at_once()
    store.catalog.begin_deletion("x" * 249).at_once()
    store.close()


def test_a_topic_needs_a_partition(open_store: OpenStore) -> None:
    with pytest.raises(ConfigError, match="can't have 0 partitions"):
        open_store().catalog.begin_creation("orders", 0).at_once()


def test_creating_a_topic_syncs_two_directories_however_many_partitions_it_has(
    open_store: OpenStore, disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store()
    synced: list[Path] = []
    sync_directory = disk.sync_directory

    def sync(path: Path) -> None:
        synced.append(path)
        sync_directory(path)

    monkeypatch.setattr(disk, "sync_directory", sync)
    store.catalog.begin_creation("orders", 50).at_once()
    assert synced == [DATA_DIR / "log", DATA_DIR / "topics"]


def test_a_deleted_topic_is_gone_and_its_partitions_are_closed(
    open_store: OpenStore, make_batch: MakeBatch, disk: SimulatedDisk
) -> None:
    store = open_store()
    partition = store.catalog.begin_creation("orders", 1).at_once().partitions[0]
    partition.append(make_batch(), size_bytes_max=SIZE_MAX)
    store.catalog.begin_deletion("orders").at_once()
    assert store.topics == {}
    assert disk.names(DATA_DIR / "log") == disk.names(DATA_DIR / "topics") == []
    with pytest.raises(PartitionClosed):
        partition.append(make_batch(), size_bytes_max=SIZE_MAX)
    with pytest.raises(UnknownTopic, match="no topic orders"):
        store.catalog.begin_deletion("orders").at_once()


def test_a_topic_made_again_under_the_same_name_is_another_one(
    open_store: OpenStore, make_batch: MakeBatch
) -> None:
    store = open_store()
    first = store.catalog.begin_creation("orders", 1).at_once()
    first.partitions[0].append(make_batch(), size_bytes_max=SIZE_MAX)
    store.catalog.begin_deletion("orders").at_once()
    second = store.catalog.begin_creation("orders", 1).at_once()
    assert second.topic_id != first.topic_id
    assert second.partitions[0].end_offset == 0


def test_a_topic_grows_and_keeps_its_records_and_its_settings(
    open_store: OpenStore, make_batch: MakeBatch
) -> None:
    store = open_store()
    topic = store.catalog.begin_creation("orders", 1, {"retention.ms": "1000"}).at_once()
    topic.partitions[0].append(make_batch(5), size_bytes_max=SIZE_MAX)
    grown = store.catalog.begin_growth("orders", 3).at_once()
    assert grown.partitions[0] is topic.partitions[0]
    grown.partitions[2].append(make_batch(2), size_bytes_max=SIZE_MAX)
    with pytest.raises(ConfigError, match="has 3 partitions already; their number can only be raised"):
        store.catalog.begin_growth("orders", 3).at_once()
    with pytest.raises(UnknownTopic):
        store.catalog.begin_growth("nowhere", 3).at_once()
    before = _topics(store)
    store.close()
    store = open_store()
    assert _topics(store) == before == {"orders": (topic.topic_id, 3, {"retention.ms": "1000"})}
    assert [partition.end_offset for partition in store.topics["orders"].partitions] == [5, 0, 2]


def test_settings_of_a_topic_are_replaced_as_a_whole(open_store: OpenStore) -> None:
    store = open_store()
    topic = store.catalog.begin_creation("orders", 1, {"retention.ms": "1000"}).at_once()
    changed = store.catalog.begin_reconfiguration("orders", {"segment.ms": "5"}).at_once()
    assert changed.partitions == topic.partitions
    store.close()
    assert _topics(open_store()) == {"orders": (topic.topic_id, 1, {"segment.ms": "5"})}


@pytest.mark.parametrize("operation", ["open", "sync_directory"])
def test_a_change_for_which_no_file_could_be_opened_leaves_the_topic_as_it_was(
    open_store: OpenStore, disk: SimulatedDisk, operation: str
) -> None:
    for after in range(3):
        store = open_store()
        if not store.topics:
            store.catalog.begin_creation("orders", 1).at_once()
        before = _topics(store)
        disk.fail(operation, errno.EMFILE, after=after)
        try:
            store.catalog.begin_growth("orders", len(store.topics["orders"].partitions) + 1).at_once()
        except TooManyOpenFiles:
            assert _topics(store) == before
            disk.kill()
            store = open_store()
            assert _topics(store) == before
        else:
            assert after > 0
        disk.kill()


def test_a_topic_is_changed_by_one_at_a_time(open_store: OpenStore) -> None:
    store = open_store()
    store.catalog.begin_creation("orders", 1).at_once()
    change = store.catalog.begin_growth("orders", 2)
    with pytest.raises(UsageError, match="orders is being changed: wait until that has ended"):
        store.catalog.begin_deletion("orders").at_once()
    change.run()
    change.finish()
    store.catalog.begin_deletion("orders").at_once()


def test_only_files_that_are_used_stay_open_and_closing_closes_them(
    open_store: OpenStore, make_batch: MakeBatch, disk: SimulatedDisk
) -> None:
    store = open_store()
    for partition in store.catalog.begin_creation("orders", 20).at_once().partitions:
        partition.append(make_batch(), size_bytes_max=SIZE_MAX)
    store.close()
    assert disk.open_file_count == 0
    store = open_store()
    lock = 1
    assert disk.open_file_count == lock
    store.topics["orders"].partitions[0].read(0, size_bytes_max=SIZE_MAX)
    assert disk.open_file_count == lock + 1


def test_a_close_that_fails_still_closes_everything(
    open_store: OpenStore, make_batch: MakeBatch, disk: SimulatedDisk
) -> None:
    store = open_store()
    for partition in store.catalog.begin_creation("orders", 3).at_once().partitions:
        partition.append(make_batch(), size_bytes_max=SIZE_MAX)
    disk.fail("sync_file")
    with pytest.raises(StorageError, match=r"syncing .*orders-0 failed"):
        store.close()
    assert disk.open_file_count == 0


def test_the_directory_belongs_to_one_process(open_store: OpenStore) -> None:
    store = open_store()
    with pytest.raises(DataDirectoryInUse, match=f"in use by process {os.getpid()}: stop that one"):
        open_store()
    store.close()
    open_store().close()


def test_a_store_that_could_not_be_opened_lets_go_of_the_directory(
    open_store: OpenStore, disk: SimulatedDisk
) -> None:
    open_store().close()
    manifest = DATA_DIR / "topics" / "orders.json"
    disk.close(disk.open(manifest))
    disk.overwrite(manifest, b"{")
    for _ in range(2):
        with pytest.raises(StorageError, match=r"orders\.json is not a topic's manifest"):
            open_store()


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"format": 1}', b"\xff"])
def test_a_manifest_that_cannot_be_read_is_named(
    open_store: OpenStore, disk: SimulatedDisk, content: bytes
) -> None:
    store = open_store()
    store.catalog.begin_creation("orders", 1).at_once()
    store.close()
    disk.overwrite(DATA_DIR / "topics" / "orders.json", content)
    with pytest.raises(StorageError, match=r"orders\.json .* restore it"):
        open_store()


def test_a_manifest_of_a_later_format_is_not_guessed_at(open_store: OpenStore, disk: SimulatedDisk) -> None:
    store = open_store()
    store.catalog.begin_creation("orders", 1).at_once()
    store.close()
    path = DATA_DIR / "topics" / "orders.json"
    disk.overwrite(path, json.dumps({**json.loads(disk.content(path)), "format": 2}).encode())
    with pytest.raises(StorageError, match="has format 2"):
        open_store()


def test_the_cluster_id_is_made_once_in_kafkas_form(open_store: OpenStore) -> None:
    store = open_store()
    cluster_id = store.cluster_id
    store.close()
    assert len(cluster_id) == 22
    assert open_store().cluster_id == cluster_id


def test_files_of_a_topic_without_a_manifest_are_not_taken_over(
    open_store: OpenStore, make_batch: MakeBatch, disk: SimulatedDisk
) -> None:
    store = open_store()
    store.catalog.begin_creation("orders", 1).at_once().partitions[0].append(
        make_batch(), size_bytes_max=SIZE_MAX
    )
    store.close()
    disk.unlink(DATA_DIR / "topics" / "orders.json")
    store = open_store()
    with pytest.raises(StorageError, match="orders-0 holds files"):
        store.catalog.begin_creation("orders", 1).at_once()
    assert store.failed is None


def test_a_partition_that_has_vanished_is_not_replaced_by_an_empty_one(
    open_store: OpenStore, disk: SimulatedDisk
) -> None:
    store = open_store()
    store.catalog.begin_creation("orders", 3).at_once()
    store.close()
    disk.remove_directory(DATA_DIR / "log" / "orders-1")
    with pytest.raises(StorageError, match="topic orders has lost orders-1 from"):
        open_store()


def test_producer_ids_are_never_given_twice(
    open_store: OpenStore, disk: SimulatedDisk, allocate_producer_ids: AllocateProducerIds
) -> None:
    random = Random(1)
    given: set[int] = set()
    for _ in range(6):
        store = open_store()
        for count in (1, 3, PRODUCER_ID_BLOCK, 1):
            new = set(allocate_producer_ids(store, count))
            assert len(new) == count
            assert not new & given
            given |= new
        disk.crash(random)


def test_producer_ids_are_reserved_in_blocks(
    open_store: OpenStore, disk: SimulatedDisk, allocate_producer_ids: AllocateProducerIds
) -> None:
    store = open_store()
    allocate_producer_ids(store, 1)
    steps = disk.steps
    for _ in range(PRODUCER_ID_BLOCK - 1):
        allocate_producer_ids(store, 1)
    assert disk.steps == steps


def test_what_opening_had_to_cut_is_listed(
    open_store: OpenStore, make_batch: MakeBatch, disk: SimulatedDisk
) -> None:
    store = open_store()
    store.catalog.begin_creation("orders", 2).at_once().partitions[1].append(
        make_batch(), size_bytes_max=SIZE_MAX
    )
    disk.kill()
    path = DATA_DIR / "log" / "orders-1" / "00000000000000000000.log"
    disk.overwrite(path, disk.content(path)[:-1])
    (cut,) = open_store().cuts
    assert (cut.path, cut.next_offset) == (path, 0)


def test_on_a_real_disk_only_the_owner_may_look(tmp_path: Path, clock: Clock, make_batch: MakeBatch) -> None:
    data_dir = tmp_path / "deep" / "data"
    store = LogStore.open(data_dir, LogConfig(), clock)
    store.catalog.begin_creation("orders", 1).at_once().partitions[0].append(
        make_batch(), size_bytes_max=SIZE_MAX
    )
    store.close()
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in [data_dir, *data_dir.rglob("*")]}
    assert all(mode == (0o700 if path.is_dir() else 0o600) for path, mode in modes.items())
    store = LogStore.open(data_dir, LogConfig(), clock)
    assert store.topics["orders"].partitions[0].end_offset == 1
    store.close()
