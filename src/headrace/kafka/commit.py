"""Group commit: many appends wait for one fdatasync.

    append -> appended(log) -> a sync starts, on a thread -> synced() -> waiting producers are released
                                                                     -> parked fetches look again

A sync starts when the event loop has done what it has at hand: requests that came together are synced
together. While a sync runs, further appends gather; they all go into the next one. So the busier the broker,
the more acknowledgements each fdatasync pays for, and appends never make the event loop wait for the disk.

With durability `os` an append counts as durable at once, as in Kafka: nothing waits, nothing is synced.

What consumers may see ends at the high watermark: with `sync` that is the durable offset, so that nothing
is ever shown that a power cut could take back.
"""

from __future__ import annotations

import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from headrace.config import Durability
    from headrace.errors import HeadraceError, StorageError
    from headrace.log.partition import PartitionLog

    Waiter = Callable[[HeadraceError | None], None]
    StartSync = Callable[[tuple[PartitionLog, ...]], None]
    CallSoon = Callable[[Callable[[], None]], object]

logger: Final = logging.getLogger(__name__)


def call_now(callback: Callable[[], None]) -> None:
    """Call back at once, where nothing else can be at hand."""
    callback()


class GroupCommit:
    """Knows who waits for which offset to be durable. Belongs to the event loop's thread."""

    def __init__(
        self,
        durability: Durability,
        start_sync: StartSync,
        on_progress: Callable[[PartitionLog], None],
        on_failure: Callable[[StorageError], None],
        call_soon: CallSoon = call_now,
    ) -> None:
        """`call_soon` makes a call once the event loop has done what it has at hand."""
        self.is_synchronous = durability == "sync"
        """Whether an append counts as durable only once it has been synced."""
        self._start_sync = start_sync
        self._on_progress = on_progress
        self._on_failure = on_failure
        self._call_soon = call_soon
        self._dirty: dict[PartitionLog, None] = {}
        self._is_syncing = False
        self._waiters: dict[PartitionLog, deque[tuple[int, Waiter]]] = {}
        self._failed: StorageError | None = None

    def high_watermark(self, log: PartitionLog) -> int:
        """The offset below which consumers may read."""
        return log.durable_offset if self.is_synchronous else log.end_offset

    def is_durable(self, log: PartitionLog, end_offset: int) -> bool:
        """Whether nobody has to wait for what lies below the offset."""
        return not self.is_synchronous or log.durable_offset >= end_offset

    def appended(self, log: PartitionLog) -> None:
        """Note that the log has grown."""
        if not self.is_synchronous:
            self._on_progress(log)
            return
        is_first = not self._dirty and not self._is_syncing
        self._dirty[log] = None
        if is_first:
            self._call_soon(self._sync_next)

    def settled(self, log: PartitionLog) -> None:
        """Note that committed readers may go on, although nothing more is durable than before."""
        if self.is_synchronous:
            self._on_progress(log)

    def when_durable(self, log: PartitionLog, end_offset: int, waiter: Waiter) -> None:
        """Call the waiter once everything below the offset is durable, or the disk has failed.

        Waiters of one partition are called in the order in which they came. The sync threads may have got
        further than those who wait have been told.
        """
        if self.is_durable(log, end_offset) and log not in self._waiters:
            waiter(None)
        elif self._failed is not None:
            waiter(self._failed)
        else:
            self._waiters.setdefault(log, deque()).append((end_offset, waiter))

    def synced(self, logs: Iterable[PartitionLog], error: StorageError | None) -> None:
        """Note that a sync has come to its end. What those who waited append goes into one next sync."""
        try:
            if error is not None:
                self.fail(error)
                return
            for log in logs:
                self._release(log)
                self._on_progress(log)
        finally:
            self._is_syncing = False
            self._sync_next()

    def closed(self, log: PartitionLog, error: HeadraceError) -> None:
        """Release everybody who waits for a partition that is no more."""
        self._dirty.pop(log, None)
        for _, waiter in self._waiters.pop(log, ()):
            _call(waiter, error)

    def fail(self, error: StorageError) -> None:
        """Release everybody with the error: what they wait for will not come.

        Some of it may have reached the disk, but a failed fdatasync does not say what. Whoever comes after
        that for something that is not durable hears the same.
        """
        self._failed = self._failed or error
        self._on_failure(error)
        self._dirty.clear()
        for log in tuple(self._waiters):
            self.closed(log, error)

    def _sync_next(self) -> None:
        if self._dirty and not self._is_syncing:
            self._is_syncing = True
            logs = tuple(self._dirty)
            self._dirty.clear()
            # What was appended after a sync had been asked for, and before it began, became durable with it.
            if all(log.durable_offset >= log.end_offset for log in logs):
                self._call_soon(partial(self.synced, logs, None))
            else:
                self._start_sync(logs)

    def _release(self, log: PartitionLog) -> None:
        waiters = self._waiters.get(log)
        durable_offset = log.durable_offset
        while waiters and waiters[0][0] <= durable_offset:
            _, waiter = waiters.popleft()
            _call(waiter, None)
        if not waiters:
            self._waiters.pop(log, None)


def _call(waiter: Waiter, error: HeadraceError | None) -> None:
    """Release one who waited. A mistake of ours there must not keep the others waiting."""
    try:
        waiter(error)
    except Exception:
        logger.exception("what waited for the disk failed in an unexpected way")
