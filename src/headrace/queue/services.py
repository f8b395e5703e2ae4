"""What all queues of a broker share: time, the journal, memory, and calls that are made later."""

from __future__ import annotations

import logging
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final, Protocol

from headrace.errors import QueueRefused, StorageError
from headrace.queue.refusals import failed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headrace.clock import Clock
    from headrace.queue.journaling import Journal
    from headrace.queue.limits import QueueLimits
    from headrace.queue.memory import Memory
    from headrace.queue.work_queue import WorkQueue

logger: Final = logging.getLogger(__name__)

PENDING_BYTES_MAX: Final = 1024 * 1024
"""What may wait for a flush."""
ATOMIC_BYTES_MAX: Final = 12 * 1024 * 1024
"""The same for a commit. The journal can't take more than 16 MiB and a message at once, so that a commit that
moves more than this, by dead letters or to very many queues, is more than one step."""
STALE_COUNT_MAX: Final = 64
"""Timers that mean nothing any more are kept up to this, and as many as there are others."""
AT_END: Final = object()
TIMER_S_MAX: Final = 60.0
"""The wall clock may be set, so it is looked at from time to time."""


class Handle(Protocol):
    """A call that will be made."""

    def cancel(self) -> None:
        """Don't make it."""
        ...


class Loop(Protocol):
    """What the broker needs of its event loop; asyncio's will do."""

    def call_soon(self, callback: Callable[[], None], /) -> object:
        """Call once what is at hand is done."""
        ...

    def call_later(self, delay: float, callback: Callable[[], None], /) -> Handle:
        """Call after so many seconds."""
        ...


class Services:
    """Belongs to the event loop's thread."""

    def __init__(
        self, limits: QueueLimits, clock: Clock, loop: Loop, journal: Journal, memory: Memory
    ) -> None:
        self.limits = limits
        self.clock = clock
        self.now_ms = clock.now_ms
        self.loop = loop
        self.journal = journal
        self.memory = memory
        self.queues: dict[int, WorkQueue] = {}
        """All queues of all virtual hosts, by id."""
        self.is_atomic = False
        """Whether what is being done has to be one step on disk, so that nothing may be flushed now."""
        self.in_pieces_count = 0
        """How much work is being done in pieces."""
        self._awake: dict[WorkQueue, None] = {}
        self._timers: list[tuple[int, int, WorkQueue]] = []
        self._due: dict[WorkQueue, int] = {}
        """When each queue is to look at the time; other timers of it are stale."""
        self._timer_number = 0
        self._timer: Handle | None = None
        self._timer_due_ms = 0
        self._is_flush_due = False
        self.flush: Callable[[], None] = journal.flush
        self.is_stopped = False

    def flush_soon(self) -> None:
        """Have everything handed to the log when the event loop has done what it has at hand."""
        if not self._is_flush_due:
            self._is_flush_due = True
            self.loop.call_soon(self._flush)
        pending_bytes = self.journal.pending_bytes
        if pending_bytes > PENDING_BYTES_MAX and (not self.is_atomic or pending_bytes > ATOMIC_BYTES_MAX):
            self.flush()

    def wake(self, queue: WorkQueue) -> None:
        """Have a queue deliver what it can, soon."""
        if not self._awake:
            self.loop.call_soon(self._deliver)
        self._awake[queue] = None

    def schedule(self, queue: WorkQueue, due_ms: int) -> None:
        """Have a queue look at the time when it has come."""
        self._due[queue] = due_ms
        self._timer_number += 1
        heappush(self._timers, (due_ms, self._timer_number, queue))
        if len(self._timers) > 2 * len(self._due) + STALE_COUNT_MAX:
            self._timers = [timer for timer in self._timers if self._due.get(timer[2]) == timer[0]]
            heapify(self._timers)
        if self._timer is None or due_ms < self._timer_due_ms:
            self._start_timer()

    def do_in_pieces(self, pieces: Iterator[None]) -> None:
        """Do work up to its first pause now, and go on after each pause when others had their turn."""
        self.in_pieces_count += 1
        self._do_piece(pieces)

    def _do_piece(self, pieces: Iterator[None]) -> None:
        if self.is_stopped:
            return
        try:
            is_at_end = next(pieces, AT_END) is AT_END
        except Exception as error:  # noqa: BLE001  # Whatever it was, the queues stop.
            self.fail(error)
            return
        if is_at_end:
            self.in_pieces_count -= 1
        else:
            self.loop.call_soon(lambda: self._do_piece(pieces))

    def deliver(self, queue: WorkQueue) -> None:
        """Have a queue deliver what it can, now."""
        try:
            queue.deliver_ready()
        except Exception as error:  # noqa: BLE001  # Whatever it was, the queues stop.
            self.fail(error)

    def fail(self, error: Exception) -> QueueRefused:
        """Stop all queues, because moving a message failed halfway; return what to tell a client that asked.

        The message may be in no list any more. The journal still has it, as long as nothing is written after
        that and no space is given back, so that it is there when the queues are started again.
        """
        if isinstance(error, QueueRefused) and self.is_stopped:
            return error
        if not isinstance(error, StorageError):
            logger.error("a queue failed in an unexpected way", exc_info=error)
            error = StorageError(f"a queue failed in an unexpected way: {error!r}. Start the broker again")
        self.journal.fail(error)
        return failed()

    def unschedule(self, queue: WorkQueue) -> None:
        """Forget a queue that is gone."""
        self._due.pop(queue, None)

    def stop(self) -> None:
        """Make no more calls."""
        self.is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _flush(self) -> None:
        self._is_flush_due = False
        self.flush()

    def _deliver(self) -> None:
        if self.is_stopped:
            return
        awake, self._awake = self._awake, {}
        for queue in awake:
            self.deliver(queue)
        self.flush_soon()

    def _start_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due_ms = self._timers[0][0]
        delay_s = max(0.0, min(TIMER_S_MAX, (self._timer_due_ms - self.now_ms()) / 1000))
        self._timer = self.loop.call_later(delay_s, self._run_timers)

    def _run_timers(self) -> None:
        self._timer = None
        if self.is_stopped:
            return
        now_ms = self.now_ms()
        due: dict[WorkQueue, None] = {}
        while self._timers and self._timers[0][0] <= now_ms:
            due_ms, _, queue = heappop(self._timers)
            if self._due.get(queue) == due_ms:
                del self._due[queue]
                due[queue] = None
        try:
            for queue in due:
                queue.look_at_time(now_ms)
        except Exception as error:  # noqa: BLE001  # Whatever it was, the queues stop.
            self.fail(error)
            return
        if self._timers and self._timer is None:
            self._start_timer()
        self.flush_soon()
