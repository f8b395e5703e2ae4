"""The thread that deletes and compacts, so that the event loop does not wait for it.

From time to time, and when it is woken, it goes through all partitions. What changes a partition is done on
the event loop's thread (see cleaning.py). Between two batches it takes a breath: Python runs one thread at a
time, and clients should not notice that one of them is busy. In that breath it also notices that it has to
stop, or that its partition is about to be closed, and gives up what it has begun: nothing is lost by that.

A partition with a batch that can't be read is not compacted any more until the next start; that is said once
and counted. Any other failure is said, and the partition has its turn again the next time.
"""

from __future__ import annotations

import logging
import time
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary, WeakSet

from headrace.errors import CorruptBatch, HeadraceError, PartitionClosed, StorageError, TooManyOpenFiles
from headrace.log.disk import OpenRefused
from headrace.log.trusted_time import TrustedTime

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from headrace.clock import Clock
    from headrace.config import LogConfig
    from headrace.log.cleaning import PartitionCleaning, Steps
    from headrace.log.partition import PartitionLog

    Call = Callable[[], Any]

logger: Final = logging.getLogger(__name__)

WORK_S_MAX: Final = 0.001
"""So long it works without a breath."""
BREATH_S: Final = 0.000_5
ANSWER_WAIT_S: Final = 0.02
"""How often it looks, while the event loop has not answered yet, whether it has to give up."""


class Abandoned(Exception):
    """The work is given up: the cleaner stops, or the partition is about to be closed."""


@dataclass(slots=True)
class CleanerCounts:
    """What has been done since the start. Read by anybody, written by the cleaner alone."""

    rounds: int = 0
    """How often all partitions have been gone through."""
    deleted_bytes: int = 0
    """By retention, and of records that somebody deleted."""
    compacted_bytes: int = 0
    """By so much partitions have become smaller when they were compacted."""
    failures: int = 0
    uncleanable_partitions: int = 0
    """Those that can't be compacted because a batch can't be read."""


