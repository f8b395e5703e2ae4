"""What an event store asks of the place where events are kept.

A journal holds bytes and knows none of the user's types. Two keep the same promises, and one contract
(headrace.testing) says which: `MemoryJournal` and `PostgresJournal`.

1. An append happens whole or not at all; who was told of it finds it again.
2. Positions are 1, 2, 3 and so on, in the order of commits. Who has read position 10 has been able to read
   1 to 9, and no later read gives another event below 10.
3. Versions of a stream are 1, 2, 3 and so on. Of two appends that expect one version, one wins.
4. A command id is appended once. Asked again, the first result is given; another command under it is refused.
5. Times never go back from one position to the next.

Journals may be used from any thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from headrace.events.records import (
    READ_EVENTS_MAX,
    Append,
    Appended,
    CommandMark,
    Erased,
    FoldedEvent,
    Snapshot,
    StoredEvent,
    StreamSummary,
    StreamWrite,
    SubjectKey,
    TypeCount,
)


class Journal(Protocol):
    """Keeps events, what commands made of them, snapshots, and the keys of personal data."""

    def append(self, append: Append) -> Appended:
        """Append. Raises VersionConflict, ConditionConflict or CommandIdReused, and has done nothing then."""
        ...

    def command(self, command: CommandMark) -> Appended | None:
        """What a command has appended, if it is known. Raises CommandIdReused."""
        ...

    def head(self) -> int:
        """The last position; 0 before the first event."""
        ...

    def wait_beyond(self, position: int, timeout_s: float) -> bool:
        """Wait until there is an event after a position, or time is up. Whether there is one."""
        ...

    def position_at(self, time: datetime) -> int:
        """The last position that was recorded at a time or before; 0 if none was."""
        ...

    def stream_version(self, stream: str) -> int:
        """The version of a stream; 0 if it has no event."""
        ...

    def read_stream(
        self, stream: str, *, after_version: int = 0, limit: int = READ_EVENTS_MAX
    ) -> list[StoredEvent]:
        """The next events of a stream after a version."""
        ...

    def read_folded(
        self,
        stream: str,
        *,
        after_version: int = 0,
        until_position: int | None = None,
        limit: int = READ_EVENTS_MAX,
    ) -> list[FoldedEvent]:
        """The same, and of each event only what a fold needs."""
        ...

    def read_all(
        self,
        *,
        after: int = 0,
        types: Sequence[str] = (),
        tags: Sequence[str] = (),
        limit: int = READ_EVENTS_MAX,
    ) -> list[StoredEvent]:
        """The next events after a position that have one of the types, if any, and all of the tags."""
        ...

    def streams(
        self, *, category: str | None = None, after: str = "", limit: int = 100
    ) -> list[StreamSummary]:
        """The next streams by name, after a name."""
        ...

    def types(self) -> list[TypeCount]:
        """Counts events by type and version. Reads all events."""
        ...

    def stored_types(self) -> set[tuple[str, int]]:
        """Which types and versions are stored. Cheap; asked for whenever a store is opened."""
        ...

    def snapshot(self, stream: str) -> tuple[Snapshot | None, int]:
        """The snapshot of a stream, if there is one, and how many persons were forgotten so far.

        One is given only if the event that it ended with when it was saved is in the stream.
        """
        ...

    def save_snapshot(self, snapshot: Snapshot, *, forgotten_count: int) -> bool:
        """Keep a snapshot in the place of an older one.

        Not if persons were forgotten since `forgotten_count` was read: their data may be in it.
        """
        ...

    def drop_snapshots(self, streams: Sequence[str] | None = None) -> int:
        """Drop the snapshots of some streams, or all. How many there were."""
        ...

    def keys(self, subjects: Iterable[str]) -> Mapping[str, SubjectKey]:
        """The keys of persons, as far as they have one or had one."""
        ...

    def make_keys(self, keys: Mapping[str, bytes]) -> Mapping[str, SubjectKey]:
        """Keep keys for persons that have none. The keys that count, which may be those of another writer."""
        ...

    def forget(self, subject: str, marker: StreamWrite) -> Erased:
        """Destroy a person's key, drop the snapshots that may hold its data, and append the marker."""
        ...

    def close(self) -> None:
        """Give back what is held. A closed journal is not used again."""
        ...
