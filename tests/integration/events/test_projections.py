"""Read models as tables: positions with the data, generations, views, effects, kills."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import psycopg
import pytest

from headrace.errors import ConfigError, ProjectionReplaced, StoreUnavailable
from headrace.events import EventStore, MemoryJournal, Recorded
from headrace.events.projections import Effect, Poison, PostgresPlace, PostgresWork, Projection, ReadModels
from headrace.events.projections.place import live
from headrace.testing.postgres import TestDatabase
from headrace.testing.waiting import eventually


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    amount: int


CREATE = "CREATE TABLE totals (stream text PRIMARY KEY, amount bigint NOT NULL CHECK (amount < 1000))"


def add(work: PostgresWork, event: Recorded) -> None:
    work.execute(
        "INSERT INTO totals VALUES (%s, %s) ON CONFLICT (stream) DO UPDATE "
        "SET amount = totals.amount + excluded.amount",
        (event.stream, event.data.amount),
    )
    work.fire("mail", {"amount": event.data.amount})


def add_and_count(work: PostgresWork, event: Recorded) -> None:
    work.execute(
        "INSERT INTO totals VALUES (%s, %s, 1) ON CONFLICT (stream) DO UPDATE "
        "SET amount = totals.amount + excluded.amount, count = totals.count + 1",
        (event.stream, event.data.amount),
    )
    work.fire("mail", {"amount": event.data.amount})


ONE = Projection(
    name="sums", handle=add, create=CREATE, batch_count_max=20, poison=Poison(attempt_count_max=2, pause_s=0)
)
TWO = Projection(
    name="sums",
    handle=add_and_count,
    version=2,
    create="CREATE TABLE totals (stream text PRIMARY KEY, amount numeric NOT NULL, count bigint)",
    batch_count_max=20,
)


@pytest.fixture
def place(headrace_postgres: TestDatabase) -> Iterator[PostgresPlace]:
    with PostgresPlace(headrace_postgres.dsn) as found:
        yield found


@pytest.fixture
def store() -> EventStore:
    return EventStore(MemoryJournal(), types=[Added])


def totals(database: TestDatabase) -> dict[str, int]:
    return {row[0]: int(row[1]) for row in database.execute("SELECT * FROM totals")}


def test_tables_follow_the_events_and_are_read_by_their_names(
    store: EventStore, place: PostgresPlace, headrace_postgres: TestDatabase
) -> None:
    models = ReadModels(store, place, [ONE])
    store.append("sum-1", [Added(amount=1), Added(amount=2)])
    store.append("sum-2", [Added(amount=4)])
    assert models.status()[0].behind == 3
    models.catch_up()
    assert totals(headrace_postgres) == {"sum-1": 3, "sum-2": 4}
    assert (models.status()[0].behind, models.status()[0].position) == (0, 3)
    # Somebody else who opens the same finds it as it is.
    with PostgresPlace(headrace_postgres.dsn) as other:
        assert ReadModels(store, other, [ONE]).status() == models.status()


def test_an_event_that_breaks_a_constraint_is_buried_with_its_cause_and_those_around_it_count(
    store: EventStore, place: PostgresPlace, headrace_postgres: TestDatabase
) -> None:
    models = ReadModels(store, place, [ONE])
    store.append("sum-1", [Added(amount=1), Added(amount=5000), Added(amount=2)])
    models.catch_up()
    assert totals(headrace_postgres) == {"sum-1": 3}
    (letter,) = models.dead_letters("sums")
    assert (letter.position, letter.stream, letter.type, letter.attempt_count) == (2, "sum-1", "Added", 2)
    assert letter.cause.startswith("CheckViolation: ")
    assert models.status()[0].dead_letter_count == 1


def test_a_statement_that_is_wrong_is_the_fault_of_its_event_also_where_answers_are_not_awaited(
    store: EventStore, place: PostgresPlace
) -> None:
    def handle(work: PostgresWork, event: Recorded) -> None:
        if event.position == 2:
            work.execute("SELECT 1 / 0")
        assert work.execute("SELECT 7").fetchone() == (7,)

    models = ReadModels(store, place, [Projection(name="bad", handle=handle, poison=ONE.poison)])
    store.append("sum-1", [Added(amount=1)] * 3)
    models.catch_up()
    assert [letter.position for letter in models.dead_letters("bad")] == [2]


def test_a_rebuild_changes_columns_and_leaves_nothing_of_the_former_generation(
    store: EventStore, place: PostgresPlace, headrace_postgres: TestDatabase
) -> None:
    ReadModels(store, place, [ONE]).catch_up()
    store.append("sum-1", [Added(amount=1), Added(amount=2)])
    ReadModels(store, place, [ONE]).catch_up()
    new = ReadModels(store, place, [TWO])
    seen: list[int] = []
    new.rebuild("sums", seen.append)
    assert headrace_postgres.execute("SELECT stream, amount, count FROM totals") == [("sum-1", 3, 2)]
    schemas = headrace_postgres.execute("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'sums%'")
    assert schemas == [("sums__g2",)]
    assert seen[-1] == 2
    store.append("sum-1", [Added(amount=4)])
    with pytest.raises(ProjectionReplaced, match="is at version 2"):
        ReadModels(store, place, [ONE]).catch_up()
    new.catch_up()
    assert totals(headrace_postgres) == {"sum-1": 7}
    assert new.rebuild("sums").number == 3


def test_a_rebuild_under_live_writes_equals_a_replay_and_fires_each_effect_once(
    store: EventStore, place: PostgresPlace, headrace_postgres: TestDatabase
) -> None:
    mails: list[Effect] = []
    models = ReadModels(store, place, [ONE], senders={"mail": mails.append})
    stop = threading.Event()
    written: list[int] = []

    def write() -> None:
        while not stop.is_set() and len(written) < 400:
            written.append(len(written) % 2)
            store.append(f"sum-{len(written) % 5}", [Added(amount=written[-1])])

    writer = threading.Thread(target=write, name="writer")
    with models.running():
        writer.start()
        for _ in range(3):
            models.rebuild("sums")
        stop.set()
        writer.join()
        models.wait_for("sums", len(written), timeout_s=60)
        eventually(lambda: len(mails) == len(written), lambda: f"{len(mails)} of {len(written)} mails")
    expected: Counter[str] = Counter()
    for number, amount in enumerate(written, start=1):
        expected[f"sum-{number % 5}"] += amount
    assert totals(headrace_postgres) == dict(expected)
    assert len({mail.id for mail in mails}) == len(written)
    assert headrace_postgres.execute("SELECT DISTINCT state FROM headrace_read.effects") == [("fired",)]
    assert all(place.fired_at("sums", mail.id) is not None for mail in mails)


def test_effects_after_the_live_position_are_held_by_a_rebuild_and_due_with_the_swap(
    store: EventStore, place: PostgresPlace
) -> None:
    mails: list[int] = []
    models = ReadModels(
        store, place, [ONE], senders={"mail": lambda effect: mails.append(effect.payload["amount"])}
    )
    store.append("sum-1", [Added(amount=1)])
    models.catch_up()
    # The live generation is not run any more; a rebuild goes past it.
    store.append("sum-1", [Added(amount=2), Added(amount=4)])
    building = place.build(ONE)
    subscription = models._subscription(ONE)
    assert subscription.run_once(building) is not None
    models.fire_effects()
    assert mails == [1]
    models.rebuild("sums")
    models.fire_effects()
    assert mails == [1, 2, 4]


def test_effects_that_the_live_generation_fired_while_another_was_built_are_not_fired_again(
    store: EventStore, place: PostgresPlace, headrace_postgres: TestDatabase
) -> None:
    mails: list[Effect] = []
    models = ReadModels(store, place, [ONE], senders={"mail": mails.append})
    store.append("sum-1", [Added(amount=1)])
    # The building generation is ahead of the live one, so it holds the effect back.
    assert models._subscription(ONE).run_once(place.build(ONE)) is not None
    assert headrace_postgres.execute("SELECT state FROM headrace_read.effects") == [("held",)]
    models.catch_up()
    models.rebuild("sums")
    models.catch_up()
    assert len(mails) == 1
    assert headrace_postgres.execute("SELECT state FROM headrace_read.effects") == [("fired",)]


def test_effects_that_fail_wait_longer_each_time_and_stay_with_their_cause(
    store: EventStore, place: PostgresPlace, headrace_postgres: TestDatabase
) -> None:
    def send(effect: Effect) -> None:
        raise ConnectionError("no route")

    models = ReadModels(store, place, [ONE], senders={"mail": send}, effect_attempt_count_max=2)
    store.append("sum-1", [Added(amount=1)])
    models.catch_up()
    # It is not due again at once.
    assert models.fire_effects() == 0
    headrace_postgres.execute("UPDATE headrace_read.effects SET due_at = now()")
    assert models.fire_effects() == 1
    (failed,) = models.failed_effects("sums")
    assert (failed.effect.payload, failed.cause, failed.attempt_count) == (
        {"amount": 1},
        "ConnectionError: no route",
        2,
    )


def test_a_table_that_is_not_the_projections_own_is_never_replaced(
    store: EventStore, place: PostgresPlace, headrace_postgres: TestDatabase
) -> None:
    headrace_postgres.execute("CREATE TABLE totals (stream text)")
    with pytest.raises(ConfigError, match=r"public.totals is there and not its own"):
        ReadModels(store, place, [ONE])
    assert headrace_postgres.execute("SELECT count(*) FROM totals") == [(0,)]
    with pytest.raises(ConfigError, match="the tables of projection bad can't be made"):
        ReadModels(store, place, [Projection(name="bad", handle=add, create="CREATE TABEL x ()")])


def test_a_lost_connection_is_noticed_and_the_next_attempt_goes_on(
    store: EventStore, place: PostgresPlace, headrace_postgres: TestDatabase
) -> None:
    def handle(work: PostgresWork, event: Recorded) -> None:
        add(work, event)
        if not lost:
            lost.append(work.connection.info.backend_pid)
            headrace_postgres.execute("SELECT pg_terminate_backend(%s)", lost[0])
            with pytest.raises(psycopg.OperationalError):
                work.execute("SELECT 1").fetchone()
            work.execute("SELECT 1")

    lost: list[int] = []
    models = ReadModels(store, place, [Projection(name="sums", handle=handle, create=CREATE)])
    store.append("sum-1", [Added(amount=1), Added(amount=2)])
    with pytest.raises(StoreUnavailable):
        models.catch_up()
    assert live(place, "sums").position == 0
    models.catch_up()
    assert totals(headrace_postgres) == {"sum-1": 3}
    assert models.dead_letters("sums") == []


def test_many_who_open_and_run_the_same_projections_at_once_disturb_nobody(
    store: EventStore, headrace_postgres: TestDatabase
) -> None:
    store.append("sum-1", [Added(amount=1)] * 100)
    failures: list[Exception] = []

    def run() -> None:
        try:
            with PostgresPlace(headrace_postgres.dsn) as own:
                ReadModels(store, own, [ONE]).catch_up()
        except Exception as error:  # noqa: BLE001 - told by the test
            failures.append(error)

    threads = [threading.Thread(target=run, name=f"runner-{number}") for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert totals(headrace_postgres) == {"sum-1": 100}
