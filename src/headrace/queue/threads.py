"""The threads that wait for the disk in place of the event loop: one syncs the journal, one does the rest."""

from __future__ import annotations

import logging
from queue import SimpleQueue
from threading import Event, Thread
from typing import TYPE_CHECKING, Final

from headrace.queue.engine import QueueEngine

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable
    from pathlib import Path

    from headrace.clock import Clock
    from headrace.config import Durability
    from headrace.errors import StorageError
    from headrace.queue.limits import QueueLimits

    Call = Callable[[], None]

logger: Final = logging.getLogger(__name__)


class Worker:
    """A thread that does one piece of work after the other, and calls back on the event loop's."""

    def __init__(self, call_on_loop: Callable[[Call], object], *, name: str) -> None:
        self._call_on_loop = call_on_loop
        self._work: SimpleQueue[tuple[Call, Call] | None] = SimpleQueue()
        self._stopping = Event()
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Call, then: Call) -> None:
        """Do the work on this thread, then call back on the event loop's."""
        self._work.put((work, then))

    def stop(self) -> None:
        """End when the work that is going on is done; what has not been begun is left undone."""
        self._stopping.set()
        self._work.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (given := self._work.get()) is not None:
            if self._stopping.is_set():
                continue
            work, then = given
            try:
                work()
            except Exception:
                # This thread must go on, whatever mistake of ours was in the work.
                logger.exception("work for the disk failed in an unexpected way")
            self._call_on_loop(then)


class ThreadedQueues:
    """A queue engine with its threads, on an asyncio event loop. Made, started and stopped on its thread."""

    def __init__(  # What an engine needs.
        self,
        data_dir: Path,
        limits: QueueLimits,
        clock: Clock,
        loop: AbstractEventLoop,
        *,
        durability: Durability = "sync",
        on_failure: Callable[[StorageError], None] = lambda _: None,
    ) -> None:
        self._loop = loop
        self._error: StorageError | None = None
        self._syncing = Worker(self._call_on_loop, name="headrace-queue-sync")
        self._disk = Worker(self._call_on_loop, name="headrace-queue-disk")
        try:
            self.engine = QueueEngine(
                data_dir,
                limits,
                clock,
                loop,
                start_sync=lambda: self._syncing.submit(self._sync, self._synced),
                submit=self._disk.submit,
                durability=durability,
                on_failure=on_failure,
            )
        except BaseException:
            self._stop_threads()
            raise
        self.broker = self.engine.broker

    def start(self) -> None:
        """Begin with what is done from time to time."""
        self.engine.start()

    def stop(self) -> None:
        """Close everything; what was done is durable when this returns. Waits for the disk."""
        self._stop_threads()
        self.engine.stop()

    def _stop_threads(self) -> None:
        self._syncing.stop()
        self._disk.stop()

    def _sync(self) -> None:
        self._error = self.engine.sync()

    def _synced(self) -> None:
        self.engine.synced(self._error)

    def _call_on_loop(self, call: Call) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(call)
