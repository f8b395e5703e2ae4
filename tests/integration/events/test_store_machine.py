"""Random commands of many writers on the journal in PostgreSQL."""

from __future__ import annotations

from itertools import count

from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from event_store_machine import EventStoreMachine
from headrace.events import Journal, PostgresJournal
from headrace.testing.postgres import TestDatabase


def test_the_store_does_what_the_model_does(headrace_postgres: TestDatabase) -> None:
    numbers = count()

    def make() -> Journal:
        return PostgresJournal(headrace_postgres.dsn, schema=f"events_{next(numbers)}")

    machine = type("PostgresMachine", (EventStoreMachine,), {"make_journal": staticmethod(make)})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=12,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
