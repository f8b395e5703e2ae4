"""Group commit: who is released by which sync."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from headrace.config import Durability
from headrace.errors import HeadraceError, PartitionClosed, StorageError
from headrace.kafka.commit import GroupCommit

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.log.partition import PartitionLog


class FakeLog:
    def __init__(self) -> None:
        self.end_offset = 0
        self.durable_offset = 0

    def append(self, count: int) -> int:
        self.end_offset += count
        return self.end_offset


class Bench:
    """A group commit whose disk is the test."""

    def __init__(self, durability: Durability = "sync", *, call_soon: Any = None) -> None:
        self.syncs: list[tuple[PartitionLog, ...]] = []
        self.progress: list[PartitionLog] = []
        self.failures: list[StorageError] = []
        self.commit = GroupCommit(
            durability,
            self.syncs.append,
            self.progress.append,
            self.failures.append,
            call_soon or (lambda callback: callback()),
        )
        self.released: list[tuple[str, HeadraceError | None]] = []

    def log(self) -> Any:
        return FakeLog()

    def append(self, log: Any, name: str) -> None:
        end_offset = log.append(1)
        self.commit.appended(log)
        self.commit.when_durable(log, end_offset, lambda error: self.released.append((name, error)))

    def finish_sync(self, error: StorageError | None = None) -> None:
        logs: Any = self.syncs.pop(0)
        for log in logs:
            if error is None:
                log.durable_offset = log.end_offset
        self.commit.synced(logs, error)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_producer_is_released_by_the_sync_after_its_append(bench: Bench) -> None:
    log = bench.log()
    bench.append(log, "a")
    assert bench.released == []
    bench.finish_sync()
    assert bench.released == [("a", None)]


def test_appends_during_a_sync_share_the_next_one(bench: Bench) -> None:
    logs = [bench.log(), bench.log()]
    bench.append(logs[0], "a")
    for name in "bcd":
        bench.append(logs[1], name)
    assert [len(each) for each in bench.syncs] == [1]
    bench.finish_sync()
    assert bench.syncs == [(logs[1],)]
    bench.finish_sync()
    assert [name for name, _ in bench.released] == ["a", "b", "c", "d"]
    assert bench.syncs == []


def test_appends_of_requests_that_came_together_share_one_sync() -> None:
    soon: list[Callable[[], None]] = []
    bench = Bench(call_soon=soon.append)
    logs = [bench.log(), bench.log()]
    for name, log in zip("abc", (logs[0], logs[1], logs[0]), strict=True):
        bench.append(log, name)
    assert bench.syncs == []
    assert len(soon) == 1
    soon.pop()()
    assert bench.syncs == [tuple(logs)]
    bench.finish_sync()
    assert sorted(name for name, _ in bench.released) == ["a", "b", "c"]


def test_an_append_that_the_running_sync_may_have_missed_waits_for_the_next(bench: Bench) -> None:
    log = bench.log()
    bench.append(log, "a")
    syncing = bench.syncs.pop(0)
    log.durable_offset = log.end_offset
    bench.append(log, "b")
    bench.commit.synced(syncing, None)
    assert [name for name, _ in bench.released] == ["a"]
    bench.finish_sync()
    assert [name for name, _ in bench.released] == ["a", "b"]


def test_consumers_see_only_what_is_durable(bench: Bench) -> None:
    log = bench.log()
    bench.append(log, "a")
    assert bench.commit.high_watermark(log) == 0
    assert bench.progress == []
    bench.finish_sync()
    assert bench.commit.high_watermark(log) == 1
    assert bench.progress == [log]


def test_with_durability_os_nothing_waits_and_nothing_is_synced() -> None:
    bench = Bench("os")
    log = bench.log()
    bench.append(log, "a")
    assert bench.released == [("a", None)]
    assert bench.syncs == []
    assert bench.commit.high_watermark(log) == 1
    assert bench.progress == [log]


def test_what_is_durable_already_waits_for_nothing(bench: Bench) -> None:
    log = bench.log()
    log.end_offset = log.durable_offset = 5
    heard: list[HeadraceError | None] = []
    bench.commit.when_durable(log, 5, heard.append)
    assert heard == [None]


def test_after_a_failed_sync_everybody_who_waits_is_told_and_nothing_is_synced_again(bench: Bench) -> None:
    logs = [bench.log(), bench.log()]
    bench.append(logs[0], "a")
    bench.append(logs[1], "b")
    error = StorageError("the disk is gone")
    bench.finish_sync(error)
    assert sorted(bench.released, key=lambda each: each[0]) == [("a", error), ("b", error)]
    assert bench.failures == [error]
    assert bench.syncs == []


def test_producers_to_a_deleted_topic_are_released_with_the_reason(bench: Bench) -> None:
    log = bench.log()
    bench.append(log, "a")
    gone = PartitionClosed("topic t was deleted")
    bench.commit.closed(log, gone)
    assert bench.released == [("a", gone)]
    bench.commit.synced(bench.syncs.pop(0), None)
    assert bench.released == [("a", gone)]


def test_those_who_wait_for_a_log_are_released_in_their_order_however_far_the_disk_is(bench: Bench) -> None:
    log = bench.log()
    bench.append(log, "a")
    # The sync threads have got this far, but nobody has been told yet.
    log.durable_offset = log.end_offset
    bench.append(log, "b")
    log.durable_offset = log.end_offset
    bench.commit.when_durable(log, 1, lambda error: bench.released.append(("c", error)))
    assert bench.released == []
    bench.finish_sync()
    assert [name for name, _ in bench.released] == ["a", "b", "c"]


def test_what_is_appended_by_those_that_a_sync_releases_shares_the_next_one(bench: Bench) -> None:
    first, second, third = bench.log(), bench.log(), bench.log()

    def append_more(_error: HeadraceError | None) -> None:
        bench.append(second, "second")
        bench.append(third, "third")

    end_offset = first.append(1)
    bench.commit.appended(first)
    bench.commit.when_durable(first, end_offset, append_more)
    bench.finish_sync()
    assert bench.syncs == [(second, third)]


def test_a_mistake_of_one_who_waited_keeps_nobody_else_waiting(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    logs = [bench.log(), bench.log()]
    end_offset = logs[0].append(1)
    bench.commit.appended(logs[0])
    bench.commit.when_durable(logs[0], end_offset, lambda _error: 1 / 0)  # type: ignore[arg-type]  # a mistake
    bench.append(logs[0], "behind it")
    bench.append(logs[1], "beside it")
    bench.finish_sync()
    bench.finish_sync()
    assert bench.released == [("behind it", None), ("beside it", None)]
    assert "ZeroDivisionError" in caplog.text
    bench.append(logs[0], "next")
    bench.finish_sync()
    assert bench.released[2:] == [("next", None)]