class Cleaner:
    """Goes through partitions on a thread of its own."""

    def __init__(
        self,
        config: LogConfig,
        clock: Clock,
        partitions: Callable[[], Iterable[PartitionLog]],
        call_on_loop: Callable[[Callable[[], None]], object],
        *,
        on_failure: Callable[[StorageError], None],
        on_shortened: Callable[[PartitionLog], None],
    ) -> None:
        """`partitions` is called on the event loop's thread.

        So are `on_failure`, when the disk has failed, and `on_shortened`, when a partition has lost its
        oldest records.

        `call_on_loop` is called on this thread, and makes its argument be called on the event loop's.
        """
        self.counts = CleanerCounts()
        self._config = config
        self._clock = clock
        self._partitions = partitions
        self._call_on_loop = call_on_loop
        self._on_failure = on_failure
        self._on_shortened = on_shortened
        self._trusted_time = TrustedTime(clock.now_ms(), clock.monotonic_s())
        self._cleanings: WeakKeyDictionary[PartitionLog, PartitionCleaning] = WeakKeyDictionary()
        self._uncleanable: WeakSet[PartitionLog] = WeakSet()
        self._current: PartitionLog | None = None
        self._working_since_s = 0.0
        self._is_stopping = False
        self._wake = Event()
        self._thread = Thread(target=self._run, name="headrace-cleaner", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def wake(self) -> None:
        """Go through all partitions now. Safe to call from any thread."""
        self._wake.set()

    def stop(self) -> None:
        """Give up what is being done, then end."""
        self._is_stopping = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._is_stopping:
            self._wake.wait(self._config.cleaner_interval_ms / 1000)
            self._wake.clear()
            try:
                self._clean_all()
            except Abandoned:
                continue
            self.counts.rounds += 1

    def _clean_all(self) -> None:
        for log in self._ask(lambda: tuple(self._partitions())):
            self._breathe()
            self._current = log
            try:
                with log.cleaning_lock:
                    self._clean(log)
            except Abandoned:
                if self._is_stopping:
                    raise
            finally:
                self._current = None

    def _clean(self, log: PartitionLog) -> None:
        if log.is_retiring or log.failed is not None:
            return
        if not (log.settings.has_retention or log.settings.is_compacted):
            self.counts.deleted_bytes += self._try(log, "removing files of", log.remove_deleted_files)
            return
        now_ms = self._trusted_time.now_ms(self._clock.now_ms(), self._clock.monotonic_s())
        start_offset = log.start_offset
        self.counts.deleted_bytes += self._try(
            log, "retaining", lambda: self._take_steps(log, lambda cleaning: cleaning.retain(now_ms))
        )
        if log.start_offset > start_offset:
            self._call_on_loop(lambda: self._on_shortened(log))
        if log not in self._uncleanable and log.failed is None:
            memory_bytes_max = self._config.compaction_memory_bytes
            self.counts.compacted_bytes += self._try(
                log,
                "compacting",
                lambda: self._take_steps(log, lambda cleaning: cleaning.compact(now_ms, memory_bytes_max)),
            )

    def _take_steps(self, log: PartitionLog, begin: Callable[[PartitionCleaning], Steps[int]]) -> int:
        # The broker listens before it needs this. Whoever calls bears with its not being there.
        from headrace.log.cleaning import PartitionCleaning, take_steps  # noqa: PLC0415

        cleaning = self._cleanings.get(log)
        if cleaning is None:
            cleaning = self._cleanings[log] = PartitionCleaning(log, self._breathe)
        return take_steps(begin(cleaning), self._ask)

    def _try(self, log: PartitionLog, doing: str, work: Callable[[], int]) -> int:
        """Do some work; return what it returns, or 0 when it fails."""
        try:
            return work()
        except (Abandoned, PartitionClosed):
            logger.debug("%s %s was given up", doing, log.directory)
        except CorruptBatch as error:
            self._mark_uncleanable(log, error)
        except (HeadraceError, OSError) as error:
            self.counts.failures += 1
            is_passing = isinstance(error, OpenRefused | TooManyOpenFiles)
            logger.log(
                logging.INFO if is_passing else logging.WARNING,
                "%s %s failed; it will be tried again: %s",
                doing,
                log.directory,
                error,
            )
            if (failed := log.failed) is not None:
                self._call_on_loop(lambda: self._on_failure(failed))
        except Exception as error:
            # This thread must go on, whatever mistake of ours this is.
            self.counts.failures += 1
            logger.exception("%s %s failed in an unexpected way", doing, log.directory)
            self._mark_uncleanable(log, error)
        return 0

    def _mark_uncleanable(self, log: PartitionLog, error: Exception) -> None:
        if log not in self._uncleanable:
            self._uncleanable.add(log)
            self.counts.uncleanable_partitions += 1
            logger.error(
                "%s is not compacted any more until the next start, because of what was found in it: %s",
                log.directory,
                error,
            )

    def _breathe(self) -> None:
        """Let others work, and give up if that is wanted."""
        if self._has_to_give_up:
            raise Abandoned
        if time.monotonic() - self._working_since_s > WORK_S_MAX:
            time.sleep(BREATH_S)
            self._working_since_s = time.monotonic()

    def _ask(self, call: Call) -> Any:
        """Have a call made on the event loop's thread, and wait for it as long as that makes sense."""
        answer: Future[Any] = Future()

        def answer_it() -> None:
            if answer.set_running_or_notify_cancel():
                try:
                    answer.set_result(call())
                except Exception as error:  # noqa: BLE001  # Whatever it is, who asked gets it.
                    answer.set_exception(error)

        self._call_on_loop(answer_it)
        while True:
            try:
                return answer.result(ANSWER_WAIT_S)
            except TimeoutError:
                if answer.done():
                    raise
                if self._has_to_give_up and answer.cancel():
                    raise Abandoned from None

    @property
    def _has_to_give_up(self) -> bool:
        return self._is_stopping or (self._current is not None and self._current.is_retiring)
