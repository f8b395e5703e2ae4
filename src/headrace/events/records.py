"""What a journal keeps: events as bytes, without the user's types, and what is asked of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple
from uuid import UUID

from headrace.errors import EventsError

ANY: Final = -1
"""An expected version: whatever the stream has."""
NONE: Final = 0
"""An expected version: the stream has no event. The first event of a stream has version 1."""

READ_EVENTS_MAX: Final = 5_000
"""How many events one read of a journal gives at most."""
APPEND_EVENTS_MAX: Final = 50_000
"""How many events one append takes at most."""


class NewEvent(NamedTuple):
    """An event that is about to be appended. A tuple, because one is made for every event that is written."""

    id: str
    """The 32 hexadecimal digits of a UUID: a text, because making a UUID takes longer than all the rest."""
    type: str
    schema_version: int
    data: bytes
    """JSON, with personal fields sealed."""
    metadata: bytes = b"{}"
    """A JSON object: schema version, correlation id, causation id, actor."""
    tags: tuple[str, ...] = ()
    subjects: tuple[str, ...] = ()
    """Whose personal data the event carries."""


class StoredEvent(NamedTuple):
    """An event as it was appended. A tuple, because one is made for every event that is read."""

    position: int
    """Its place among all events: 1, 2, 3 and so on, in the order of their commits."""
    stream: str
    version: int
    """Its place in its stream: 1, 2, 3 and so on."""
    id: UUID
    type: str
    schema_version: int
    data: bytes
    metadata: bytes
    tags: tuple[str, ...]
    subjects: tuple[str, ...]
    recorded_at: datetime
    """Never earlier than that of an event before it."""


class FoldedEvent(NamedTuple):
    """Of an event only what a fold needs."""

    version: int
    type: str
    schema_version: int
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A consistency boundary across streams: no event that it names may have come after a position.

    It names events that have one of the types (any, where none is given) and all of the tags.
    """

    after: int
    """The position up to which the decision knows all events."""
    types: frozenset[str] = frozenset()
    tags: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if not self.types and not self.tags:
            raise EventsError("a condition without types and tags would rule out every event: name some")
        if self.after < 0:
            raise EventsError(f"a condition can't be after position {self.after}: 0 is before all events")


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamWrite:
    """Events for one stream, oldest first."""

    stream: str
    events: tuple[NewEvent, ...]
    expected: int = ANY


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandMark:
    """Under which id a command is remembered, and by what it is told from others."""

    id: str
    fingerprint: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """All of it happens, or nothing."""

    writes: tuple[StreamWrite, ...]
    conditions: tuple[Condition, ...] = ()
    command: CommandMark | None = None

    def __post_init__(self) -> None:
        names = [write.stream for write in self.writes]
        if len(set(names)) != len(names):
            raise EventsError("an append names a stream twice: put its events together")

    @property
    def event_count(self) -> int:
        """How many events it has."""
        return sum(len(write.events) for write in self.writes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """Where events were appended: they have all positions after `after` up to `position`."""

    after: int
    position: int
    versions: Mapping[str, int]
    """The version that each stream has come to."""
    is_repeat: bool = False
    """Whether a command was known already, so that nothing was appended, and this is its first result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSummary:
    """A stream at a glance."""

    stream: str
    version: int
    position: int
    """The position of its last event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeCount:
    """How many events of a type and version are stored, and where the last of them is."""

    type: str
    schema_version: int
    count: int
    last_position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A state that was folded earlier. It saves time and proves nothing (see snapshots.py)."""

    stream: str
    version: int
    fingerprint: str
    """Of the code that folded it."""
    state: bytes
    checksum: bytes
    position: int = 0
    """Of the last event in it; journals fill it in when they read it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectKey:
    """The key of a person's data, or when it was destroyed."""

    key: bytes | None
    forgotten_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Erased:
    """What forgetting a person did to a journal."""

    position: int
    """Of the event that says so."""
    forgotten_at: datetime
    event_count: int
    """How many events carry data of the person that can't be read any more."""
    streams: tuple[str, ...]
    snapshots_dropped: int
    is_repeat: bool = False
