"""Writers in processes of their own: none loses or doubles an event, whatever happens to it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from headrace.events import EventStore, Refused, Retries
from headrace.testing.accounts import Deposit, Withdraw
from headrace.testing.failpoints import kill_at
from headrace.testing.postgres import TestDatabase

WRITER = """
import sys
from headrace.config import failpoints_to_arm
from headrace.events import EventStore, PostgresJournal, Retries, Write
from headrace.failpoints import arm_all
from headrace.testing.accounts import Account, Deposit, Deposited

dsn, name, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
store = EventStore(PostgresJournal(dsn), [Account])
arm_all(failpoints_to_arm())
patient = Retries(attempts=1000)
for number in range(count):
    store.execute("account-shared", Deposit(amount=1), command_id=f"{name}-{number}", retries=patient)
    both = [Write(f"account-{name}", [Deposited(amount=1)] * 3), Write("account-all", [Deposited(amount=1)])]
    store.append_many(both, command_id=f"{name}-{number}-both")
    print(number, flush=True)
"""


def writer(dsn: str, name: str, count: int, **environment: str) -> subprocess.Popen[str]:
    """A program that deposits again and again, and says which of it was acknowledged."""
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, dsn, name, str(count)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        stdout=subprocess.PIPE,
        text=True,
    )


def acknowledged(process: subprocess.Popen[str]) -> list[int]:
    """What a program has said, once it has ended."""
    told, _ = process.communicate(timeout=300)
    return [int(line) for line in told.split()]


def positions(store: EventStore) -> list[int]:
    """All positions, read page by page."""
    seen: list[int] = []
    while page := store.read_all(len(seen), limit=100):
        seen.extend(event.position for event in page)
    return seen


@pytest.mark.parametrize("place", ["events.append", "events.appended"])
def test_a_writer_that_is_killed_and_started_again_loses_and_doubles_nothing(
    store: EventStore, headrace_postgres: TestDatabase, place: str
) -> None:
    count = 6
    for after in (1, 4):
        process = writer(headrace_postgres.dsn, "w", count, **kill_at(place, after=after))
        told = acknowledged(process)
        assert process.returncode == -9
        assert store.load("account-shared").state.balance >= len(told)
    process = writer(headrace_postgres.dsn, "w", count)
    assert acknowledged(process) == list(range(count))
    assert process.returncode == 0

    balances = [store.load(f"account-{name}").state.balance for name in ("shared", "w", "all")]
    assert balances == [count, 3 * count, count]
    assert positions(store) == list(range(1, 5 * count + 1))


def test_processes_that_write_at_once_keep_one_order(
    store: EventStore, headrace_postgres: TestDatabase
) -> None:
    names, count = ("a", "b", "c"), 15
    processes = [writer(headrace_postgres.dsn, name, count) for name in names]
    seen: list[int] = []
    while any(process.poll() is None for process in processes) or store.journal.head() > len(seen):
        store.journal.wait_beyond(len(seen), 0.5)
        seen.extend(event.position for event in store.read_all(len(seen), limit=20))

    assert [acknowledged(process) for process in processes] == [list(range(count))] * 3
    assert seen == list(range(1, 5 * 3 * count + 1))
    assert store.load("account-shared").state.balance == 3 * count
    assert store.load("account-all").version == 3 * count


def test_threads_never_overdraw_an_account(store: EventStore) -> None:
    store.execute("account-1", Deposit(amount=100))

    def withdraw(number: int) -> bool:
        try:
            store.execute(
                "account-1", Withdraw(amount=7), command_id=f"w-{number}", retries=Retries(attempts=1000)
            )
        except Refused:
            return False
        return True

    with ThreadPoolExecutor(10) as threads:
        # Each command is sent twice, as an impatient client does.
        taken: Sequence[bool] = list(threads.map(withdraw, [*range(30), *range(30)]))

    assert store.load("account-1").state.balance == 100 - 14 * 7
    assert sum(taken) >= 14
