"""The tables of one schema: connections to them, and queries that name them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from headrace.events.postgres.connections import Connection, Connections
from headrace.events.postgres.migration import filled
from headrace.events.postgres.prepared import Text, numbered
from headrace.events.postgres.prepared import run as run_prepared

Values = Sequence[Any] | Mapping[str, Any]


class Tables:
    """Asks one schema. Safe to use from any thread."""

    def __init__(self, dsn: str, schema: str, *, busy_wait: bool = False) -> None:
        self.schema = schema
        self.connections = Connections(dsn, busy_wait=busy_wait)
        self._filled: dict[str, bytes] = {}
        self._numbered: dict[str, bytes] = {}

    def ask(self, what: str, query: str, values: Values = ()) -> list[tuple[Any, ...]]:
        """Run one query in a transaction of its own. `what` is said where it fails."""
        with self.connections.lent(what) as connection:
            return self.run(connection, query, values)

    def run(self, connection: Connection, query: str, values: Values = ()) -> list[tuple[Any, ...]]:
        """Run one query on a connection."""
        text = self._filled.get(query)
        if text is None:
            text = self._filled[query] = filled(query, self.schema)
        cursor = connection.cursor(binary=True)
        cursor.execute(text, values or None)
        return cursor.fetchall() if cursor.description else []

    def call(
        self, connection: Connection, query: str, values: Sequence[Text], *, is_quick: bool = False
    ) -> list[tuple[Any, ...]]:
        """Run one query on a connection, with values that are texts already: for what is run very often."""
        text = self._numbered.get(query)
        if text is None:
            text = self._numbered[query] = numbered(filled(query, self.schema))
        return run_prepared(connection, text, values, is_quick=is_quick)

    @contextmanager
    def transaction(self, what: str) -> Iterator[Connection]:
        """Several queries, all or none."""
        with self.connections.lent(what) as connection, connection.transaction():
            yield connection
