"""The bank's balances on Spark: the same as the store's, from the rows that a capture publishes."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bank_accounts import Account
from bank_world import history
from headrace.events import EventStore, MemoryJournal, Refused
from headrace.streams.load import load_pipelines

pytestmark = pytest.mark.spark

PIPELINES = Path(__file__).parents[3] / "examples" / "bank" / "bank_pipeline.py"
SINCE = datetime(2026, 1, 1, tzinfo=UTC)
UNTIL = datetime(2026, 3, 1, tzinfo=UTC)


def captured(store: EventStore, after: int) -> list[str]:
    """The change events of the store's rows after a position."""
    return [
        json.dumps(
            {
                "op": "c",
                "before": None,
                "after": {
                    "position": each.position,
                    "aggregatetype": each.stream.partition("-")[0],
                    "aggregateid": each.stream,
                    "version": each.version,
                    "type": each.type,
                    "schema_version": each.schema_version,
                    "payload": each.data.decode(),
                },
            }
        )
        for each in store.journal.read_all(after=after)
    ]


def test_each_batch_gives_the_accounts_that_it_has_changed_also_over_a_crash(
    headrace_pipeline: Callable[..., Any],
) -> None:
    store = EventStore(MemoryJournal(), deciders=[Account])
    wishes = [
        wish
        for wish in history(7, since=SINCE, until=UNTIL, count=60, account_count=4)
        if wish.stream.startswith("account-")
    ]
    # As the command loads them: Spark's workers are sent the code of the example.
    (account_balances,) = load_pipelines(str(PIPELINES))
    bank_events = account_balances.sources()["bank_events"]
    script, after = headrace_pipeline(account_balances), 0
    for half in (wishes[: len(wishes) // 2], wishes[len(wishes) // 2 :]):
        for wish in half:
            try:
                store.execute(wish.stream, wish.command, command_id=wish.command_id)
            except Refused:
                continue
        script.add(bank_events, *captured(store, after))
        if after:
            script.crash("pipeline.task.committed")
        script.expect(*expected(store, after))
        after = store.journal.head()


def expected(store: EventStore, after: int) -> list[dict[str, Any]]:
    """Each account that has changed since, as it is now."""
    changed = {each.stream for each in store.journal.read_all(after=after)}
    rows = []
    for stream in changed:
        loaded = store.load(stream)
        state = loaded.state
        known = {"status": state.status, "balance_cents": state.balance_cents}
        rows.append({"stream": stream, "version": loaded.version, **known})
    return rows
