"""An event store that is there already, opened for a command or for the page."""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType
from typing import Final, Self

import psycopg

from headrace.cli.event_file import EventFile
from headrace.config import default_postgres_dsn
from headrace.console.event_desk import StoreDesk
from headrace.errors import ConfigError, StoreUnavailable
from headrace.events import Decider, EventStore
from headrace.events.postgres import PostgresJournal
from headrace.events.projections import PostgresPlace, ReadModels

CONNECT_S_MAX: Final = 10


def require_dsn(dsn: str | None) -> str:
    """The database that was named, or a sentence that says how to name one."""
    if not dsn:
        raise ConfigError(
            "which database? Name it with --dsn postgresql://user@host:5432/database, or in HEADRACE_POSTGRES"
        )
    return dsn


class OpenStore:
    """The journal of a store, until the block ends. Makes nothing: a command that looks must not."""

    def __init__(self, dsn: str, schema: str) -> None:
        self.dsn = dsn
        self._stack = ExitStack()
        _require_store(dsn, schema)
        self.journal = PostgresJournal(dsn, schema=schema)
        self._stack.callback(self.journal.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def bare(self) -> EventStore:
        """The store without code of anybody's."""
        return EventStore(self.journal)

    def with_file(self, file: EventFile, chosen: Decider | None = None) -> EventStore:
        """The store with the code of a file; a decider that was chosen decides for its category."""
        deciders = file.by_category()
        if chosen is not None:
            deciders[chosen.category] = chosen
        return EventStore(self.journal, deciders.values())


def open_desk(file: EventFile) -> StoreDesk:
    """What the page shows of a file's store."""
    dsn = require_dsn(default_postgres_dsn())
    stack = ExitStack()
    journal = PostgresJournal(dsn)
    stack.callback(journal.close)
    store = EventStore(journal, file.by_category().values())
    store.check_readable()
    place = PostgresPlace(dsn)
    stack.callback(place.close)
    return StoreDesk(
        store,
        file.deciders,
        rebuilder=ReadModels(store, place, list(file.projections.values())),
        projections=file.projections,
        on_close=stack.close,
    )


def _require_store(dsn: str, schema: str) -> None:
    try:
        with psycopg.connect(dsn, autocommit=True, connect_timeout=CONNECT_S_MAX) as connection:
            question = "SELECT to_regclass(format('%%I.%%I', %s::text, 'events')) IS NOT NULL"
            is_there = connection.execute(question, (schema,)).fetchone() == (True,)
    except psycopg.ProgrammingError as error:
        raise ConfigError(f"--dsn can't be understood: {str(error).strip()}") from error
    except psycopg.OperationalError as error:
        told = str(error).strip().partition("\n")[0]
        raise StoreUnavailable(f"the database does not answer: {told}") from error
    if not is_there:
        raise ConfigError(
            f"the database has no event store in its schema {schema}: name another with --schema, or another "
            "database with --dsn; an application makes its store when it first opens it"
        )
