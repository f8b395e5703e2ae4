"""Reading events: of a stream, of all, by type and by tag, a bounded number at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from headrace.errors import AppendConflict, ConditionConflict, VersionConflict
from headrace.events.codec import EventCodec
from headrace.events.journal import Journal
from headrace.events.recorded import Recorded, recorded
from headrace.events.records import NONE, READ_EVENTS_MAX, Condition, StoredEvent
from headrace.events.sealing import Keyring

NEWER_EVENTS_MAX: Final = 1_000
"""How many events a conflict carries at most."""


class Reader:
    """Reads events as objects of their classes. Safe to use from any thread."""

    def __init__(self, journal: Journal, codec: EventCodec) -> None:
        self._journal = journal
        self._codec = codec

    def stream(self, stream: str, *, after_version: int = 0, limit: int | None = None) -> Iterator[Recorded]:
        """The events of a stream, oldest first; `limit` counts stored events."""
        left = limit
        while left is None or left > 0:
            wanted = READ_EVENTS_MAX if left is None else min(left, READ_EVENTS_MAX)
            page = self._journal.read_stream(stream, after_version=after_version, limit=wanted)
            yield from self.decoded(page)
            if len(page) < wanted:
                return
            after_version = page[-1].version
            left = None if left is None else left - len(page)

    def all(
        self, *, after: int, types: Sequence[str] = (), tags: Sequence[str] = (), limit: int
    ) -> list[Recorded]:
        """The next events after a position, oldest first."""
        wanted = min(limit, READ_EVENTS_MAX)
        return self.decoded(self._journal.read_all(after=after, types=types, tags=tags, limit=wanted))

    def decoded(self, page: Sequence[StoredEvent]) -> list[Recorded]:
        """Events as objects of their classes."""
        keyring = Keyring(self._journal)
        keyring.fetch({subject for stored in page for subject in stored.subjects})
        decode = self._codec.decode
        return [
            event
            for stored in page
            for event in recorded(stored, decode(stored.type, stored.schema_version, stored.data, keyring))
        ]

    def told(self, conflict: AppendConflict, conditions: Sequence[Condition] = ()) -> AppendConflict:
        """A conflict with the events that have led to it."""
        if isinstance(conflict, VersionConflict):
            after = max(conflict.expected, NONE)
            conflict.newer = tuple(self.stream(conflict.stream, after_version=after, limit=NEWER_EVENTS_MAX))
        elif isinstance(conflict, ConditionConflict):
            conflict.newer = self._named(conditions)
        return conflict

    def _named(self, conditions: Sequence[Condition]) -> tuple[Recorded, ...]:
        found = {
            (event.position, event.part): event
            for each in conditions
            for event in self.all(
                after=each.after, types=sorted(each.types), tags=sorted(each.tags), limit=NEWER_EVENTS_MAX
            )
        }
        return tuple(found[place] for place in sorted(found))
