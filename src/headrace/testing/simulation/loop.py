"""Time that jumps from one event to the next, and coroutines that live in it.

An event loop in the sense of the broker's `Scheduler`: events of one moment happen in the order in which they
were asked for. Coroutines await futures of this module alone; an error that one of them does not handle ends
the story.
"""

from __future__ import annotations

import asyncio
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator

Result = TypeVar("Result")


class TimeUp(Exception):
    """What was waited for did not come in time."""


class Event:
    """A call that will be made, unless it is cancelled."""

    __slots__ = ("_callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Don't make the call."""
        self._callback = None

    def happen(self) -> None:
        """Make the call."""
        if self._callback is not None:
            self._callback()


class SimulatedLoop:
    """Makes calls in the order of their times. Time passes only between them."""

    def __init__(self) -> None:
        self._now_s = 0.0
        self._numbers = count()
        self._events: list[tuple[float, int, Event]] = []
        self.event_count = 0

    def time(self) -> float:
        """Seconds since the world began."""
        return self._now_s

    def call_later(self, delay: float, callback: Callable[[], None], /) -> Event:
        """Call back after so many seconds."""
        event = Event(callback)
        heappush(self._events, (self._now_s + max(delay, 0.0), next(self._numbers), event))
        return event

    def create_future(self) -> asyncio.Future[Any]:
        """A future of asyncio, for code of the broker that makes one; nobody may await it here."""
        return asyncio.Future(loop=cast("asyncio.AbstractEventLoop", self))

    def get_debug(self) -> bool:
        """What a future of asyncio asks of its loop."""
        return False

    def start(self, coroutine: Coroutine[Future[Any], None, Result]) -> Task[Result]:
        """Let a coroutine run, from now on."""
        task = Task(coroutine)
        self.call_later(0, task.step)
        return task

    def run(self, *, until: Callable[[], bool], for_s: float) -> bool:
        """Let events happen until the condition holds; False when it did not come true in time."""
        end_s = self._now_s + for_s
        while not until():
            if not self._events or self._events[0][0] > end_s:
                # Events that let others happen meanwhile may have come past the end.
                self._now_s = max(self._now_s, end_s)
                return until()
            self._now_s, _, event = heappop(self._events)
            self.event_count += 1
            event.happen()
        return True

    def sleep(self, seconds: float) -> Future[None]:
        """A future that comes after so many seconds."""
        future: Future[None] = Future()
        self.call_later(seconds, lambda: future.set_result(None))
        return future

    def in_time(self, future: Future[Result], seconds: float) -> Future[Result]:
        """The same future, which fails with TimeUp if it has not come after so many seconds."""
        if not future.is_done:
            timer = self.call_later(seconds, lambda: future.set_error(TimeUp()))
            future.then(timer.cancel)
        return future


class Future(Generic[Result]):
    """A result that will come, or an error. The first one counts."""

    __slots__ = ("_callbacks", "_error", "_result", "is_done")

    def __init__(self) -> None:
        self.is_done = False
        self._result: Any = None
        self._error: Exception | None = None
        self._callbacks: list[Callable[[], None]] = []

    def set_result(self, result: Result) -> None:
        """Give the result, unless there is one."""
        if not self.is_done:
            self._result = result
            self._end()

    def set_error(self, error: Exception) -> None:
        """Fail, unless there is a result."""
        if not self.is_done:
            self._error = error
            self._end()

    def then(self, callback: Callable[[], None]) -> None:
        """Call back once it is done."""
        if self.is_done:
            callback()
        else:
            self._callbacks.append(callback)

    def result(self) -> Result:
        """The result, or the error."""
        if self._error is not None:
            raise self._error
        return cast("Result", self._result)

    def __await__(self) -> Generator[Future[Any], None, Result]:
        if not self.is_done:
            yield self
        return self.result()

    def _end(self) -> None:
        self.is_done = True
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()


class Task(Future[Result]):
    """A coroutine that runs."""

    __slots__ = ("_coroutine",)

    def __init__(self, coroutine: Coroutine[Future[Any], None, Result]) -> None:
        super().__init__()
        self._coroutine = coroutine

    def step(self) -> None:
        """Run up to the next future that is not done. Errors are for the loop's caller: the story ends."""
        try:
            awaited = self._coroutine.send(None)
        except StopIteration as end:
            self.set_result(end.value)
        else:
            awaited.then(self.step)

    def close(self) -> None:
        """End the coroutine where it is."""
        self._coroutine.close()
