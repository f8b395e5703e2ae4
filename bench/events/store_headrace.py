"""Our side of store.py: prints what it has measured as one line of JSON."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from threading import Thread
from typing import Final

from account import Account, Deposit, Deposited, PlainAccount
from headrace.events import EventStore, PostgresJournal, Retries, SnapshotPolicy, as_decider, fold
from headrace.events.codec import EventCodec

WRITERS: Final = 50
BATCH: Final = 200


def main() -> None:
    """Measure everything once."""
    share = float(sys.argv[1])
    with PostgresJournal(os.environ["BENCH_DSN"]) as journal:
        store = EventStore(journal, [Account])
        append_singly(store, "account-warm", max(int(500 * share), 50))
        rates = {
            "single": singles(store, int(5_000 * share)),
            "batched": batches(store, int(200 * share)),
            "writers": writers(store, int(200 * share)),
            "contended": contended(store, int(40 * share) or 1),
            **loads(journal, int(100_000 * share)),
            "million_ms": million(store, int(1_000_000 * share)),
        }
    print(json.dumps(rates))


def append_singly(store: EventStore, stream: str, count: int) -> None:
    """One event in each commit."""
    for version in range(count):
        store.append(stream, [Deposited(amount=1)], expected=version)


def rate(count: int, act: Callable[[], object]) -> float:
    """How many a second."""
    began_s = time.perf_counter()
    act()
    return count / (time.perf_counter() - began_s)


def check(store: EventStore, stream: str, balance: int) -> None:
    """Fail where an event was lost or doubled."""
    state = store.load(stream).state
    if state.balance != balance:
        raise SystemExit(f"{stream} has {state.balance}, not {balance}")


def singles(store: EventStore, count: int) -> float:
    """One event in each commit, one after the other."""
    found = rate(count, lambda: append_singly(store, "account-single", count))
    check(store, "account-single", count)
    return found


def batches(store: EventStore, count: int) -> float:
    """Many events in each commit."""

    def act() -> None:
        for number in range(count):
            store.append(
                "account-batch", [Deposited(amount=1) for _ in range(BATCH)], expected=number * BATCH
            )

    found = rate(count * BATCH, act)
    check(store, "account-batch", count * BATCH)
    return found


def at_once(work: Callable[[int], None]) -> None:
    """Let all writers work, and wait for them."""
    threads = [Thread(target=work, args=(number,)) for number in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def writers(store: EventStore, count: int) -> float:
    """Each writer has an aggregate of its own."""
    found = rate(
        WRITERS * count,
        lambda: at_once(lambda number: append_singly(store, f"account-writer{number}", count)),
    )
    for number in range(WRITERS):
        check(store, f"account-writer{number}", count)
    return found


def contended(store: EventStore, count: int) -> float:
    """All writers have one aggregate: none may lose an update of another."""

    def work(number: int) -> None:
        for each in range(count):
            store.execute(
                "account-shared",
                Deposit(amount=1),
                command_id=f"{number}-{each}",
                retries=Retries(attempts=1000),
            )

    found = rate(WRITERS * count, lambda: at_once(work))
    check(store, "account-shared", WRITERS * count)
    return found


def loads(journal: PostgresJournal, count: int) -> dict[str, float]:
    """Read and fold, and fold alone."""
    store = EventStore(journal, [Account], snapshots=SnapshotPolicy(every_events=None))
    fill(store, "account-long", count)
    load = rate(count, lambda: check(store, "account-long", count))
    kept, version = [], 0
    while page := journal.read_folded("account-long", after_version=version):
        kept.extend(page)
        version = page[-1].version
    data = [event.data for event in kept]
    return {"load": load, "fold": folds(Account, data), "fold_dataclasses": folds(PlainAccount, data)}


def folds(account: type, data: list[bytes]) -> float:
    """Decode and fold what was read already."""
    decider = as_decider(account)
    decode = EventCodec(decider.events).straight["Deposited", 1]
    state = None

    def act() -> None:
        nonlocal state
        state = fold(decider, map(decode, data))

    found = rate(len(data), act)
    if state is None or state.balance != len(data):
        raise SystemExit(f"the fold gave {state}")
    return found


def fill(store: EventStore, stream: str, count: int) -> None:
    """A long stream."""
    for begin in range(0, count, 5_000):
        store.append(stream, [Deposited(amount=1) for _ in range(min(5_000, count - begin))])


def million(store: EventStore, count: int) -> float:
    """Milliseconds to load a very long stream that has a snapshot, the worst of ten."""
    fill(store, "account-million", count)
    store.load("account-million")
    store.append("account-million", [Deposited(amount=1) for _ in range(500)])
    worst_ms = 0.0
    for _ in range(10):
        began_s = time.perf_counter()
        check(store, "account-million", count + 500)
        worst_ms = max(worst_ms, (time.perf_counter() - began_s) * 1000)
    return worst_ms


if __name__ == "__main__":
    main()
