"""A store over a journal in PostgreSQL, and programs that write to it in processes of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.events import EventStore, PostgresJournal
from headrace.testing.accounts import Account
from headrace.testing.postgres import TestDatabase


@pytest.fixture
def store(headrace_postgres: TestDatabase) -> Iterator[EventStore]:
    with PostgresJournal(headrace_postgres.dsn) as journal:
        yield EventStore(journal, [Account])
