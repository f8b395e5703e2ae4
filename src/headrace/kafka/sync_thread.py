"""The thread that waits for the disk, so that the event loop never does."""

from __future__ import annotations

import logging
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Final

from headrace.errors import PartitionClosed, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.log.partition import PartitionLog

    Logs = tuple[PartitionLog, ...]

logger: Final = logging.getLogger(__name__)


class SyncThread:
    """Syncs partitions, one request after the other."""

    def __init__(self, on_synced: Callable[[Logs, StorageError | None], None]) -> None:
        """`on_synced` is called on this thread."""
        self._on_synced = on_synced
        self._requests: SimpleQueue[Logs | None] = SimpleQueue()
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
            self._requests.put(None)
            self._thread.join()

    def _run(self) -> None:
        while (logs := self._requests.get()) is not None:
            self._on_synced(logs, _sync_all(logs))


def _sync_all(logs: Logs) -> StorageError | None:
    for log in logs:
        try:
            log.sync()
        except PartitionClosed:
            # Its topic was deleted meanwhile: nobody needs these records any more.
            continue
        except StorageError as error:
            return error
        except Exception as error:
            # This thread must go on, and producers must not wait for ever: a mistake of ours counts as a
            # disk that has failed.
            logger.exception("syncing %s failed in an unexpected way", log.directory)
            return StorageError(f"syncing {log.directory} failed in an unexpected way: {error!r}")
    return None
