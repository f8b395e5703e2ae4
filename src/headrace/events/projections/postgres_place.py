"""Read models as tables of PostgreSQL.

Each generation of a projection has a schema of its own, `<projection>__g<number>`, in which its function
works: statements name tables without a schema. Readers ask for views of the same names in another schema,
`public` if nothing is said, which show the tables of the live generation. A swap replaces the views in the
transaction that makes the generation live, so that a reader sees all of the one or all of the other.

The lock of a batch is the row of its generation. Who adds a generation or swaps two takes an advisory lock
first, so that they follow one another; a swap then locks the live row, and the building one last. Batches
lock one row each. So nobody waits in a circle.

Statements of a batch are sent without waiting for the answer to each (pipeline mode), unless the batch is of
a single event that is suspected to be poison.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Final, LiteralString, Self, cast
from uuid import UUID

import psycopg
from psycopg import sql

from headrace.errors import ConfigError, ProjectionReplaced
from headrace.events.projections import statements
from headrace.events.projections.connections import Connection, Connections, is_passing, unavailable
from headrace.events.projections.place import (
    DeadLetter,
    Effect,
    FailedEffect,
    Generation,
    GenerationState,
    WorkFailed,
    cause_of,
)
from headrace.events.projections.postgres_traces import find_texts
from headrace.events.projections.postgres_work import PostgresBatch
from headrace.events.projections.projection import Projection
from headrace.events.projections.replaced import check_generation
from headrace.events.projections.traces import Trace
from headrace.failpoints import hit

SWAP_LOCK_MS_MAX: Final = 5_000
"""How long a swap waits for readers that hold the views; others would have to queue behind it."""
EFFECT_PAUSE_S: Final = 1.0
"""Before an effect that has failed is tried again; doubled each time."""
EFFECT_PAUSE_S_MAX: Final = 3_600.0
_CREATION: Final = 4_811_570_335_209_477_121
"""The advisory lock of whoever makes tables or views."""


class PostgresPlace:
    """Keeps read models in a database. Safe to use from several threads and processes."""

    def __init__(self, dsn: str, *, control: str = "headrace_read", views: str = "public") -> None:
        self._connections = Connections(dsn)
        self._control = control
        self._views = views

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections that are not in use."""
        self._connections.close()

    def prepare(self, projection: Projection) -> None:
        """Make the tables of record, for a new projection its first generation, and what older ones lack."""
        with self._connections.transaction() as connection:
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_CREATION,))
            # To make what is there once more would wait for batches, which may wait for this.
            if not self._is_created(connection):
                connection.execute(self._statement(statements.CREATE))
            rows = connection.execute(self._statement(statements.GENERATIONS), (projection.name,)).fetchall()
            for row in rows:
                self._add_missing(connection, projection, _generation(projection.name, row).number)
            if not rows:
                made = self._add(connection, projection, GenerationState.LIVE)
                self._show(connection, projection, made.number, former=())

    def generations(self, name: str) -> tuple[Generation, ...]:
        """Those that are live or building, the live one first."""
        with self._connections.transaction() as connection:
            rows = connection.execute(self._statement(statements.GENERATIONS), (name,)).fetchall()
        return tuple(_generation(name, row) for row in rows)

    @contextmanager
    def begin(self, projection: Projection, number: int, *, alone: bool) -> Iterator[PostgresBatch]:
        """A transaction that holds the generation's row."""
        try:
            with self._connections.transaction() as connection:
                generation = self._locked(connection, projection, number)
                batch = PostgresBatch(
                    connection,
                    projection,
                    generation,
                    effects_after=self._effects_after(connection, projection, generation),
                    statement=self._statement,
                )
                connection.execute(
                    sql.SQL("SET LOCAL search_path TO {}, {}").format(
                        sql.Identifier(schema_of(projection.name, number)), sql.Identifier(self._views)
                    )
                )
                if alone:
                    yield batch
                else:
                    with connection.pipeline():
                        yield batch
        except WorkFailed as failed:
            if is_passing(failed.__cause__):
                raise unavailable(failed.__cause__) from failed
            raise
        except psycopg.Error as error:
            raise WorkFailed(error) from error

    def build(self, projection: Projection) -> Generation:
        """The generation that is building."""
        with self._connections.transaction() as connection:
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_CREATION,))
            rows = connection.execute(self._statement(statements.GENERATIONS), (projection.name,)).fetchall()
            for found in (_generation(projection.name, row) for row in rows):
                if found.state is GenerationState.BUILDING:
                    if found.version == projection.version:
                        return found
                    connection.execute(self._statement(statements.RETIRE), (projection.name, found.number))
            return self._add(connection, projection, GenerationState.BUILDING)

    def swap(self, projection: Projection, number: int, catch_up: Callable[[int], None]) -> None:
        """Let a building generation become the live one, in one transaction."""
        name = projection.name
        with self._connections.transaction() as connection:
            # Who waited for the row of the live one would find it retired, and not see the one after it.
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_CREATION,))
            row = connection.execute(self._statement(statements.LOCK_LIVE), (name,)).fetchone()
            assert row is not None, f"{name} has no live generation"
            former = _generation(name, row)
            if former.number == number:
                # Another process was faster.
                return
            catch_up(former.position)
            building = self._locked(connection, projection, number)
            assert building.position >= former.position, f"{building} is behind {former}"
            connection.execute(self._statement(statements.DROP_HELD), (name, number, former.position))
            connection.execute(self._statement(statements.RELEASE_HELD), (name, number))
            connection.execute(self._statement(statements.RETIRE), (name, former.number))
            connection.execute(self._statement(statements.MAKE_LIVE), (name, number))
            self._show(connection, projection, number, former=tuple(row[4]))
            hit("events.swap")
        hit("events.swapped")

    def clear_retired(self, name: str) -> None:
        """Drop the schemas of generations that are neither read nor built any more."""
        with self._connections.transaction() as connection:
            _limit_locks(connection)
            numbers = connection.execute(self._statement(statements.RETIRED), (name,)).fetchall()
            for (number,) in numbers:
                schema = sql.Identifier(schema_of(name, number))
                connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(schema))
                connection.execute(
                    self._statement(statements.FORGET_GENERATION), {"projection": name, "generation": number}
                )

    def dead_letters(self, name: str) -> list[DeadLetter]:
        """Those of the generations that are live or building."""
        with self._connections.transaction() as connection:
            rows = connection.execute(self._statement(statements.DEAD_LETTERS), (name,)).fetchall()
        return [
            DeadLetter(
                projection=name,
                generation=row[0],
                position=row[1],
                stream=row[2],
                event_id=row[3],
                type=row[4],
                cause=row[5],
                attempt_count=row[6],
            )
            for row in rows
        ]

    def dead_letter_count(self, name: str) -> int:
        """How many there are."""
        with self._connections.transaction() as connection:
            row = connection.execute(self._statement(statements.DEAD_LETTER_COUNT), (name,)).fetchone()
        assert row is not None
        return int(row[0])

    def fire(self, name: str, send: Callable[[Effect], None], *, attempt_count_max: int) -> bool:
        """Send the oldest effect that is due. Its row is held meanwhile: nobody else sends it."""
        with self._connections.transaction() as connection:
            row = connection.execute(self._statement(statements.TAKE_EFFECT), (name,)).fetchone()
            if row is None:
                return False
            effect = Effect(id=row[0], projection=name, kind=row[2], position=row[3], payload=row[4])
            try:
                send(effect)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is kept with the effect
                attempt = row[5] + 1
                connection.execute(
                    self._statement(statements.NOTE_FAILURE),
                    (
                        cause_of(error),
                        "failed" if attempt >= attempt_count_max else "due",
                        min(EFFECT_PAUSE_S * 2 ** (attempt - 1), EFFECT_PAUSE_S_MAX),
                        name,
                        effect.id,
                        row[1],
                    ),
                )
            else:
                hit("events.effect.sent")
                connection.execute(self._statement(statements.NOTE_FIRED), (name, effect.id, row[1]))
        return True

    def failed_effects(self, name: str) -> list[FailedEffect]:
        """Those that were tried too often."""
        with self._connections.transaction() as connection:
            rows = connection.execute(self._statement(statements.FAILED_EFFECTS), (name,)).fetchall()
        return [
            FailedEffect(
                effect=Effect(id=row[0], projection=name, kind=row[1], position=row[2], payload=row[3]),
                cause=row[4],
                attempt_count=row[5],
            )
            for row in rows
        ]

    def retry_effects(self, name: str) -> int:
        """Let those that were tried too often be due again."""
        with self._connections.transaction() as connection:
            return connection.execute(self._statement(statements.RETRY_EFFECTS), (name,)).rowcount

    def drop_failed_effects(self, name: str) -> int:
        """Give up those that were tried too often."""
        with self._connections.transaction() as connection:
            return connection.execute(self._statement(statements.DROP_FAILED), (name,)).rowcount

    def fired_at(self, name: str, effect_id: UUID) -> datetime | None:
        """When an effect was fired."""
        with self._connections.transaction() as connection:
            row = connection.execute(self._statement(statements.FIRED_AT), (name, effect_id)).fetchone()
        return None if row is None else cast("datetime", row[0])

    def traces(self, texts: Sequence[str]) -> list[Trace]:
        """Where texts stand in the tables of all generations that are not dropped, and beside them."""
        with self._connections.transaction() as connection:
            if not self._is_created(connection):
                return []
            rows = connection.execute(self._statement(statements.UNCLEARED)).fetchall()
            schemas = [schema_of(name, number) for name, number in rows]
            return list(find_texts(connection, schemas, self._control, texts))

    def behind(self, position: int) -> list[str]:
        """Projections and processes of which the live generation has not come to a position."""
        with self._connections.transaction() as connection:
            if not self._is_created(connection):
                return []
            rows = connection.execute(self._statement(statements.BEHIND), (position,)).fetchall()
        return [name for (name,) in rows]

    def _is_created(self, connection: Connection) -> bool:
        found = connection.execute(statements.IS_CREATED, (f'"{self._control}".effects',)).fetchone()
        return found is not None

    def _add(self, connection: Connection, projection: Projection, state: GenerationState) -> Generation:
        row = connection.execute(
            self._statement(statements.ADD_GENERATION),
            {"projection": projection.name, "version": projection.version, "state": state.value},
        ).fetchone()
        assert row is not None
        made = _generation(projection.name, row)
        schema = sql.Identifier(schema_of(projection.name, made.number))
        connection.execute(sql.SQL("CREATE SCHEMA {}").format(schema))
        self._create(connection, projection, made.number, projection.create)
        self._add_missing(connection, projection, made.number)
        return made

    def _add_missing(self, connection: Connection, projection: Projection, number: int) -> None:
        """Make what code from before did not make. Views stay as they are."""
        for name, create in projection.added.items():
            wanted = f'"{schema_of(projection.name, number)}"."{name}"'
            if connection.execute(statements.IS_CREATED, (wanted,)).fetchone() is None:
                self._create(connection, projection, number, create)

    def _create(self, connection: Connection, projection: Projection, number: int, create: str) -> None:
        if not create:
            return
        schema = sql.Identifier(schema_of(projection.name, number))
        connection.execute(sql.SQL("SET LOCAL search_path TO {}").format(schema))
        try:
            connection.execute(create)
        except psycopg.ProgrammingError as error:
            raise ConfigError(f"the tables of projection {projection.name} can't be made: {error}") from error

    def _locked(self, connection: Connection, projection: Projection, number: int) -> Generation:
        row = connection.execute(
            self._statement(statements.LOCK_GENERATION), (projection.name, number)
        ).fetchone()
        if row is None:
            raise ProjectionReplaced(f"projection {projection.name} has no generation {number}: start anew")
        generation = _generation(projection.name, row)
        check_generation(generation, projection)
        return generation

    def _effects_after(self, connection: Connection, projection: Projection, generation: Generation) -> int:
        """Up to which position effects are not wanted."""
        if generation.state is GenerationState.LIVE:
            return projection.effects_after
        row = connection.execute(self._statement(statements.LIVE_POSITION), (projection.name,)).fetchone()
        assert row is not None, f"{projection.name} has no live generation"
        return max(projection.effects_after, int(row[0]))

    def _show(
        self, connection: Connection, projection: Projection, number: int, *, former: tuple[str, ...]
    ) -> None:
        """Let the views show a generation's tables."""
        schema = schema_of(projection.name, number)
        shown = [name for (name,) in connection.execute(statements.TABLES, (schema,)).fetchall()]
        _limit_locks(connection)
        for name in former:
            if name not in shown:
                connection.execute(sql.SQL("DROP VIEW IF EXISTS {}").format(self._view(name)))
        self._check_free(connection, projection, [name for name in shown if name not in former])
        for name in shown:
            source = sql.SQL("AS SELECT * FROM {}").format(sql.Identifier(schema, name))
            try:
                with connection.transaction():
                    replace = sql.SQL("CREATE OR REPLACE VIEW {} ").format(self._view(name))
                    connection.execute(replace + source)
            except psycopg.errors.InvalidTableDefinition:
                # Columns are gone or of other types.
                connection.execute(sql.SQL("DROP VIEW {}").format(self._view(name)))
                connection.execute(sql.SQL("CREATE VIEW {} ").format(self._view(name)) + source)
        connection.execute(self._statement(statements.SET_VIEWS), (shown, projection.name, number))

    def _check_free(self, connection: Connection, projection: Projection, names: list[str]) -> None:
        """Nobody's tables and views are replaced, nor those of another projection."""
        taken = connection.execute(statements.TAKEN, (self._views, names)).fetchall()
        for (name,) in taken:
            raise ConfigError(
                f"projection {projection.name} can't show its table {name}: {self._views}.{name} is there "
                "and not its own; call the table by another name"
            )

    def _view(self, name: str) -> sql.Identifier:
        return sql.Identifier(self._views, name)

    def _statement(self, statement: LiteralString) -> sql.Composed:
        return sql.SQL(statement).format(control=sql.Identifier(self._control))


def schema_of(name: str, number: int) -> str:
    """The schema of a generation's tables."""
    return f"{name}__g{number}"


def _limit_locks(connection: Connection) -> None:
    connection.execute(sql.SQL("SET LOCAL lock_timeout = {}").format(sql.Literal(SWAP_LOCK_MS_MAX)))


def _generation(name: str, row: tuple[Any, ...]) -> Generation:
    return Generation(
        projection=name,
        number=row[0],
        version=row[1],
        position=row[2],
        state=GenerationState(row[3]),
    )
