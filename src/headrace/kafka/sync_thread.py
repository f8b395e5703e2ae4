"""The thread that waits for the disk when records are acknowledged, so that the event loop does not."""

from __future__ import annotations

import logging
from queue import SimpleQueue
from threading import Event, Thread
from time import perf_counter_ns
from typing import TYPE_CHECKING, Final

from headrace.errors import PartitionClosed, StorageError, TooManyOpenFiles
from headrace.kafka.metrics.counters import Times

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.log.partition import PartitionLog

    Logs = tuple[PartitionLog, ...]

logger: Final = logging.getLogger(__name__)

RETRY_S: Final = 0.1
"""How long to wait until a file that could not be opened is tried again."""


class SyncThread:
    """Syncs partitions, one request after the other."""

    def __init__(self, on_synced: Callable[[Logs, StorageError | None], None]) -> None:
        """`on_synced` is called on this thread."""
        self._on_synced = on_synced
        self._requests: SimpleQueue[Logs | None] = SimpleQueue()
        self._stopping = Event()
        self.times = Times()
        """How long syncs take; counted on this thread."""
        self._thread = Thread(target=self._run, name="headrace-sync", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def sync(self, logs: Logs) -> None:
        """Ask for a sync of these partitions. Safe to call from any thread."""
        self._requests.put(logs)

    def stop(self) -> None:
        """Finish what has been asked for, then end."""
        if self._thread.is_alive():
            self._stopping.set()
            self._requests.put(None)
            self._thread.join()

    def _run(self) -> None:
        while (logs := self._requests.get()) is not None:
            self._on_synced(logs, self._sync_all(logs))

    def _sync_all(self, logs: Logs) -> StorageError | None:
        for log in logs:
            error = self._sync(log)
            if error is not None:
                return error
        return None

    def _sync(self, log: PartitionLog) -> StorageError | None:
        """Sync; while the system is out of open files, which passes, try again: acknowledgements wait."""
        is_told = False
        while True:
            began_ns = perf_counter_ns()
            error = sync_failure(log)
            self.times.add(perf_counter_ns() - began_ns)
            if not isinstance(error, TooManyOpenFiles) or self._stopping.is_set():
                return error
            if not is_told:
                logger.warning("acknowledgements wait: %s", error)
                is_told = True
            self._stopping.wait(RETRY_S)


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
