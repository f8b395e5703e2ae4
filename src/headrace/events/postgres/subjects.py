"""Keys of personal data, and forgetting.

Saving a snapshot and making a key hold a lock that they share; forgetting a person holds it alone. So nothing
that still had the person's key or its data is saved after it was forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from headrace.events.postgres import queries
from headrace.events.postgres.appends import Appends
from headrace.events.postgres.calls import arguments
from headrace.events.postgres.connections import Connection
from headrace.events.postgres.tables import Tables
from headrace.events.records import Append, Erased, Snapshot, StreamWrite, SubjectKey


class Subjects:
    """Knows persons by their keys. Safe to use from any thread."""

    def __init__(self, tables: Tables, appends: Appends) -> None:
        self._tables = tables
        self._appends = appends

    def keys(self, subjects: Iterable[str]) -> Mapping[str, SubjectKey]:
        """The keys of persons, as far as they have one or had one."""
        names = list(subjects)
        rows = self._tables.ask("reading keys", queries.KEYS, (names, names))
        return {subject: SubjectKey(key=key, forgotten_at=at) for subject, key, at in rows}

    def make_keys(self, keys: Mapping[str, bytes]) -> Mapping[str, SubjectKey]:
        """Keep keys for persons that have none. The keys that count."""
        names = list(keys)
        with self._tables.transaction("making keys") as connection:
            self._tables.run(connection, queries.LOCK_SAVING)
            self._tables.run(connection, queries.MAKE_KEYS, (names, [keys[name] for name in names]))
            rows = self._tables.run(connection, queries.KEYS, (names, names))
        return {subject: SubjectKey(key=key, forgotten_at=at) for subject, key, at in rows}

    def save_snapshot(self, snapshot: Snapshot, forgotten_count: int) -> bool:
        """Keep a snapshot in the place of an older one, unless persons were forgotten since."""
        values = (
            snapshot.fingerprint,
            snapshot.state,
            snapshot.checksum,
            snapshot.stream,
            snapshot.version,
            forgotten_count,
        )
        with self._tables.transaction("saving a snapshot") as connection:
            self._tables.run(connection, queries.LOCK_SAVING)
            return bool(self._tables.run(connection, queries.SAVE_SNAPSHOT, values))

    def forget(self, subject: str, marker: StreamWrite) -> Erased:
        """Destroy a person's key, drop the snapshots that may hold its data, and append the marker."""
        with self._tables.transaction("forgetting a person") as connection:
            self._tables.run(connection, queries.LOCK_FORGETTING)
            known = self._tables.run(connection, queries.FORGOTTEN, (subject,))
            if known:
                return _erased(known[0], is_repeat=True)
            # The events that count are those that no later one can be added to: their writers wait.
            values = arguments([Append(writes=(marker,))])
            appended = self._appends.call(connection, queries.APPEND, values)
            self._erase(connection, subject, position=appended[0][2])
            return _erased(self._tables.run(connection, queries.FORGOTTEN, (subject,))[0], is_repeat=False)

    def _erase(self, connection: Connection, subject: str, position: int) -> None:
        run = self._tables.run
        ((event_count, streams),) = run(connection, queries.CONCERNED, (subject,))
        dropped = run(connection, queries.DROP_SNAPSHOTS, (streams,))
        run(connection, queries.DESTROY_KEY, (subject,))
        values = (subject, event_count, streams, len(dropped), position)
        run(connection, queries.REMEMBER_FORGOTTEN, values)


def _erased(row: Sequence[object], *, is_repeat: bool) -> Erased:
    position, forgotten_at, event_count, streams, dropped = row
    return Erased(
        position=position,  # type: ignore[arg-type]  # as the table says
        forgotten_at=forgotten_at,  # type: ignore[arg-type]
        event_count=event_count,  # type: ignore[arg-type]
        streams=tuple(streams),  # type: ignore[arg-type]
        snapshots_dropped=dropped,  # type: ignore[arg-type]
        is_repeat=is_repeat,
    )
