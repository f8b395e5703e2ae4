from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread

from headrace.clock import Clock
from headrace.errors import PartitionClosed
from headrace.log.batch import read_header
from headrace.log.partition import PartitionLog
from headrace.log.topic_settings import TopicSettings

MakeBatch = Callable[..., bytes]
APPEND_COUNT = 2000


def test_a_thread_may_sync_while_another_appends_rolls_and_reads(
    tmp_path: Path, clock: Clock, make_batch: MakeBatch
) -> None:
    settings = TopicSettings(segment_bytes=10_000, index_interval_bytes=500)
    log = PartitionLog.open(tmp_path / "topic-0", settings, clock)
    stop = Event()
    failures: list[BaseException] = []
    seen: list[int] = [0]

    def sync() -> None:
        try:
            while not stop.is_set():
                before = log.end_offset
                log.sync()
                assert before <= log.durable_offset <= log.end_offset
                seen.append(log.durable_offset)
        except BaseException as failure:  # noqa: BLE001  # Whatever it is, the main thread is to see it.
            failures.append(failure)

    thread = Thread(target=sync)
    thread.start()
    batch = make_batch(2, value=b"x" * 50)
    for n in range(APPEND_COUNT):
        log.append(batch, size_bytes_max=10_000)
        assert read_header(log.read(n, size_bytes_max=1)).base_offset == n // 2 * 2
    stop.set()
    thread.join()
    assert failures == []
    assert seen == sorted(seen)
    log.sync()
    segments = sorted(path.stem for path in (tmp_path / "topic-0").glob("*.log"))
    sealed = sorted(path.stem for path in (tmp_path / "topic-0").glob("*.index"))
    assert sealed == segments[:-1]
    assert log.durable_offset == 2 * APPEND_COUNT
    log.close()
    log = PartitionLog.open(tmp_path / "topic-0", settings, clock)
    assert log.end_offset == 2 * APPEND_COUNT
    log.close()


def test_closing_waits_for_a_sync_that_is_under_way(
    tmp_path: Path, clock: Clock, make_batch: MakeBatch
) -> None:
    log = PartitionLog.open(tmp_path / "topic-0", TopicSettings(), clock)
    outcomes: list[str] = []

    def sync() -> None:
        try:
            while True:
                log.sync()
        except PartitionClosed:
            outcomes.append("closed")

    thread = Thread(target=sync)
    thread.start()
    for _ in range(50):
        log.append(make_batch(), size_bytes_max=10_000)
    log.close()
    thread.join()
    assert outcomes == ["closed"]
