"""The side of the library `eventsourcing` in store.py: prints what it has measured as one line of JSON.

The line also says on which code of its driver it has run.

It runs in an environment of its own, without Headrace.
"""

# mypy: ignore-errors

from __future__ import annotations

import json
import os
import sys
import time
from threading import Thread

os.environ |= {
    "PERSISTENCE_MODULE": "eventsourcing.postgres",
    "POSTGRES_DBNAME": os.environ["BENCH_DBNAME"],
    "POSTGRES_HOST": os.environ["BENCH_HOST"],
    "POSTGRES_PORT": os.environ["BENCH_PORT"],
    "POSTGRES_USER": os.environ["BENCH_USER"],
    "POSTGRES_PASSWORD": os.environ.get("BENCH_PASSWORD", ""),
    "POSTGRES_POOL_SIZE": "16",
    "POSTGRES_MAX_OVERFLOW": "40",
    "POSTGRES_POOL_TIMEOUT": "120",
}

import psycopg
from eventsourcing.application import Application
from eventsourcing.domain import Aggregate, event

WRITERS = 50
BATCH = 200
FILLED_AT_ONCE = 500


class Account(Aggregate):
    """The same account as ours, in the words of the library."""

    def __init__(self) -> None:
        self.balance = 0

    @event("Deposited")
    def deposit(self, amount: int) -> None:
        """Pay in."""
        self.balance += amount


def main() -> None:
    """Measure everything once."""
    share = float(sys.argv[1])
    application = Application()
    append_singly(application, max(int(500 * share), 50))
    rates = {
        "single": measured(int(5_000 * share), lambda count: append_singly(application, count)),
        "batched": batches(application, int(200 * share)),
        "writers": writers(application, int(200 * share)),
        **loads(application, int(100_000 * share)),
    }
    application.close()
    print(json.dumps({"driver": psycopg.pq.__impl__, **rates}))


def measured(count, act) -> float:
    """How many a second."""
    began_s = time.perf_counter()
    act(count)
    return count / (time.perf_counter() - began_s)


def append_singly(application, count: int) -> None:
    """One event in each commit. The one that makes the aggregate counts, too."""
    account = Account()
    application.save(account)
    for _ in range(count - 1):
        account.deposit(1)
        application.save(account)
    check(account, count - 1)


def check(account, balance: int) -> None:
    """Fail where an event was lost or doubled."""
    if account.balance != balance:
        raise SystemExit(f"an account has {account.balance}, not {balance}")


def batches(application, count: int) -> float:
    """Many events in each commit."""
    account = Account()
    application.save(account)
    began_s = time.perf_counter()
    for _ in range(count):
        for _ in range(BATCH):
            account.deposit(1)
        application.save(account)
    return count * BATCH / (time.perf_counter() - began_s)


def writers(application, count: int) -> float:
    """Each writer has an aggregate of its own."""
    threads = [Thread(target=append_singly, args=(application, count)) for _ in range(WRITERS)]
    began_s = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return WRITERS * count / (time.perf_counter() - began_s)


def loads(application, count: int) -> dict[str, float]:
    """Read and fold, and fold alone."""
    account = Account()
    # Filling is not measured. In steps, because the library hangs in its pipeline when 5,000 go at once.
    for begin in range(0, count, FILLED_AT_ONCE):
        for _ in range(min(FILLED_AT_ONCE, count - begin)):
            account.deposit(1)
        application.save(account)
    began_s = time.perf_counter()
    check(application.repository.get(account.id), count)
    load = count / (time.perf_counter() - began_s)
    stored = list(application.events.recorder.select_events(account.id))
    began_s = time.perf_counter()
    state = None
    for each in map(application.mapper.to_domain_event, stored):
        state = each.mutate(state)
    check(state, count)
    return {"load": load, "fold": count / (time.perf_counter() - began_s)}


if __name__ == "__main__":
    main()
