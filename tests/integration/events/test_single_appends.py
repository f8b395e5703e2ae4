"""One event is appended to PostgreSQL by a query, and by the function where the query does nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import msgspec
import psycopg
import pytest

from headrace.errors import VersionConflict
from headrace.events.postgres import PostgresJournal, queries
from headrace.events.postgres import journal as module_of_journal
from headrace.events.postgres.busy_wait import BusyWait
from headrace.events.postgres.connections import Connection
from headrace.events.postgres.migration import FUNCTIONS_VERSION, filled
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
    later = f"functions of headrace, version {FUNCTIONS_VERSION + 1}"
    headrace_postgres.execute(f"COMMENT ON FUNCTION headrace_events.append_one IS '{later}'")

    with PostgresJournal(headrace_postgres.dsn) as journal:
        write(journal, "a-1", new())

    assert function_calls == ["function"]


def test_functions_that_come_while_a_journal_is_open_can_keep_it_from_appending_past_them(
    headrace_postgres: TestDatabase, function_calls: list[str]
) -> None:
    with PostgresJournal(headrace_postgres.dsn) as journal:
        write(journal, "a-1", new())
        ((body,),) = headrace_postgres.execute(
            "SELECT pg_get_functiondef(oid) FROM pg_proc WHERE proname = 'append_one'"
            " AND pronamespace = 'headrace_events'::regnamespace"
        )
        headrace_postgres.execute(str(body).replace("headers_of", "headers_of_event"))
        headrace_postgres.execute(
            "ALTER FUNCTION headrace_events.headers_of(bigint, bigint, text) RENAME TO headers_of_event"
        )
        write(journal, "a-1", new())
        write(journal, "a-1", new())

        assert [each.version for each in journal.read_all()] == [1, 2, 3]
    assert function_calls == ["query", "query", "function", "function"]


def test_where_only_functions_may_write_they_do(
    headrace_postgres: TestDatabase, function_calls: list[str]
) -> None:
    role = f"writer_{uuid4().hex[:12]}"
    PostgresJournal(headrace_postgres.dsn).close()
    headrace_postgres.execute(f"CREATE ROLE {role} LOGIN")
    try:
        headrace_postgres.execute(
            f"GRANT USAGE ON SCHEMA headrace_events TO {role};"
            f"GRANT SELECT ON ALL TABLES IN SCHEMA headrace_events TO {role};"
            f"GRANT INSERT ON headrace_events.event_types TO {role};"
            "ALTER FUNCTION headrace_events.append_one SECURITY DEFINER"
        )
        with PostgresJournal(f"{headrace_postgres.dsn} options='-c role={role}'") as journal:
            write(journal, "a-1", new())
            write(journal, "a-1", new())
            assert journal.head() == 2
    finally:
        headrace_postgres.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")
    assert function_calls == ["query", "function", "function"]


def test_a_conflict_of_its_own_does_not_keep_it_from_the_query(
    headrace_postgres: TestDatabase, function_calls: list[str]
) -> None:
    with PostgresJournal(headrace_postgres.dsn) as journal:
        write(journal, "a-1", new())
        with pytest.raises(VersionConflict):
            write(journal, "a-1", new(), expected=0)
        write(journal, "a-1", new())

    assert function_calls == ["query", "query", "function", "query"]


@pytest.mark.parametrize(("busy_wait", "expected"), [(True, 3), (False, 0)])
def test_it_waits_asleep_only_where_that_is_asked_for(
    headrace_postgres: TestDatabase, monkeypatch: pytest.MonkeyPatch, *, busy_wait: bool, expected: int
) -> None:
    waits = list[BusyWait]()

    def note(wait: BusyWait) -> None:
        waits.append(wait)

    monkeypatch.setattr(BusyWait, "wait", note)
    monkeypatch.setattr(module_of_journal, "is_worth_it", lambda: True)
    with PostgresJournal(headrace_postgres.dsn, busy_wait=busy_wait) as journal:
        for _ in range(3):
            write(journal, "a-1", new())
        write(journal, "a-1", new(), new())

    assert len(waits) == expected


def test_what_an_interrupt_leaves_behind_is_over(
    headrace_postgres: TestDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who looks then sees whether the event was appended; and the connection can be used again."""

    def interrupt(_wait: BusyWait) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module_of_journal, "is_worth_it", lambda: True)
    with PostgresJournal(headrace_postgres.dsn) as journal:
        write(journal, "a-1", new())
        ((before,),) = journal._tables.ask("looking", "SELECT pg_backend_pid()")
        with monkeypatch.context() as interrupted:
            interrupted.setattr(BusyWait, "wait", interrupt)
            with pytest.raises(KeyboardInterrupt):
                write(journal, "a-1", new())
        count = journal.head()
        ((after,),) = journal._tables.ask("looking", "SELECT pg_backend_pid()")

        assert before == after
        assert write(journal, "a-1", new()).position == count + 1


WRITER = """
import sys
from headrace.events.postgres import PostgresJournal, appends
from headrace.testing.journals import new, write

appends.BY_FUNCTION_AFTER_MISS = 0
with PostgresJournal(sys.argv[1]) as journal:
    for _ in range(200):
        print(write(journal, sys.argv[2], new()).position, write(journal, "a-shared", new()).position)
"""


def test_programs_that_append_single_events_at_once_share_one_order(headrace_postgres: TestDatabase) -> None:
    PostgresJournal(headrace_postgres.dsn).close()
    programs = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, headrace_postgres.dsn, f"a-{name}"],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in range(3)
    ]
    told = [int(each) for program in programs for each in program.communicate(timeout=300)[0].split()]

    assert sorted(told) == list(range(1, 1201))
    wrong = """
        SELECT count(*) FROM (
            SELECT (headers ->> 'position')::bigint <> position OR (headers ->> 'version')::bigint <> version
                   OR version <> row_number() OVER (PARTITION BY aggregateid ORDER BY position)
                   OR recorded_at < lag(recorded_at) OVER (ORDER BY position) AS is_wrong
            FROM headrace_events.events
        ) AS looked_at WHERE is_wrong
    """
    assert headrace_postgres.execute(wrong)[0][0] == 0
