"""The database to use: the user's own where its DSN is given, else an embedded one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from headrace.config import PostgresConfig
from headrace.postgres.server import EmbeddedPostgres


@contextmanager
def open_database(dsn: str | None, config: PostgresConfig) -> Iterator[str]:
    """Yield the DSN of a database that can be used meanwhile; an embedded one stops afterwards."""
    if dsn is not None:
        yield dsn
        return
    with EmbeddedPostgres(config) as server:
        yield server.dsn
