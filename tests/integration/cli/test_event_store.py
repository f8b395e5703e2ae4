"""Commands that look at an event store change nothing in it, and give away no password."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.cli.event_file import EventFile
from headrace.cli.event_store import OpenStore
from headrace.errors import ConfigError
from headrace.events import EventStore, PostgresJournal, as_decider
from headrace.events.postgres.journal import SCHEMA
from headrace.testing.accounts import Account, Deposited
from headrace.testing.postgres import TestDatabase


def test_to_look_at_a_state_leaves_no_snapshot(headrace_postgres: TestDatabase) -> None:
    with PostgresJournal(headrace_postgres.dsn) as journal:
        EventStore(journal, [Account]).append("account-1", [Deposited(amount=1)] * 1_500)
    file = EventFile(path=Path("accounts.py"), deciders={"Account": as_decider(Account)}, projections={})

    with OpenStore(headrace_postgres.dsn, SCHEMA) as opened:
        assert opened.with_file(file).load("account-1").state.balance == 1_500

    assert headrace_postgres.execute("SELECT count(*) FROM headrace_events.snapshots") == [(0,)]


@pytest.mark.parametrize("dsn", ["hunter2", "postgresql://me:hunter2@[::1/db", "password=hunter2 nonsense"])
def test_a_dsn_that_can_not_be_read_is_not_repeated(dsn: str) -> None:
    with pytest.raises(ConfigError, match="can't be read") as told:
        OpenStore(dsn, SCHEMA)

    assert "hunter2" not in str(told.value)
