"""The journal in PostgreSQL.

Order. An identity column can show position 10 before 9 is committed, and a reader that has gone on to 10
never sees 9. Here whoever appends first takes an advisory lock that is held until its commit can be seen, and
only then reads the last position and gives out the next ones. So positions have no gaps, and their order is
the order of the commits: what a reader sees is always everything up to some position, and change capture,
which publishes in the order of commits, publishes in the same order. The other well-known way, to hide events
until all older transactions have ended (`xid < pg_snapshot_xmin(...)`), was decided against: a transaction
with a lower number may give out a higher position, so that its order is neither that of positions nor that
of commits, and any long transaction in the database holds all readers up.

Speed. A lock that is held through the flush of the disk makes writers wait for each other. Therefore appends
of one process that wait go together, in one call of a function and one transaction (group_commit.py). An
event that comes alone is appended by one query, under the same lock, if that is free, and the answer is not
slept for (appends.py, busy_wait.py).

One winner. The functions check versions under that lock, and `UNIQUE (stream, version)` and the primary key
on the position say the same once more. The query for one event is different: it sees the log as it was a
moment before it got the lock. If somebody has appended in between, the position that it would give out is
taken, whatever the stream, and it does nothing. So it needs the key on the position, positions without gaps,
and read committed.

Uncertainty. If the connection is lost while an append is under way, whether it has happened is not known:
StoreUnavailable, not definite. With a command id it can be sent again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any, Final, Self

from headrace.clock import Clock
from headrace.events.conflicts import command_id_reused
from headrace.events.decider import SEPARATOR
from headrace.events.postgres import queries
from headrace.events.postgres.appends import Appends
from headrace.events.postgres.busy_wait import is_worth_it
from headrace.events.postgres.listening import Listeners
from headrace.events.postgres.migration import checked_schema, migrate
from headrace.events.postgres.subjects import Subjects
from headrace.events.postgres.tables import Tables
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

SCHEMA: Final = "headrace_events"
_AFTER_ALL_NAMES: Final = "\U0010ffff"


class PostgresJournal:
    """Keeps events in a schema of a PostgreSQL, and makes it if it is not there. Safe from any thread."""

    def __init__(
        self, dsn: str, *, schema: str = SCHEMA, clock: Clock | None = None, busy_wait: bool = True
    ) -> None:
        """Open a journal. Times are the database's own, unless a clock is given.

        With `busy_wait`, who appends one event asks for the answer for up to half a millisecond before it
        goes to sleep, where answers come as soon as that: it takes less time, and more of a processor.
        """
        self.dsn = dsn
        self.schema = checked_schema(schema)
        self._tables = Tables(dsn, schema, busy_wait=busy_wait and is_worth_it())
        self._listeners = Listeners(dsn, schema)
        self._appends = Appends(self._tables, clock)
        self._subjects = Subjects(self._tables, self._appends)
        try:
            with self._tables.connections.lent("opening an event store") as connection:
                self._appends.functions_version = migrate(connection, schema)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close its connections. A closed journal is not used again."""
        self._tables.connections.close()
        self._listeners.close()

    def append(self, append: Append) -> Appended:
        """Append. Raises VersionConflict, ConditionConflict or CommandIdReused, and has done nothing then."""
        return self._appends.submit(append)

    def command(self, command: CommandMark) -> Appended | None:
        """What a command has appended, if it is known. Raises CommandIdReused."""
        rows = self._tables.ask("looking for a command", queries.COMMAND, (command.id,))
        if not rows:
            return None
        fingerprint, after, position, streams, versions = rows[0]
        if fingerprint != command.fingerprint:
            raise command_id_reused(command.id)
        versions_by_stream = dict(zip(streams, versions, strict=True))
        return Appended(after=after, position=position, versions=versions_by_stream, is_repeat=True)

    def head(self) -> int:
        """The last position; 0 before the first event."""
        return self._number("reading the last position", queries.HEAD)

    def wait_beyond(self, position: int, timeout_s: float) -> bool:
        """Wait until there is an event after a position, or time is up. Whether there is one."""
        return self._listeners.wait(lambda: self.head() > position, timeout_s)

    def position_at(self, time: datetime) -> int:
        """The last position that was recorded at a time or before; 0 if none was."""
        return self._number("looking for a time", queries.POSITION_AT, time)

    def stream_version(self, stream: str) -> int:
        """The version of a stream; 0 if it has no event."""
        return self._number("reading a version", queries.STREAM_VERSION, stream)

    def _number(self, what: str, query: str, *values: object) -> int:
        ((number,),) = self._tables.ask(what, query, values)
        return int(number)

    def read_stream(
        self, stream: str, *, after_version: int = 0, limit: int = READ_EVENTS_MAX
    ) -> list[StoredEvent]:
        """The next events of a stream after a version."""
        return self._stored(queries.READ_STREAM, stream, after_version, limit)

    def read_folded(
        self,
        stream: str,
        *,
        after_version: int = 0,
        until_position: int | None = None,
        limit: int = READ_EVENTS_MAX,
    ) -> list[FoldedEvent]:
        """The same, and of each event only what a fold needs."""
        values: tuple[Any, ...] = (stream, after_version, limit)
        query = queries.READ_FOLDED
        if until_position is not None:
            query, values = queries.READ_FOLDED_UNTIL, (stream, after_version, until_position, limit)
        return [FoldedEvent._make(row) for row in self._tables.ask("reading a stream", query, values)]

    def read_all(
        self,
        *,
        after: int = 0,
        types: Sequence[str] = (),
        tags: Sequence[str] = (),
        limit: int = READ_EVENTS_MAX,
    ) -> list[StoredEvent]:
        """The next events after a position that have one of the types, if any, and all of the tags."""
        if types and tags:
            return self._stored(queries.READ_BY_TYPE_AND_TAG, after, list(types), list(tags), limit)
        if types:
            return self._stored(queries.READ_BY_TYPE, after, list(types), limit)
        if tags:
            return self._stored(queries.READ_BY_TAG, after, list(tags), limit)
        return self._stored(queries.READ_ALL, after, limit)

    def _stored(self, query: str, *values: object) -> list[StoredEvent]:
        rows = self._tables.ask("reading events", query, values)
        return [StoredEvent._make((*row[:8], tuple(row[8]), tuple(row[9]), row[10])) for row in rows]

    def streams(
        self, *, category: str | None = None, after: str = "", limit: int = 100
    ) -> list[StreamSummary]:
        """The next streams by name, after a name."""
        before = _AFTER_ALL_NAMES
        if category is not None:
            first = f"{category}{SEPARATOR}"
            after, before = max(after, first), f"{category}{chr(ord(SEPARATOR) + 1)}"
        values = {"after": after, "before": before, "limit": limit}
        rows = self._tables.ask("listing streams", queries.STREAMS, values)
        return [StreamSummary(stream=row[0], version=row[1], position=row[2]) for row in rows]

    def types(self) -> list[TypeCount]:
        """Counts events by type and version. Reads all events."""
        return [
            TypeCount(type=row[0], schema_version=row[1], count=row[2], last_position=row[3])
            for row in self._tables.ask("counting events", queries.TYPES)
        ]

    def stored_types(self) -> set[tuple[str, int]]:
        """Which types and versions are stored, or were about to be."""
        return {(row[0], row[1]) for row in self._tables.ask("listing types", queries.STORED_TYPES)}

    def snapshot(self, stream: str) -> tuple[Snapshot | None, int]:
        """The snapshot of a stream, if there is one, and how many persons were forgotten so far."""
        ((count, version, fingerprint, state, checksum, position),) = self._tables.ask(
            "reading a snapshot", queries.SNAPSHOT, (stream,)
        )
        if version is None:
            return None, count
        snapshot = Snapshot(
            stream=stream,
            version=version,
            fingerprint=fingerprint,
            state=state,
            checksum=checksum,
            position=position,
        )
        return snapshot, count

    def save_snapshot(self, snapshot: Snapshot, *, forgotten_count: int) -> bool:
        """Keep a snapshot in the place of an older one, unless persons were forgotten since."""
        return self._subjects.save_snapshot(snapshot, forgotten_count)

    def drop_snapshots(self, streams: Sequence[str] | None = None) -> int:
        """Drop the snapshots of some streams, or all. How many there were."""
        if streams is None:
            return len(self._tables.ask("dropping snapshots", queries.DROP_ALL_SNAPSHOTS))
        return len(self._tables.ask("dropping snapshots", queries.DROP_SNAPSHOTS, (list(streams),)))

    def keys(self, subjects: Iterable[str]) -> Mapping[str, SubjectKey]:
        """The keys of persons, as far as they have one or had one."""
        return self._subjects.keys(subjects)

    def make_keys(self, keys: Mapping[str, bytes]) -> Mapping[str, SubjectKey]:
        """Keep keys for persons that have none. The keys that count, which may be those of another writer."""
        return self._subjects.make_keys(keys)

    def forget(self, subject: str, marker: StreamWrite) -> Erased:
        """Destroy a person's key, drop the snapshots that may hold its data, and append the marker."""
        return self._subjects.forget(subject, marker)
