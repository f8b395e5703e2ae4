"""The cleaner's thread: it does its work beside an event loop, and gives way to everybody."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import Any

import pytest

from headrace.config import HOUR_MS, LONG_MAX, LogConfig
from headrace.errors import StorageError
from headrace.log.batch import encode_batch
from headrace.log.cleaner import Cleaner
from headrace.log.cleaning import PartitionCleaning
from headrace.log.partition import PartitionLog
from headrace.log.record import Record
from headrace.log.topic_settings import TopicSettings
from headrace.testing.clock import ManualClock
from headrace.testing.partition import open_log

SIZE_MAX = 1_000_000
WAIT_S = 120.0
CONFIG = LogConfig(cleaner_interval_ms=1)


class Loop:
    """An event loop that turns while a test waits for something, with a cleaner beside it."""

    def __init__(self, directory: Path, config: LogConfig = CONFIG) -> None:
        self.clock = ManualClock()
        self.directory = directory
        self.logs: list[PartitionLog] = []
        self.failures: list[StorageError] = []
        self.shortened: list[PartitionLog] = []
        self._calls: Queue[Callable[[], None]] = Queue()
        self.cleaner = Cleaner(
            config,
            self.clock,
            lambda: self.logs,
            self._calls.put,
            on_failure=self.failures.append,
            on_shortened=self.shortened.append,
        )

    def open(self, **settings: object) -> PartitionLog:
        settings = {"segment_bytes": 1024, "segment_ms": LONG_MAX, **settings}
        log = open_log(
            self.directory / f"topic-{len(self.logs)}",
            TopicSettings(**settings),  # type: ignore[arg-type] # Each test knows its own.
            self.clock,
        )
        self.logs.append(log)
        return log

    def turn_until(self, condition: Callable[[], bool]) -> None:
        """Make the calls that come in until something is so."""
        deadline = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < deadline, "it took too long"
            try:
                self._calls.get(timeout=0.01)()
            except Empty:
                continue

    def stop(self) -> None:
        self.cleaner.stop()
        for log in self.logs:
            log.close()


@pytest.fixture
def loop(tmp_path: Path) -> Iterator[Loop]:
    loop = Loop(tmp_path)
    yield loop
    loop.stop()


def fill(log: PartitionLog, clock: ManualClock, count: int = 12) -> None:
    for number in range(count):
        record = Record(timestamp_ms=clock.now_ms(), key=b"%d" % (number % 2), value=bytes(300))
        log.append(encode_batch([record]), size_bytes_max=SIZE_MAX)
    log.sync()


def test_partitions_are_compacted_and_retained_while_the_loop_goes_on(loop: Loop) -> None:
    compacted = loop.open(cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0)
    retained = loop.open(retention_ms=HOUR_MS)
    for log in (compacted, retained):
        fill(log, loop.clock)
    size_bytes = compacted.size_bytes
    loop.clock.advance(HOUR_MS + 1)
    loop.cleaner.start()
    loop.turn_until(lambda: loop.cleaner.counts.deleted_bytes > 0 and loop.cleaner.counts.compacted_bytes > 0)
    assert retained.start_offset == retained.end_offset == 12
    assert compacted.size_bytes < size_bytes
    assert loop.cleaner.counts.failures == 0
    loop.turn_until(lambda: bool(loop.shortened))
    assert loop.shortened == [retained]


def test_a_partition_that_can_not_be_read_is_named_once_and_the_others_have_their_turn(
    loop: Loop, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {"cleanup_policy": ("compact",), "min_cleanable_dirty_ratio": 0.0}
    damaged, sound = loop.open(**settings), loop.open(**settings)
    for log in (damaged, sound):
        fill(log, loop.clock)
    path = damaged.segments[0].path
    content = bytearray(path.read_bytes())
    content[70] ^= 1
    path.write_bytes(content)
    loop.cleaner.start()
    loop.turn_until(lambda: loop.cleaner.counts.compacted_bytes > 0)
    rounds = loop.cleaner.counts.rounds
    loop.turn_until(lambda: loop.cleaner.counts.rounds > rounds + 3)
    assert loop.cleaner.counts.uncleanable_partitions == 1
    said = [
        record.getMessage() for record in caplog.records if "not compacted any more" in record.getMessage()
    ]
    assert len(said) == 1
    assert f"{path.name}, byte 0, offset 0" in said[0]


def test_a_mistake_of_ours_does_not_end_the_thread(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    loop.open(retention_bytes=0)
    monkeypatch.setattr(PartitionCleaning, "retain", lambda *_: 1 / 0)
    loop.cleaner.start()
    loop.turn_until(lambda: loop.cleaner.counts.failures > 1)
    monkeypatch.undo()
    rounds = loop.cleaner.counts.rounds
    loop.turn_until(lambda: loop.cleaner.counts.rounds > rounds)
    assert "unexpected" in caplog.text


def test_files_of_deleted_records_go_though_nothing_else_is_to_be_done(loop: Loop) -> None:
    log = loop.open()
    fill(log, loop.clock)
    change = log.begin_record_deletion(12)
    change.run()
    change.finish()
    loop.cleaner.start()
    loop.turn_until(lambda: loop.cleaner.counts.deleted_bytes > 0)
    assert len(list(log.directory.glob("*.log"))) == 1


def test_a_disk_that_fails_is_told_to_the_loop(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    log = loop.open(retention_bytes=0)
    fill(log, loop.clock)

    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("headrace.log.record_deletion.write_log_start", fail)
    loop.cleaner.start()
    loop.turn_until(lambda: bool(loop.failures))
    assert log.failed is loop.failures[0]
    assert log.start_offset == 0


def test_it_stops_though_the_loop_does_not_answer(loop: Loop) -> None:
    fill(loop.open(retention_bytes=0), loop.clock)
    loop.cleaner.start()
    loop.stop()


def test_a_partition_can_be_closed_though_the_cleaner_waits_for_the_loop(loop: Loop) -> None:
    log = loop.open(retention_bytes=0)
    fill(log, loop.clock)
    loop.cleaner.start()
    loop.turn_until(log.cleaning_lock.locked)
    closer = Thread(target=log.retire)
    closer.start()
    closer.join(WAIT_S)
    assert not closer.is_alive()


def test_it_begins_at_once_when_it_is_woken(tmp_path: Path) -> None:
    loop = Loop(tmp_path)
    loop.cleaner = Cleaner(
        LogConfig(cleaner_interval_ms=HOUR_MS),
        loop.clock,
        lambda: loop.logs,
        loop._calls.put,
        on_failure=loop.failures.append,
        on_shortened=loop.shortened.append,
    )
    loop.cleaner.start()
    loop.cleaner.wake()
    loop.turn_until(lambda: loop.cleaner.counts.rounds == 1)
    loop.stop()


def test_cleaning_that_can_not_be_loaded_is_tried_again(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    log = loop.open(retention_bytes=0)
    fill(log, loop.clock)
    refusals = [OSError(24, "Too many open files")] * 2
    take_steps = Cleaner._take_steps

    def refuse(*arguments: Any) -> int:
        if refusals:
            # This is where the module is loaded at the first time.
            raise refusals.pop()
        return take_steps(*arguments)

    monkeypatch.setattr(Cleaner, "_take_steps", refuse)
    loop.cleaner.start()
    loop.turn_until(lambda: loop.cleaner.counts.deleted_bytes > 0)
    assert loop.cleaner.counts.failures == 2
