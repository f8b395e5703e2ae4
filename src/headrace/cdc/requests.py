"""What is asked of a running capture: files in its directory, taken in and deleted.

    requests/<id>.json  {"tables": [{"schema": "public", "table": "orders", "where": "n < 9", "estimate": 0}]}

Whoever may write there may run the capture itself. A request counts once its snapshot is in the state, with
its id, so that a crash in between neither loses it nor begins it twice.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
from psycopg import sql

from headrace.cdc.chunks import boundary_query
from headrace.cdc.connection import Connection, explained, words_of
from headrace.cdc.state import TableSnapshot
from headrace.errors import CaptureFailed, ConfigError

if TYPE_CHECKING:
    from headrace.cdc.database_catalog import PublishedTable
    from headrace.cdc.streaming import Streaming


class Requests:
    """The requests of one capture."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory / "requests"

    def add(self, tables: Iterable[TableSnapshot]) -> str:
        """Ask for snapshots of tables while changes are streamed; return the request's id."""
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        number = secrets.token_hex(8)
        asked = [
            {"schema": each.schema, "table": each.table, "where": each.where, "estimate": each.estimate}
            for each in tables
        ]
        unfinished = self._directory / f"{number}.unfinished"
        unfinished.write_text(json.dumps({"tables": asked}))
        unfinished.rename(self._directory / f"{number}.json")
        return number

    def take_into(self, streaming: Streaming) -> None:
        """Put what was asked for into the state, publish that, and forget the requests."""
        found = sorted(self._directory.glob("*.json")) if self._directory.exists() else []
        if not found:
            return
        state = streaming.state
        for path in found:
            state = state.with_request(path.stem, _tables(path))
        streaming.replace_state(state)
        streaming.commit()
        for path in found:
            path.unlink()


def check_condition(connection: Connection, dsn: str, table: PublishedTable, where: str) -> None:
    """Refuse a condition that the database can't plan a query with; nothing is read."""
    question = sql.SQL("EXPLAIN {}").format(boundary_query(table, where, None, 1))
    with explained(dsn, f"looking at {table.name}"):
        try:
            with connection.transaction():
                connection.execute("SET TRANSACTION READ ONLY")
                connection.execute(question)
        except (psycopg.ProgrammingError, psycopg.DataError) as error:
            raise ConfigError(
                f"--where {where!r} is no condition on rows of {table.name}: {words_of(dsn, error)}"
            ) from error


def _tables(path: Path) -> tuple[TableSnapshot, ...]:
    try:
        told = json.loads(path.read_text())["tables"]
        return tuple(
            TableSnapshot(
                schema=each["schema"], table=each["table"], where=each["where"], estimate=each["estimate"]
            )
            for each in told
        )
    except (ValueError, KeyError, TypeError) as error:
        raise CaptureFailed(
            f"the request {path} can't be read ({error!r}): delete it, and ask again"
        ) from error
