"""What a batch does in a transaction of PostgreSQL, and what a projection's function is given there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, LiteralString

import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from headrace.events.projections import statements
from headrace.events.projections.connections import Connection
from headrace.events.projections.place import DeadLetter, Generation, GenerationState, effect_id
from headrace.events.projections.projection import Projection


class PostgresBatch:
    """A transaction that holds the row of its generation."""

    def __init__(
        self,
        connection: Connection,
        projection: Projection,
        generation: Generation,
        *,
        effects_after: int,
        statement: Callable[[LiteralString], sql.Composed],
    ) -> None:
        self.position = generation.position
        self.connection = connection
        self._projection = projection
        self._generation = generation
        self._effects_after = effects_after
        self._statement = statement

    def work_for(self, event: Any) -> PostgresWork:
        """What a projection's function is given with this event."""
        return PostgresWork(self, event)

    def advance(self, position: int) -> None:
        """All events up to here have been seen."""
        self.connection.execute(
            self._statement(statements.ADVANCE),
            (position, self._projection.name, self._generation.number),
        )

    def bury(self, letter: DeadLetter) -> None:
        """Keep an event that could not be taken."""
        self.connection.execute(
            self._statement(statements.BURY),
            (
                letter.projection,
                letter.generation,
                letter.position,
                letter.stream,
                letter.event_id,
                letter.type,
                # PostgreSQL's texts can't have it.
                letter.cause.replace("\0", "\\0"),
                letter.attempt_count,
            ),
        )

    def ask_for(self, event: Any, kind: str, payload: Mapping[str, Any], key: str) -> None:
        """Keep an effect, unless it has been asked for already."""
        if event.position <= self._effects_after:
            return
        is_live = self._generation.state is GenerationState.LIVE
        self.connection.execute(
            self._statement(statements.ASK_FOR_EFFECT),
            (
                self._projection.name,
                effect_id(self._projection.name, event, kind, key),
                self._generation.number,
                event.position,
                kind,
                Jsonb(dict(payload)),
                "due" if is_live else "held",
            ),
        )


class PostgresWork:
    """What a projection's function is given: `work.execute("UPDATE balances SET ...", (5, "account-1"))`."""

    def __init__(self, batch: PostgresBatch, event: Any) -> None:
        self._batch = batch
        self._event = event

    @property
    def connection(self) -> Connection:
        """The connection, in the transaction that also keeps the position. Neither commit nor roll back."""
        return self._batch.connection

    def execute(
        self, statement: str, values: Sequence[Any] | Mapping[str, Any] | None = None
    ) -> psycopg.Cursor[tuple[Any, ...]]:
        """Run a statement. Tables without a schema are the projection's own."""
        return self._batch.connection.execute(statement, values)

    def fire(self, kind: str, payload: Mapping[str, Any], *, key: str = "") -> None:
        """Ask for an effect; `key` tells several of one kind and event apart."""
        self._batch.ask_for(self._event, kind, payload, key)
