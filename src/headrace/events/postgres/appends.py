"""Appending: one event by one query, all else by a call of a function in functions.sql.

The query takes less time than the function. It has no way to wait for those that append before it, nor to say
why it has done nothing. Where it does nothing, the function is called. If that appends, another program does,
too, and the next few appends are left to the function at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from threading import Lock
from typing import Any, Final

from psycopg.errors import InsufficientPrivilege, UndefinedFunction

from headrace import failpoints
from headrace.clock import Clock
from headrace.errors import HeadraceError, StoreUnavailable
from headrace.events.postgres import queries
from headrace.events.postgres.calls import arguments, arguments_of_event, arguments_of_one, outcome
from headrace.events.postgres.connections import Connection
from headrace.events.postgres.group_commit import GroupCommit
from headrace.events.postgres.migration import FUNCTIONS_VERSION
from headrace.events.postgres.prepared import Text
from headrace.events.postgres.tables import Tables
from headrace.events.records import Append, Appended

Answer = Appended | HeadraceError
ALIKE_ONCE_SINCE: Final = 2
"""Since which version of the functions what events of an append have alike may be told once."""
BY_FUNCTION_AFTER_MISS: Final = 16
"""How many appends are left to the function after the query was in vain because another program appends."""


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
        self._by_function_count = 0
        """How many of the next appends are left to the function. Only who leads the group looks at it."""
        self._has_query = True
        """Whether the query may be run in this database."""

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
        event = self._event_of(appends)
        # What can't be stored is refused here, before its type is noted.
        call = self._call_for(appends) if event is None else None
        with self._tables.connections.lent("appending events") as connection:
            self._register_types(connection, appends)
            failpoints.hit("events.append")
            answer = None if event is None else self._by_query(connection, appends[0], event)
            if answer is not None:
                answers = [answer]
            else:
                answers = self._by_function(connection, appends, call or self._call_for(appends))
            failpoints.hit("events.appended")
        if event is not None and answer is None and isinstance(answers[0], Appended):
            self._by_function_count = BY_FUNCTION_AFTER_MISS
        return answers

    def _event_of(self, appends: Sequence[Append]) -> list[Text] | None:
        """The arguments of the query for one event, if that is all, and the query is worth a try."""
        # What functions of a later version do beside appending, nobody here knows.
        is_known = self._has_query and self.functions_version <= FUNCTIONS_VERSION
        event = arguments_of_event(appends[0]) if len(appends) == 1 and is_known else None
        if event is not None and self._by_function_count:
            self._by_function_count -= 1
            return None
        return event

    def _by_query(self, connection: Connection, append: Append, values: list[Text]) -> Answer | None:
        """Append one event by the query; nothing where it has done nothing."""
        try:
            rows = self._tables.call(connection, queries.APPEND_EVENT, [*values, self._now()], is_quick=True)
        except (UndefinedFunction, InsufficientPrivilege):
            # There are later functions by now, or only they may write.
            self._has_query = False
            return None
        if not rows:
            return None
        position, version, _ = rows[0]
        return Appended(after=position - 1, position=position, versions={append.writes[0].stream: version})

    def _by_function(
        self, connection: Connection, appends: Sequence[Append], call: tuple[str, list[Text]]
    ) -> list[Answer]:
        rows = self.call(connection, *call)
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
        if new := sorted(met - self._registered):
            columns = [[name for name, _ in new], [version for _, version in new]]
            self._tables.run(connection, queries.REGISTER_TYPES, columns)
            with self._lock:
                self._registered = self._registered.union(new)
