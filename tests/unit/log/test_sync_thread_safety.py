from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Thread

from headrace.clock import Clock
from headrace.errors import PartitionClosed
from headrace.log.batch import read_header
from headrace.log.disk import SYSTEM_DISK
from headrace.log.failure import FailStop
from headrace.log.open_files import OpenFiles
from headrace.log.partition import PartitionLog
from headrace.log.storage import Storage
from headrace.log.topic_settings import TopicSettings
from headrace.testing.partition import open_log

MakeBatch = Callable[..., bytes]
APPEND_COUNT = 2000


def test_a_thread_may_sync_while_another_appends_rolls_and_reads(
    tmp_path: Path, clock: Clock, make_batch: MakeBatch
) -> None:
    settings = TopicSettings(segment_bytes=10_000, index_interval_bytes=500)
    log = open_log(tmp_path / "topic-0", settings, clock)
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
    log = open_log(tmp_path / "topic-0", settings, clock)
    assert log.end_offset == 2 * APPEND_COUNT
    log.close()


def test_closing_waits_for_a_sync_that_is_under_way(
    tmp_path: Path, clock: Clock, make_batch: MakeBatch
) -> None:
    log = open_log(tmp_path / "topic-0", TopicSettings(), clock)
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


def _watched(work: Callable[[], None], failures: list[BaseException]) -> Callable[[], None]:
    """The same work, with its failure left for the main thread to see."""

    def watched() -> None:
        try:
            work()
        except BaseException as failure:  # noqa: BLE001  # Whatever it is.
            failures.append(failure)

    return watched


def test_a_thread_may_make_checkpoints_while_others_append_and_sync(
    tmp_path: Path, clock: Clock, make_batch: MakeBatch
) -> None:
    settings = TopicSettings(segment_bytes=50_000, index_interval_bytes=500)
    due: SimpleQueue[PartitionLog | None] = SimpleQueue()
    storage = Storage(
        disk=SYSTEM_DISK,
        files=OpenFiles(SYSTEM_DISK),
        fail_stop=FailStop(),
        checkpoint_bytes=5_000,
        on_checkpoint_due=due.put,
    )
    log = open_log(tmp_path / "topic-0", settings, clock, storage=storage)
    failures: list[BaseException] = []

    def make_checkpoints() -> None:
        while (each := due.get()) is not None:
            each.checkpoint()

    def sync() -> None:
        with suppress(PartitionClosed):
            while True:
                log.sync()

    threads = [Thread(target=_watched(work, failures)) for work in (make_checkpoints, sync)]
    for thread in threads:
        thread.start()
    for sequence in range(APPEND_COUNT):
        at = clock.now_ms()
        batch = make_batch(at=at, value=b"x" * 50, producer=(7, 0, sequence), attributes=0x10)
        log.append(batch, size_bytes_max=10_000)
        if sequence % 10 == 9:
            log.append_marker(7, 0, commits=sequence % 20 == 9)
    known = log.producers(), log.aborted_transactions(0, log.end_offset), log.end_offset
    due.put(None)
    threads[0].join()
    log.close()
    threads[1].join()
    assert failures == []
    assert {path.name for path in (tmp_path / "topic-0").glob("checkpoint")}
    log = open_log(tmp_path / "topic-0", settings, clock)
    assert (log.producers(), log.aborted_transactions(0, log.end_offset), log.end_offset) == known
    for offset in range(0, log.end_offset, 97):
        assert read_header(log.read(offset, size_bytes_max=1)).base_offset == offset
    log.close()
