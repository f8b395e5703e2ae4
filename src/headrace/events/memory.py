"""A journal in memory, for tests and for trying things out: the contract in its plainest form."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from threading import Condition as Monitor
from uuid import UUID

from headrace.clock import Clock, SystemClock
from headrace.events.conflicts import command_id_reused, condition_conflict, version_conflict
from headrace.events.decider import category_of, require_storable
from headrace.events.records import (
    ANY,
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


class MemoryJournal:
    """Keeps everything in lists. Safe to use from any thread."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._monitor = Monitor()
        self._log: list[StoredEvent] = []
        self._streams: dict[str, list[StoredEvent]] = {}
        self._commands: dict[str, tuple[bytes, Appended]] = {}
        self._snapshots: dict[str, Snapshot] = {}
        self._keys: dict[str, SubjectKey] = {}
        self._forgotten: dict[str, Erased] = {}

    def append(self, append: Append) -> Appended:
        """Append. Raises VersionConflict, ConditionConflict or CommandIdReused, and has done nothing then."""
        _require_storable(append)
        with self._monitor:
            known = self._known(append.command)
            if known is not None:
                return known
            self._check(append)
            appended = self._append(append.writes)
            if append.command is not None:
                self._commands[append.command.id] = (append.command.fingerprint, appended)
            self._monitor.notify_all()
            return appended

    def _known(self, command: CommandMark | None) -> Appended | None:
        if command is None or command.id not in self._commands:
            return None
        fingerprint, first = self._commands[command.id]
        if fingerprint != command.fingerprint:
            raise command_id_reused(command.id)
        return _repeated(first)

    def _check(self, append: Append) -> None:
        versions: dict[str, int] = {}
        for write in append.writes:
            actual = versions.get(write.stream, len(self._streams.get(write.stream, ())))
            if write.expected not in {ANY, actual}:
                raise version_conflict(write.stream, write.expected, actual)
            versions[write.stream] = actual + len(write.events)
        for condition in append.conditions:
            for event in self._log[condition.after :]:
                if _is_named(event, condition.types, condition.tags):
                    raise condition_conflict(append.conditions, event.position)

    def _append(self, writes: Sequence[StreamWrite]) -> Appended:
        after, versions, now = len(self._log), {}, self._now()
        for write in writes:
            stream = self._streams.setdefault(write.stream, []) if write.events else []
            for event in write.events:
                stored = StoredEvent(
                    position=len(self._log) + 1,
                    stream=write.stream,
                    version=len(stream) + 1,
                    id=UUID(event.id),
                    type=event.type,
                    schema_version=event.schema_version,
                    data=event.data,
                    metadata=event.metadata,
                    tags=event.tags,
                    subjects=event.subjects,
                    recorded_at=now,
                )
                stream.append(stored)
                self._log.append(stored)
            versions[write.stream] = len(self._streams.get(write.stream, ()))
        return Appended(after=after, position=len(self._log), versions=versions)

    def _now(self) -> datetime:
        now = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC)
        return max(now, self._log[-1].recorded_at) if self._log else now

    def command(self, command: CommandMark) -> Appended | None:
        """What a command has appended, if it is known. Raises CommandIdReused."""
        with self._monitor:
            return self._known(command)

    def head(self) -> int:
        """The last position; 0 before the first event."""
        return len(self._log)

    def wait_beyond(self, position: int, timeout_s: float) -> bool:
        """Wait until there is an event after a position, or time is up. Whether there is one."""
        with self._monitor:
            return self._monitor.wait_for(lambda: len(self._log) > position, timeout_s)

    def position_at(self, time: datetime) -> int:
        """The last position that was recorded at a time or before; 0 if none was."""
        with self._monitor:
            return bisect_right(self._log, time, key=lambda event: event.recorded_at)

    def stream_version(self, stream: str) -> int:
        """The version of a stream; 0 if it has no event."""
        with self._monitor:
            return len(self._streams.get(stream, ()))

    def read_stream(
        self, stream: str, *, after_version: int = 0, limit: int = READ_EVENTS_MAX
    ) -> list[StoredEvent]:
        """The next events of a stream after a version."""
        with self._monitor:
            return self._streams.get(stream, [])[after_version : after_version + limit]

    def read_folded(
        self,
        stream: str,
        *,
        after_version: int = 0,
        until_position: int | None = None,
        limit: int = READ_EVENTS_MAX,
    ) -> list[FoldedEvent]:
        """The same, and of each event only what a fold needs."""
        return [
            FoldedEvent(event.version, event.type, event.schema_version, event.data)
            for event in self.read_stream(stream, after_version=after_version, limit=limit)
            if until_position is None or event.position <= until_position
        ]

    def read_all(
        self,
        *,
        after: int = 0,
        types: Sequence[str] = (),
        tags: Sequence[str] = (),
        limit: int = READ_EVENTS_MAX,
    ) -> list[StoredEvent]:
        """The next events after a position that have one of the types, if any, and all of the tags."""
        with self._monitor:
            if not types and not tags:
                return self._log[after : after + limit]
            wanted_types, wanted_tags = frozenset(types), frozenset(tags)
            named = (event for event in self._log[after:] if _is_named(event, wanted_types, wanted_tags))
            return [event for _, event in zip(range(limit), named, strict=False)]

    def streams(
        self, *, category: str | None = None, after: str = "", limit: int = 100
    ) -> list[StreamSummary]:
        """The next streams by name, after a name."""
        with self._monitor:
            names = sorted(
                name
                for name in self._streams
                if name > after and (category is None or category_of(name) == category)
            )
            return [
                StreamSummary(
                    stream=name, version=len(self._streams[name]), position=self._streams[name][-1].position
                )
                for name in names[:limit]
            ]

    def types(self) -> list[TypeCount]:
        """Counts events by type and version. Reads all events."""
        with self._monitor:
            counts = Counter((event.type, event.schema_version) for event in self._log)
            last = {(event.type, event.schema_version): event.position for event in self._log}
        return [
            TypeCount(type=each[0], schema_version=each[1], count=counts[each], last_position=last[each])
            for each in sorted(counts)
        ]

    def stored_types(self) -> set[tuple[str, int]]:
        """Which types and versions are stored."""
        with self._monitor:
            return {(event.type, event.schema_version) for event in self._log}

    def snapshot(self, stream: str) -> tuple[Snapshot | None, int]:
        """The snapshot of a stream, if there is one, and how many persons were forgotten so far."""
        with self._monitor:
            return self._snapshots.get(stream), len(self._forgotten)

    def save_snapshot(self, snapshot: Snapshot, *, forgotten_count: int) -> bool:
        """Keep a snapshot, unless persons were forgotten since."""
        with self._monitor:
            events = self._streams.get(snapshot.stream, ())
            if len(self._forgotten) != forgotten_count or snapshot.version > len(events):
                return False
            last = events[snapshot.version - 1]
            self._snapshots[snapshot.stream] = replace(snapshot, position=last.position)
            return True

    def drop_snapshots(self, streams: Sequence[str] | None = None) -> int:
        """Drop the snapshots of some streams, or all. How many there were."""
        with self._monitor:
            names = list(self._snapshots) if streams is None else streams
            return sum(self._snapshots.pop(name, None) is not None for name in names)

    def keys(self, subjects: Iterable[str]) -> Mapping[str, SubjectKey]:
        """The keys of persons, as far as they have one or had one."""
        with self._monitor:
            return {each: self._keys[each] for each in subjects if each in self._keys}

    def make_keys(self, keys: Mapping[str, bytes]) -> Mapping[str, SubjectKey]:
        """Keep keys for persons that have none. The keys that count."""
        with self._monitor:
            return {each: self._keys.setdefault(each, SubjectKey(key=key)) for each, key in keys.items()}

    def forget(self, subject: str, marker: StreamWrite) -> Erased:
        """Destroy a person's key, drop the snapshots that may hold its data, and append the marker."""
        _require_storable(Append(writes=(marker,)))
        with self._monitor:
            if subject in self._forgotten:
                return _again(self._forgotten[subject])
            concerned = [event for event in self._log if subject in event.subjects]
            streams = tuple(sorted({event.stream for event in concerned}))
            dropped = self.drop_snapshots(streams)
            appended = self._append((marker,))
            now = self._log[-1].recorded_at
            self._keys[subject] = SubjectKey(key=None, forgotten_at=now)
            self._forgotten[subject] = Erased(
                position=appended.position,
                forgotten_at=now,
                event_count=len(concerned),
                streams=streams,
                snapshots_dropped=dropped,
            )
            self._monitor.notify_all()
            return self._forgotten[subject]

    def close(self) -> None:
        """Nothing is held."""


def _require_storable(append: Append) -> None:
    """Refuse the names that the journal in PostgreSQL has to refuse."""
    if append.command is not None:
        require_storable(append.command.id)
    for write in append.writes:
        category_of(write.stream)
        for event in write.events:
            for name in (event.type, *event.tags, *event.subjects):
                require_storable(name)


def _is_named(event: StoredEvent, types: frozenset[str], tags: frozenset[str]) -> bool:
    return (not types or event.type in types) and tags.issubset(event.tags)


def _repeated(first: Appended) -> Appended:
    return Appended(after=first.after, position=first.position, versions=first.versions, is_repeat=True)


def _again(first: Erased) -> Erased:
    return Erased(
        position=first.position,
        forgotten_at=first.forgotten_at,
        event_count=first.event_count,
        streams=first.streams,
        snapshots_dropped=first.snapshots_dropped,
        is_repeat=True,
    )
