"""The journal in PostgreSQL keeps the promises of every journal, and some of its own."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from headrace.errors import ConditionConflict, ConfigError, EventsError, StoreUnavailable
from headrace.events.postgres import PostgresJournal
from headrace.events.postgres.connections import Connection
from headrace.events.records import Append, Condition
from headrace.testing.clock import ManualClock
from headrace.testing.journals import JournalContract, new, to, write
from headrace.testing.postgres import TestDatabase
from headrace.testing.waiting import eventually


@pytest.fixture
def journal(headrace_postgres: TestDatabase) -> Iterator[PostgresJournal]:
    with PostgresJournal(headrace_postgres.dsn) as journal:
        yield journal


class TestPostgresJournal(JournalContract):
    pass


def test_many_may_open_a_journal_that_is_not_there(headrace_postgres: TestDatabase) -> None:
    def use(number: int) -> None:
        with PostgresJournal(headrace_postgres.dsn) as journal:
            write(journal, f"a-{number}", new())

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(use, range(6)))

    with PostgresJournal(headrace_postgres.dsn) as journal:
        assert journal.head() == 6


def test_schemas_of_one_database_know_nothing_of_each_other(headrace_postgres: TestDatabase) -> None:
    with (
        PostgresJournal(headrace_postgres.dsn, schema="one") as one,
        PostgresJournal(headrace_postgres.dsn, schema="two") as two,
    ):
        write(one, "a-1", new())

        assert (one.head(), two.head()) == (1, 0)


@pytest.mark.parametrize("schema", ["", "Events", "a-b", 'a"b', "1a", "x" * 49])
def test_a_schema_has_a_plain_name(schema: str) -> None:
    with pytest.raises(ConfigError, match="schema"):
        PostgresJournal("host=/nowhere", schema=schema)


@contextmanager
def _role_that_may_use_tables(database: TestDatabase) -> Iterator[str]:
    """The DSN of one that has the rights on what is there, and may make nothing."""
    role = f"reader_{database.dsn.split('dbname=')[1].split()[0]}"
    database.execute(f"CREATE ROLE {role} LOGIN")
    try:
        database.execute(
            f"GRANT USAGE ON SCHEMA headrace_events TO {role};"
            f"GRANT ALL ON ALL TABLES IN SCHEMA headrace_events TO {role}"
        )
        yield f"{database.dsn} options='-c role={role}'"
    finally:
        database.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_a_role_that_may_not_make_tables_can_use_them(headrace_postgres: TestDatabase) -> None:
    PostgresJournal(headrace_postgres.dsn).close()

    with _role_that_may_use_tables(headrace_postgres) as dsn, PostgresJournal(dsn) as journal:
        write(journal, "a-1", new())
        assert journal.head() == 1


def _made_by_the_version_before(database: TestDatabase) -> None:
    """A store with one event in it."""
    with PostgresJournal(database.dsn) as journal:
        write(journal, "a-1", new())
    _put_functions_of_the_version_before(database)


def _put_functions_of_the_version_before(database: TestDatabase) -> None:
    """Those that want whole columns, and say nothing of their version."""
    (body,) = database.execute(
        "SELECT pg_get_functiondef(oid) FROM pg_proc WHERE proname = 'append_one'"
        " AND pronamespace = 'headrace_events'::regnamespace"
    )[0]
    before = re.sub(r"coalesce\((e\.\w+), [\w.]+\)", r"\1", str(body))
    assert before != body
    database.execute(before)
    database.execute("COMMENT ON FUNCTION headrace_events.append_one IS NULL")


def _functions_told(database: TestDatabase) -> str | None:
    ((told,),) = database.execute("SELECT obj_description('headrace_events.append_one'::regproc, 'pg_proc')")
    return None if told is None else str(told)


def test_functions_of_the_version_before_are_replaced_while_its_programs_go_on(
    headrace_postgres: TestDatabase,
) -> None:
    with PostgresJournal(headrace_postgres.dsn) as older:
        write(older, "a-1", new())
        _put_functions_of_the_version_before(headrace_postgres)
        # As a program of that version calls them, prepared before they are replaced.
        older._appends.functions_version = 1
        write(older, "a-1", new(), new())
        with PostgresJournal(headrace_postgres.dsn) as newer:
            assert newer._appends.functions_version == 2
            write(older, "a-1", new(), new())
            write(newer, "a-1", new(), new())

            assert [event.version for event in newer.read_stream("a-1")] == list(range(1, 8))
    assert _functions_told(headrace_postgres) == "functions of headrace, version 2"


def test_who_may_not_replace_functions_calls_them_as_the_version_before_did(
    headrace_postgres: TestDatabase,
) -> None:
    _made_by_the_version_before(headrace_postgres)

    with _role_that_may_use_tables(headrace_postgres) as dsn, PostgresJournal(dsn) as journal:
        write(journal, "a-1", new("Opened"), new("Opened"))

        assert [event.type for event in journal.read_stream("a-1")] == ["Happened", "Opened", "Opened"]
    assert _functions_told(headrace_postgres) is None


def test_newer_functions_than_ours_are_left_as_they_are(headrace_postgres: TestDatabase) -> None:
    PostgresJournal(headrace_postgres.dsn).close()
    newer = "functions of headrace, version 3"
    headrace_postgres.execute(f"COMMENT ON FUNCTION headrace_events.append_one IS '{newer}'")

    with PostgresJournal(headrace_postgres.dsn) as journal:
        write(journal, "a-1", new(), new())

    assert _functions_told(headrace_postgres) == newer


def test_functions_with_a_comment_of_somebody_else_are_taken_for_old_ones(
    headrace_postgres: TestDatabase,
) -> None:
    PostgresJournal(headrace_postgres.dsn).close()
    headrace_postgres.execute("COMMENT ON FUNCTION headrace_events.append_one IS 'do not touch'")

    with PostgresJournal(headrace_postgres.dsn) as journal:
        write(journal, "a-1", new(), new())

    assert _functions_told(headrace_postgres) == "functions of headrace, version 2"


def test_many_may_replace_functions_at_once(headrace_postgres: TestDatabase) -> None:
    _made_by_the_version_before(headrace_postgres)

    def use(number: int) -> None:
        with PostgresJournal(headrace_postgres.dsn) as journal:
            write(journal, f"a-{number}", new(), new())

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(use, range(2, 8)))

    with PostgresJournal(headrace_postgres.dsn) as journal:
        assert journal.head() == 13


def test_a_server_that_does_not_answer_is_told_without_the_password() -> None:
    with pytest.raises(StoreUnavailable, match="nowhere") as error:
        PostgresJournal("host=/nowhere user=me password=secret dbname=d")

    assert "secret" not in str(error.value)


def test_a_closed_journal_is_not_used_again(headrace_postgres: TestDatabase) -> None:
    journal = PostgresJournal(headrace_postgres.dsn)
    journal.close()

    with pytest.raises(EventsError, match="closed"):
        journal.head()


def test_a_lost_connection_is_told_and_replaced(
    journal: PostgresJournal, headrace_postgres: TestDatabase
) -> None:
    write(journal, "a-1", new())
    headrace_postgres.execute(
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
        "WHERE application_name = 'headrace events' AND datname = current_database()"
    )

    with pytest.raises(StoreUnavailable) as error:
        write(journal, "a-1", new())
    assert error.value.retriable
    assert not error.value.definite

    eventually(lambda: _head_or_none(journal) == 1)
    write(journal, "a-1", new(), expected=1)


def _head_or_none(journal: PostgresJournal) -> int | None:
    try:
        return journal.head()
    except StoreUnavailable:
        return None


def test_what_can_not_be_stored_does_not_take_others_with_it(journal: PostgresJournal) -> None:
    """They go in one transaction, which the broken one ends."""
    good, broken = Append(writes=(to("a-1", new()),)), Append(writes=(to("a-2", new(data=b"{no json")),))

    answers = journal._appends._carry_out([good, broken, Append(writes=(to("a-3", new()),))])

    assert isinstance(answers[1], EventsError)
    assert [each.stream for each in journal.read_all()] == ["a-1", "a-3"]


@pytest.mark.parametrize("text", ["a\x1eb", "a\0b"])
def test_control_characters_are_refused(journal: PostgresJournal, text: str) -> None:
    with pytest.raises(EventsError, match="control character"):
        write(journal, "a-1", new(tags=(text,)))


@pytest.mark.parametrize("count", [1, 2])
def test_a_waiting_reader_hears_of_appends_of_other_processes(
    journal: PostgresJournal, headrace_postgres: TestDatabase, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    heard = list[str]()
    notifies = Connection.notifies

    def noted(connection: Connection, **options: Any) -> Iterator[psycopg.Notify]:
        for notice in notifies(connection, **options):
            heard.append(notice.channel)
            yield notice

    monkeypatch.setattr(Connection, "notifies", noted)
    with PostgresJournal(headrace_postgres.dsn) as other, ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(journal.wait_beyond, 0, 60.0)
        eventually(
            lambda: headrace_postgres.execute(
                "SELECT 1 FROM pg_locks JOIN pg_database ON pg_database.oid = database "
                "WHERE datname = current_database() AND locktype = 'advisory' AND mode = 'ShareLock'"
            )
        )
        write(other, "a-1", *[new() for _ in range(count)])
        assert waiting.result()
    # Who hears nothing looks by itself some day.
    assert heard == ["headrace_events_appended"]


def test_times_are_those_of_the_clock_and_do_not_go_back(headrace_postgres: TestDatabase) -> None:
    clock = ManualClock()
    with PostgresJournal(headrace_postgres.dsn, clock=clock) as journal:
        write(journal, "a-1", new())
        clock.jump(-60_000)
        write(journal, "a-1", new())
        journal.append(Append(writes=(to("a-1", new()), to("a-2", new()))))

        times = {event.recorded_at.timestamp() for event in journal.read_all()}
        assert times == {1_700_000_000.0}


def test_an_open_transaction_of_others_holds_no_reader_up(
    journal: PostgresJournal, headrace_postgres: TestDatabase
) -> None:
    with psycopg.connect(headrace_postgres.dsn) as other:
        other.execute("CREATE TABLE held (x int)")
        write(journal, "a-1", new())

        assert journal.head() == 1


def test_layouts_of_another_version_are_refused(headrace_postgres: TestDatabase) -> None:
    PostgresJournal(headrace_postgres.dsn).close()
    headrace_postgres.execute("UPDATE headrace_events.layout SET version = 99")

    with pytest.raises(EventsError, match="layout 99"):
        PostgresJournal(headrace_postgres.dsn)


def test_long_streams_are_listed_without_reading_them(journal: PostgresJournal) -> None:
    write(journal, "a-1", *[new() for _ in range(2_000)])
    write(journal, "b-1", new())

    assert [(each.stream, each.version) for each in journal.streams()] == [("a-1", 2_000), ("b-1", 1)]


@pytest.mark.parametrize("named", [[[], ["e:9"]], [["Rare"], []], [["Rare"], ["e:9"]]])
def test_a_condition_does_not_read_the_log(
    journal: PostgresJournal, headrace_postgres: TestDatabase, named: list[list[str]]
) -> None:
    many = [new(tags=[f"e:{number}"]) for number in range(5_000)]
    write(journal, "a-1", *many)
    headrace_postgres.execute("ANALYZE headrace_events.events")
    condition = json.dumps([[10, *named]])

    with psycopg.connect(headrace_postgres.dsn) as connection:
        asked = "SELECT headrace_events.first_named(%s::jsonb)"
        assert [connection.execute(asked, (condition,)).fetchone() for _ in range(8)] == [(None,)] * 8
        (read,) = connection.execute(
            "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables "
            "WHERE relid = 'headrace_events.events'::regclass"
        ).fetchone() or (None,)

    assert read is not None
    assert read < 100


@pytest.mark.parametrize("after", [0, 1_999, 2_000, 2_001, 2_500])
def test_a_condition_finds_the_first_event_however_far_it_is(journal: PostgresJournal, after: int) -> None:
    plain = [new("Plain") for _ in range(1_999)]
    named = [new("Rare", tags=["e:1", "e:2"]), new("Rare", tags=["e:1", "e:3"])]
    write(journal, "a-1", *plain, *named, *plain)
    conditions = [
        Condition(after=after, tags=frozenset({"e:1"})),
        Condition(after=after, types=frozenset({"Rare", "Other"})),
        Condition(after=after, types=frozenset({"Rare"}), tags=frozenset({"e:1"})),
    ]
    first = {0: 2_000, 1_999: 2_000, 2_000: 2_001}.get(after)
    for condition in conditions:
        asked = Append(writes=(to("b-1"),), conditions=(condition,))
        if first is None:
            journal.append(asked)
            continue
        with pytest.raises(ConditionConflict) as conflict:
            journal.append(asked)
        assert conflict.value.position == first
    assert journal.head() == 4_000
