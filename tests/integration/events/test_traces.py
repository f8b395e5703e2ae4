"""What tables of read models, effects and dead letters still have of somebody who was forgotten."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from psycopg.types.json import Jsonb

from headrace.errors import ConfigError
from headrace.events import EventStore, MemoryJournal, Recorded, SubjectWasForgotten
from headrace.events.processes import Outcome, ProcessManager
from headrace.events.projections import (
    Effect,
    Poison,
    PostgresPlace,
    PostgresWork,
    Projection,
    ReadModels,
    Trace,
)
from headrace.testing.accounts import Account, Deposited, Open, Opened
from headrace.testing.forgetful_processes import ForgetfulProcessContract, Greetings, greeted
from headrace.testing.postgres import TestDatabase

NAME = 'Zoë "Z" O\\Neil'
CREATE = """
CREATE TABLE owners (account text PRIMARY KEY, customer text, owner text, words text[], doc jsonb, raw bytea);
CREATE TABLE counts (account text PRIMARY KEY, count int CHECK (count < 2))
"""
POISON = Poison(then="bury", attempt_count_max=1)


@pytest.fixture
def place(headrace_postgres: TestDatabase) -> Iterator[PostgresPlace]:
    with PostgresPlace(headrace_postgres.dsn) as found:
        yield found


@pytest.fixture
def store() -> EventStore:
    store = EventStore(MemoryJournal(), [Account])
    store.execute("account-1", Open(customer="c1", owner=NAME))
    store.execute("account-2", Open(customer="c2", owner="Ada"))
    return store


def keep(work: PostgresWork, event: Recorded) -> None:
    match event.data:
        case Opened(customer=customer, owner=owner):
            values = (event.stream, customer, owner, ["of", owner], Jsonb({"a": [owner]}), owner.encode())
            work.execute("INSERT INTO owners VALUES (%s, %s, %s, %s, %s, %s)", values)
            work.fire("mail", {"to": owner})
        case Deposited():
            raise ValueError(f"no deposits of {NAME}")


def keep_and_forget(work: PostgresWork, event: Recorded) -> None:
    match event.data:
        case Opened():
            keep(work, event)
        case SubjectWasForgotten(subject=subject):
            work.execute(
                "UPDATE owners SET owner = NULL, words = NULL, doc = NULL, raw = NULL WHERE customer = %s",
                (subject,),
            )


def trace(table: str, column: str) -> Trace:
    return Trace(table=table, column=column, row_count=1)


def test_each_column_that_still_has_a_text_is_named_until_the_model_is_made_anew(
    store: EventStore, place: PostgresPlace
) -> None:
    owners = Projection(name="owners", handle=keep, create=CREATE, poison=POISON)
    store.append("account-1", [Deposited(amount=1)])
    models = ReadModels(store, place, [owners])
    receipt_before = store.forget("nobody")
    models.catch_up()
    assert not models.verify_forgotten(receipt_before, [NAME]).is_forgotten
    receipt = store.forget("c1")
    assert models.verify_forgotten(receipt, ["nowhere"]).behind == ("owners",)
    models.catch_up()
    found = models.verify_forgotten(receipt, [NAME])
    columns = [trace("owners__g1.owners", each) for each in ("owner", "words", "doc", "raw")]
    assert found.behind == ()
    assert set(found.traces) == {
        *columns,
        trace("headrace_read.effects", "payload"),
        trace("headrace_read.dead_letters", "cause"),
    }
    assert not found.is_forgotten
    # What is made anew is made of events that nobody can read any more. The effect is still due.
    models.rebuild("owners")
    assert {each.table for each in models.verify_forgotten(receipt, [NAME]).traces} == {
        "headrace_read.effects",
        "headrace_read.dead_letters",
    }


def test_an_effect_that_was_fired_keeps_nothing_of_what_it_carried(
    store: EventStore, place: PostgresPlace, headrace_postgres: TestDatabase
) -> None:
    mails: list[Effect] = []
    is_up: list[bool] = []

    def send(effect: Effect) -> None:
        if not is_up:
            raise ConnectionError(f"no route to {effect.payload['to']}")
        mails.append(effect)

    owners = Projection(name="owners", handle=keep_and_forget, create=CREATE)
    models = ReadModels(store, place, [owners], senders={"mail": send})
    models.catch_up()
    receipt = store.forget("c1")
    models.catch_up()
    assert set(models.verify_forgotten(receipt, [NAME]).traces) == {
        trace("headrace_read.effects", "payload"),
        trace("headrace_read.effects", "cause"),
    }
    is_up.append(True)
    headrace_postgres.execute("UPDATE headrace_read.effects SET due_at = now()")
    models.fire_effects()
    assert [mail.payload for mail in mails] == [{"to": NAME}, {"to": "Ada"}]
    assert models.verify_forgotten(receipt, [NAME]).is_forgotten
    assert all(place.fired_at("owners", mail.id) is not None for mail in mails)


@pytest.mark.parametrize("texts", [[], [""], "Zoë", ["a\0b"]])
def test_a_look_for_nothing_is_refused(store: EventStore, place: PostgresPlace, texts: list[str]) -> None:
    with pytest.raises(ConfigError, match="the texts to look for"):
        ReadModels(store, place, []).verify_forgotten(store.forget("c1"), texts)


class TestProcesses(ForgetfulProcessContract):
    """With the fixture `place` of this file."""


def test_a_process_from_before_processes_forgot_is_given_the_table_and_goes_on(
    place: PostgresPlace, headrace_postgres: TestDatabase
) -> None:
    store, manager = greeted(place, Outcome.DONE)
    manager.catch_up()
    headrace_postgres.execute("DROP TABLE greetings__g1.greetings_personal CASCADE")
    headrace_postgres.execute("DROP INDEX greetings__g1.greetings_commands_instance_idx")

    manager = ProcessManager(store, place, Greetings)
    store.execute("account-3", Open(customer="c3", owner="Grace Hopper"))
    manager.catch_up()
    assert store.load("letter-c3").state == 1
    store.forget("c3")
    manager.catch_up()

    assert place.traces(["Grace Hopper"]) == []
    indexes = headrace_postgres.execute("SELECT indexname FROM pg_indexes WHERE indexname LIKE 'greetings%'")
    assert {("greetings_commands_instance_idx",), ("greetings_personal_by_instance",)} <= set(indexes)
