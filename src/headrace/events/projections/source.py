"""Where projections read events: an event store, of which only this is asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from headrace.events.projections.projection import Projection
from headrace.events.recorded import Recorded
from headrace.events.subscription import Page, ReadPage


class Head(Protocol):
    """A journal, as far as it is asked."""

    def head(self) -> int:
        """The last position; 0 before the first event."""


class EventSource(Protocol):
    """An event store, as far as it is asked."""

    @property
    def journal(self) -> Head:
        """Where the events are."""

    def read_all(self, after_position: int, *, limit: int) -> Sequence[Recorded]:
        """The next events after a position, in their order."""


def page_reader(source: EventSource, projection: Projection) -> ReadPage:
    """Reads what a projection takes.

    Positions have no gaps, so how far a page reaches is known whatever is in it: events that the projection
    does not take, or that code of today reads as none at all, are passed by.
    """

    def read(after: int, count: int) -> Page:
        reached = min(source.journal.head(), after + count)
        if reached <= after:
            return Page(events=(), reached=after)
        events = source.read_all(after, limit=reached - after)
        if projection.types:
            events = [event for event in events if isinstance(event.data, projection.types)]
        return Page(events=events, reached=reached)

    return read
