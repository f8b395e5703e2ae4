"""Where projections read events: an event store, of which only this is asked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from headrace.errors import ConfigError, StoreUnavailable
from headrace.events.projections.projection import Projection
from headrace.events.recorded import Recorded
from headrace.events.records import StoredEvent
from headrace.events.subscription import Page, ReadPage, Unread


class Log(Protocol):
    """A journal, as far as it is asked."""

    def head(self) -> int:
        """The last position; 0 before the first event."""

    def read_all(self, *, after: int, types: Sequence[str], limit: int) -> Sequence[StoredEvent]:
        """The next events after a position that have one of the types, if any, in their order."""


class Names(Protocol):
    """What is known of the classes of events, as far as it is asked."""

    def stored_names(self, classes: tuple[type, ...]) -> list[str]:
        """Under which names events may be stored that are read as objects of these classes."""


class EventSource(Protocol):
    """An event store, as far as it is asked."""

    @property
    def journal(self) -> Log:
        """Where the events are."""

    @property
    def codec(self) -> Names:
        """What is known of their classes."""

    def decoded(self, page: Sequence[StoredEvent]) -> list[Recorded]:
        """Events as objects of their classes."""


def page_reader(source: EventSource, projection: Projection) -> ReadPage:
    """Reads what a projection takes.

    Positions have no gaps, so how far a page reaches is known whatever is in it: events that the projection
    does not take are passed by unread, since they may be of a type that another service has; and so are
    those that code of today reads as none at all.
    """
    names: list[str] = []
    if projection.types:
        names = source.codec.stored_names(projection.types)
        if not names:
            wanted = ", ".join(each.__name__ for each in projection.types)
            raise ConfigError(
                f"projection {projection.name} takes {wanted}, and the store knows no such events: name them "
                "at a decider or in types="
            )

    def read(after: int, count: int) -> Page:
        head = source.journal.head()
        if head <= after:
            return Page(events=(), reached=after)
        stored = source.journal.read_all(after=after, types=names, limit=count)
        last = stored[-1].position if stored else after
        events: list[Recorded | Unread] = _decoded(source, stored)
        if projection.types:
            events = [each for each in events if _is_taken(each, projection.types)]
        # Where there are fewer than were asked for, there is none of the types up to the head.
        return Page(events=events, reached=last if len(stored) == count else max(head, last))

    return read


def _is_taken(event: Recorded | Unread, types: tuple[type, ...]) -> bool:
    return isinstance(event, Unread) or isinstance(event.data, types)


def _decoded(source: EventSource, page: Sequence[StoredEvent]) -> list[Recorded | Unread]:
    """All together, and one by one only where one of them can't be read."""
    try:
        return [*source.decoded(page)]
    except StoreUnavailable:
        raise
    except Exception:  # noqa: BLE001 - an upcast is the user's code; what it was is told with the event
        return [event for stored in page for event in _decoded_alone(source, stored)]


def _decoded_alone(source: EventSource, stored: StoredEvent) -> Iterator[Recorded | Unread]:
    try:
        yield from source.decoded([stored])
    except StoreUnavailable:
        raise
    except Exception as error:  # noqa: BLE001 - see above
        yield Unread(
            position=stored.position, stream=stored.stream, id=stored.id, type=stored.type, error=error
        )
