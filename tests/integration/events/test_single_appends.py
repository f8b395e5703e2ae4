"""One event is appended to PostgreSQL by a query, and by the function where the query does nothing."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import psycopg
import pytest

from headrace.errors import VersionConflict
from headrace.events.postgres import PostgresJournal, queries
from headrace.events.postgres.connections import Connection
from headrace.events.postgres.migration import filled
from headrace.events.postgres.tables import Tables
from headrace.testing.journals import new, write
from headrace.testing.postgres import TestDatabase
from headrace.testing.waiting import eventually


@pytest.fixture
def function_calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which queries were run to append."""
    ran = list[str]()
    call = Tables.call

    def noted(self: Tables, connection: Connection, query: str, *arguments: Any, **options: Any) -> Any:
        ran.append("query" if query is queries.APPEND_EVENT else "function")
        return call(self, connection, query, *arguments, **options)

    monkeypatch.setattr(Tables, "call", noted)
    return ran


def test_one_event_is_appended_without_a_function(
    headrace_postgres: TestDatabase, function_calls: list[str]
) -> None:
    with PostgresJournal(headrace_postgres.dsn) as journal:
        first = write(journal, "a-1", new(), expected=0)
        second = write(journal, "a-1", new(tags=("x", 'y"\\,{}'), subjects=("ann",)))
        third = write(journal, "b-1", new())

        assert [each.position for each in (first, second, third)] == [1, 2, 3]
        assert (second.after, second.versions, second.is_repeat) == (1, {"a-1": 2}, False)
        stored = journal.read_stream("a-1", after_version=1)[0]
        assert (stored.tags, stored.subjects) == (("x", 'y"\\,{}'), ("ann",))
        assert msgspec.json.decode(stored.metadata)["position"] == 2
        assert [each.version for each in journal.read_all()] == [1, 2, 1]
    assert function_calls == ["query"] * 3


def test_where_the_query_does_nothing_the_function_says_why(
    headrace_postgres: TestDatabase, function_calls: list[str]
) -> None:
    with PostgresJournal(headrace_postgres.dsn) as journal:
        write(journal, "a-1", new(), new())
        for expected in (0, 1, 3):
            journal._appends._by_function_count = 0
            with pytest.raises(VersionConflict, match="version 2"):
                write(journal, "a-1", new(), expected=expected)

        assert journal.head() == 2
    assert function_calls == ["function", *["query", "function"] * 3]


def test_who_appends_while_another_does_waits_and_comes_after_it(
    headrace_postgres: TestDatabase, function_calls: list[str]
) -> None:
    with PostgresJournal(headrace_postgres.dsn) as journal, ThreadPoolExecutor(1) as threads:
        write(journal, "a-1", new())
        with psycopg.connect(headrace_postgres.dsn) as other:
            other.execute(filled("SELECT pg_advisory_xact_lock(@lock@)", "headrace_events"))
            waiting = threads.submit(write, journal, "a-1", new())
            eventually(lambda: function_calls == ["query"] * 2 + ["function"])
            other.commit()

        assert waiting.result().position == 2
        # Another program appends, so that the query would often be in vain.
        write(journal, "a-1", new())
    assert function_calls == ["query", "query", "function", "function"]


def test_who_knows_too_little_of_the_log_gives_no_position_twice(
    headrace_postgres: TestDatabase, function_calls: list[str]
) -> None:
    """What another has written is not seen by the query, which has begun before; and it has the lock."""
    copy = """
        INSERT INTO headrace_events.events
        SELECT position + 1, aggregatetype, 'a-2', version, gen_random_uuid(), type, schema_version, payload,
               headers, tags, subjects, recorded_at
        FROM headrace_events.events WHERE position = 1
    """
    with PostgresJournal(headrace_postgres.dsn) as journal, ThreadPoolExecutor(1) as threads:
        write(journal, "a-1", new())
        with psycopg.connect(headrace_postgres.dsn) as other:
            other.execute(copy)
            waiting = threads.submit(write, journal, "a-1", new())
            blocked = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'transactionid'"
            eventually(lambda: headrace_postgres.execute(blocked)[0][0] == 1)
            other.commit()

        assert (waiting.result().position, waiting.result().versions) == (3, {"a-1": 2})
        assert [each.stream for each in journal.read_all()] == ["a-1", "a-2", "a-1"]
    assert function_calls == ["query", "query", "function"]


def test_functions_of_a_later_version_are_always_called(
    headrace_postgres: TestDatabase, function_calls: list[str]
) -> None:
    PostgresJournal(headrace_postgres.dsn).close()
    headrace_postgres.execute(
        "COMMENT ON FUNCTION headrace_events.append_one IS 'functions of headrace, version 3'"
    )

    with PostgresJournal(headrace_postgres.dsn) as journal:
        write(journal, "a-1", new())

    assert function_calls == ["function"]


def test_it_waits_asleep_where_that_is_asked_for(headrace_postgres: TestDatabase) -> None:
    with PostgresJournal(headrace_postgres.dsn, busy_wait=False) as journal:
        write(journal, "a-1", new())
        with journal._tables.connections.lent("looking") as connection:
            assert connection.busy_wait is None
