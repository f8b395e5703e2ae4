"""The threads that wait for the disk when records are acknowledged, so that the event loop does not.

The partitions of one request are synced at the same time: file systems write the journal once for all whose
syncs have begun, so that six of them take hardly longer than one, and not six times as long.
"""

from __future__ import annotations

import logging
from queue import SimpleQueue
from threading import Event, Lock, Thread
from time import perf_counter_ns
from typing import TYPE_CHECKING, Final

from headrace.errors import PartitionClosed, StorageError, TooManyOpenFiles
from headrace.kafka.metrics.counters import Times

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.log.partition import PartitionLog

    Logs = tuple[PartitionLog, ...]
    OnSynced = Callable[[Logs, StorageError | None], None]

logger: Final = logging.getLogger(__name__)

THREAD_COUNT_MAX: Final = 8
RETRY_S: Final = 0.1
"""How long to wait until a file that could not be opened is tried again."""


class SyncThreads:
    """Syncs partitions, as many of them at the same time as there are threads."""

    def __init__(self, on_synced: OnSynced) -> None:
        """`on_synced` is called once for each request, on one of the threads."""
        self._on_synced = on_synced
        self._work: SimpleQueue[tuple[PartitionLog, SyncRound] | None] = SimpleQueue()
        self._stopping = Event()
        self._times_lock = Lock()
        self.times = Times()
        """How long syncs take."""
        self._threads: list[Thread] = []

    def start(self) -> None:
        """Start the first thread: where not even one can be had, the broker can't serve."""
        self._start_thread()

    def sync(self, logs: Logs) -> None:
        """Ask for a sync of these partitions. Call it, and `stop`, on one thread.

        Nothing is synced any more after `stop`.
        """
        if self._stopping.is_set():
            return
        wanted = SyncRound(logs, self._on_synced)
        for log in logs:
            self._work.put((log, wanted))
        while len(self._threads) < min(len(logs), THREAD_COUNT_MAX):
            try:
                self._start_thread()
            except RuntimeError as error:
                # The system allows no more. Those that there are do the work, only not all at once.
                if not self._threads:
                    raise
                logger.debug("syncing with %d threads: %s", len(self._threads), error)
                break

    def stop(self) -> None:
        """Finish what has been asked for, then end."""
        self._stopping.set()
        for _ in self._threads:
            self._work.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def _start_thread(self) -> None:
        name = f"headrace-sync-{len(self._threads) + 1}"
        thread = Thread(target=self._run, name=name, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            log, wanted = work
            wanted.ended(self._sync(log))

    def _sync(self, log: PartitionLog) -> StorageError | None:
        """Sync; while the system is out of open files, which passes, try again: acknowledgements wait."""
        is_told = False
        while True:
            began_ns = perf_counter_ns()
            error = sync_failure(log)
            with self._times_lock:
                self.times.add(perf_counter_ns() - began_ns)
            if not isinstance(error, TooManyOpenFiles) or self._stopping.is_set():
                return error
            if not is_told:
                logger.warning("acknowledgements wait: %s", error)
                is_told = True
            self._stopping.wait(RETRY_S)


class SyncRound:
    """Partitions that were to be synced by one request. Shared by the threads."""

    def __init__(self, logs: Logs, on_synced: OnSynced) -> None:
        self._logs = logs
        self._on_synced = on_synced
        self._lock = Lock()
        self._remaining = len(logs)
        self._error: StorageError | None = None

    def ended(self, error: StorageError | None) -> None:
        """Note that the sync of one of them has come to its end; the last one reports the first failure."""
        with self._lock:
            self._error = self._error or error
            self._remaining -= 1
            is_last = self._remaining == 0
        if is_last:
            self._on_synced(self._logs, self._error)


def sync_failure(log: PartitionLog) -> StorageError | None:
    """Sync one partition, and return what went wrong, if anything did."""
    try:
        log.sync()
    except PartitionClosed:
        # Its topic was deleted meanwhile: nobody needs these records any more.
        return None
    except StorageError as error:
        return error
    except Exception as error:
        # The thread must go on, and producers must not wait for ever: a mistake of ours counts as a disk
        # that has failed.
        logger.exception("syncing %s failed in an unexpected way", log.directory)
        return StorageError(f"syncing {log.directory} failed in an unexpected way: {error!r}")
    return None
