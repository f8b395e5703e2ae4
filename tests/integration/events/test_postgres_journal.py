"""The journal in PostgreSQL keeps the promises of every journal, and some of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.events.postgres import PostgresJournal
from headrace.testing.journals import JournalContract
from headrace.testing.postgres import TestDatabase


@pytest.fixture
def journal(headrace_postgres: TestDatabase) -> Iterator[PostgresJournal]:
    with PostgresJournal(headrace_postgres.dsn) as journal:
        yield journal


class TestPostgresJournal(JournalContract):
    pass
