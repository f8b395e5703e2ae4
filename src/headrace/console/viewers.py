"""The open pages, each with a bounded backlog of its own.

A page joins with a snapshot of what it has missed and then gets every event that is published. Joining and
publishing never wait, so no event falls between the two. A page that falls further behind than
`viewer_backlog_max` is cut off, so that a page that stands still can't hold memory; the browser reconnects by
itself and gets what is retained.

Everything here belongs to the event loop's thread and is not safe to use from another.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One server-sent event; `data` is JSON text, made once for all pages."""

    name: str
    data: str
    id: str | None = None


class Viewer:
    """One open page."""

    def __init__(self, snapshot: Iterable[Event], *, backlog_max: int) -> None:
        self._snapshot = tuple(snapshot)
        self._backlog: deque[Event] = deque()
        self._backlog_max = backlog_max
        self._wake = asyncio.Event()
        self._ended = False
        self.on_cut_off: Callable[[], None] = lambda: None
        """Called when the page is cut off, to end a write that may never return."""

    async def events(self) -> AsyncIterator[Event]:
        """The snapshot, then all that is published until the page is cut off or the console closes."""
        for event in self._snapshot:
            yield event
        self._snapshot = ()
        while True:
            while self._backlog:
                yield self._backlog.popleft()
            if self._ended:
                return
            self._wake.clear()
            await self._wake.wait()

    def offer(self, event: Event) -> bool:
        """Queue an event; False when the backlog is full."""
        if len(self._backlog) >= self._backlog_max:
            return False
        self._backlog.append(event)
        self._wake.set()
        return True

    def end(self) -> None:
        """Let the page have what is queued, and nothing after it."""
        self._ended = True
        self._wake.set()

    def cut_off(self) -> None:
        """Drop what is queued and end a write in progress."""
        self._backlog.clear()
        self.end()
        self.on_cut_off()


class Viewers:
    """All open pages."""

    def __init__(self, *, viewer_count_max: int, viewer_backlog_max: int) -> None:
        self._viewer_count_max = viewer_count_max
        self._viewer_backlog_max = viewer_backlog_max
        self._open: set[Viewer] = set()
        self._closed = False
        self.cut_off_count = 0

    def __len__(self) -> int:
        return len(self._open)

    def join(self, snapshot: Iterable[Event]) -> Viewer | None:
        """Open a page; None when as many are open as are allowed."""
        if len(self._open) >= self._viewer_count_max:
            return None
        viewer = Viewer(snapshot, backlog_max=self._viewer_backlog_max)
        if self._closed:
            viewer.end()
        self._open.add(viewer)
        return viewer

    def leave(self, viewer: Viewer) -> None:
        """Forget a page; one that was cut off has been forgotten already."""
        self._open.discard(viewer)

    def publish(self, event: Event) -> None:
        """Queue an event for every open page, and cut off those that are too far behind."""
        for viewer in [viewer for viewer in self._open if not viewer.offer(event)]:
            self._open.discard(viewer)
            self.cut_off_count += 1
            viewer.cut_off()

    def close(self) -> None:
        """End every stream, those that open later included."""
        self._closed = True
        for viewer in self._open:
            viewer.end()
