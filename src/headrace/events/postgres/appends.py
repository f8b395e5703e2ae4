"""Appending: a group of appends is one call of the function in functions.sql."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from threading import Lock
from typing import Any, Final

from headrace import failpoints
from headrace.clock import Clock
from headrace.errors import HeadraceError, StoreUnavailable
from headrace.events.postgres import queries
from headrace.events.postgres.calls import arguments, arguments_of_one, outcome
from headrace.events.postgres.connections import Connection
from headrace.events.postgres.group_commit import GroupCommit
from headrace.events.postgres.prepared import Text
from headrace.events.postgres.tables import Tables
from headrace.events.records import Append, Appended

Answer = Appended | HeadraceError
ALIKE_ONCE_SINCE: Final = 2
"""Since which version of the functions what events of an append have alike may be told once."""


class Appends:
    """Appends events, those of several threads together. Safe to use from any thread."""

    def __init__(self, tables: Tables, clock: Clock | None) -> None:
        self._tables = tables
        self._clock = clock
        self._group: GroupCommit[Append, Appended] = GroupCommit(self._carry_out)
        self._lock = Lock()
        self._registered: set[tuple[str, int]] = set()
        self.functions_version = 1
        """Of the functions that are called: the oldest one, until it is known."""

    def submit(self, append: Append) -> Appended:
        """Append, with those that others append at the same time."""
        return self._group.submit(append, append.event_count)

    def _carry_out(self, appends: Sequence[Append]) -> Sequence[Answer]:
        try:
            return self._together(appends)
        except StoreUnavailable:
            raise
        except HeadraceError:
            if len(appends) == 1:
                raise
        # One of them can't be stored, and has taken the others with it.
        return [self._alone(append) for append in appends]

    def _alone(self, append: Append) -> Answer:
        try:
            return self._together([append])[0]
        except HeadraceError as error:
            return error

    def _together(self, appends: Sequence[Append]) -> list[Answer]:
        query, values = self._call_for(appends)
        with self._tables.connections.lent("appending events") as connection:
            self._register_types(connection, appends)
            failpoints.hit("events.append")
            rows = self.call(connection, query, values)
            failpoints.hit("events.appended")
        return [outcome(append, row) for append, row in zip(appends, rows, strict=True)]

    def _call_for(self, appends: Sequence[Append]) -> tuple[str, list[Text]]:
        if len(appends) == 1:
            values = arguments_of_one(appends[0], alike_once=self.functions_version >= ALIKE_ONCE_SINCE)
            if values is not None:
                return queries.APPEND_ONE, values
        return queries.APPEND, arguments(appends)

    def call(self, connection: Connection, query: str, values: Sequence[Text]) -> list[tuple[Any, ...]]:
        """Call a function that appends, in a transaction of its own or in one that is open."""
        return self._tables.call(connection, query, [*values, self._now()])

    def _now(self) -> Text:
        if self._clock is None:
            return None
        return datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC).isoformat().encode()

    def _register_types(self, connection: Connection, appends: Sequence[Append]) -> None:
        """Note types and versions before their first events, so that they can be listed without reading."""
        met = {
            (event.type, event.schema_version)
            for append in appends
            for write in append.writes
            for event in write.events
        }
        new = sorted(met - self._registered)
        if new:
            columns = [[name for name, _ in new], [version for _, version in new]]
            self._tables.run(connection, queries.REGISTER_TYPES, columns)
            with self._lock:
                self._registered = self._registered.union(new)
