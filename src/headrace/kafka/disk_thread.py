"""The thread that waits for the disk when topics change, so that the event loop does not.

Work is done in the order in which it was given. It has a thread of its own beside that of the syncs, because
removing a large topic takes long and acknowledgements should not wait for it. Log-ins have another one: they
take long on purpose.
"""

from __future__ import annotations

import logging
from queue import SimpleQueue
from threading import Event, Thread
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    Call = Callable[[], None]

logger: Final = logging.getLogger(__name__)


class DiskThread:
    """Does one piece of work after the other."""

    def __init__(self, call_on_loop: Callable[[Call], object], *, name: str = "headrace-disk") -> None:
        """`call_on_loop` is called on this thread, and makes its argument be called on the event loop's."""
        self._call_on_loop = call_on_loop
        self._work: SimpleQueue[tuple[Call, Call] | None] = SimpleQueue()
        self._stopping = Event()
        self._thread = Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def submit(self, work: Call, then: Call) -> None:
        """Do the work on this thread, then call back on the event loop's. Safe to call from any thread.

        The call comes however the work ends, so the work keeps its own errors for it.
        """
        self._work.put((work, then))

    @property
    def is_stopping(self) -> bool:
        """Whether nothing more is begun."""
        return self._stopping.is_set()

    def stop(self) -> None:
        """End when the work that is going on is done; what has not been begun is left undone."""
        if self._thread.is_alive():
            self._stopping.set()
            self._work.put(None)
            self._thread.join()

    def _run(self) -> None:
        while (given := self._work.get()) is not None:
            if self.is_stopping:
                continue
            work, then = given
            try:
                work()
            except Exception:
                # This thread must go on, whatever mistake of ours was in the work.
                logger.exception("work for the disk failed in an unexpected way")
            self._call_on_loop(then)
