"""The threads that wait for the disk, with partitions whose syncs fail as the test says."""

from __future__ import annotations

from pathlib import Path
from queue import Queue
from threading import Barrier, Thread
from typing import Any

import pytest

from headrace.errors import PartitionClosed, StorageError, TooManyOpenFiles
from headrace.kafka.sync_threads import THREAD_COUNT_MAX, SyncThreads

WITHIN_S = 60.0


class Partition:
    """Raises these errors one after the other, then syncs."""

    def __init__(self, *errors: Exception) -> None:
        self.directory = Path("orders-0")
        self.sync_count = 0
        self._errors = list(errors)

    def sync(self) -> None:
        if self._errors:
            raise self._errors.pop(0)
        self.sync_count += 1


def outcome_of(*partitions: Any) -> StorageError | None:
    ended: Queue[StorageError | None] = Queue()
    threads = SyncThreads(lambda _logs, error: ended.put(error))
    threads.sync(partitions)
    try:
        return ended.get(timeout=WITHIN_S)
    finally:
        threads.stop()


def test_all_partitions_are_synced() -> None:
    partitions = [Partition(), Partition()]
    assert outcome_of(*partitions) is None
    assert [partition.sync_count for partition in partitions] == [1, 1]


def test_partitions_are_synced_at_the_same_time() -> None:
    together = Barrier(3)

    class Patient(Partition):
        def sync(self) -> None:
            together.wait(WITHIN_S)
            super().sync()

    partitions = [Patient() for _ in range(3)]
    assert outcome_of(*partitions) is None
    assert [partition.sync_count for partition in partitions] == [1, 1, 1]


def test_more_partitions_than_threads_are_all_synced_before_it_is_told() -> None:
    partitions = [Partition() for _ in range(5 * THREAD_COUNT_MAX)]
    assert outcome_of(*partitions) is None
    assert {partition.sync_count for partition in partitions} == {1}


def test_nothing_is_synced_after_the_threads_have_been_stopped() -> None:
    threads = SyncThreads(lambda _logs, _error: None)
    partition: Any = Partition()
    threads.stop()
    threads.sync((partition,))
    assert partition.sync_count == 0


def test_a_partition_that_was_deleted_meanwhile_is_passed_over() -> None:
    partitions = [Partition(PartitionClosed("deleted")), Partition()]
    assert outcome_of(*partitions) is None
    assert partitions[1].sync_count == 1


def test_a_disk_that_fails_is_reported() -> None:
    error = StorageError("EIO")
    assert outcome_of(Partition(error), Partition()) is error


def test_a_want_of_open_files_is_waited_out() -> None:
    partition = Partition(TooManyOpenFiles("EMFILE"), TooManyOpenFiles("EMFILE"))
    assert outcome_of(partition) is None
    assert partition.sync_count == 1


def test_a_mistake_of_ours_is_reported_and_the_thread_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    error = outcome_of(Partition(ValueError("a mistake")))
    assert isinstance(error, StorageError)
    assert "a mistake" in caplog.text


def test_where_the_system_allows_no_more_threads_those_that_there_are_sync_everything(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended: Queue[StorageError | None] = Queue()
    threads = SyncThreads(lambda _logs, error: ended.put(error))
    threads.start()

    def refuse(_thread: Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(Thread, "start", refuse)
    partitions: Any = [Partition() for _ in range(3)]
    threads.sync(tuple(partitions))

    assert ended.get(timeout=WITHIN_S) is None
    assert [partition.sync_count for partition in partitions] == [1, 1, 1]
    threads.stop()
