"""Snapshots save time and change nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.events import Decider, EventStore, MemoryJournal, SnapshotPolicy, as_decider, decider
from headrace.events.codec import EventCodec
from headrace.events.records import FoldedEvent
from headrace.events.snapshots import StateCodec, fingerprint
from headrace.testing.accounts import Account, Deposit, Deposited, State, Withdrawn

ACCOUNT = "account-1"
STEP = 1


class Counting(MemoryJournal):
    """Counts the events that folds have read."""

    read = 0

    def read_folded(self, stream: str, **chosen: Any) -> list[FoldedEvent]:
        page = super().read_folded(stream, **chosen)
        self.read += len(page)
        return page


def store_over(
    journal: MemoryJournal, every_events: int | None = 10, of: Decider | type = Account
) -> EventStore:
    """A store with snapshots."""
    return EventStore(journal, [of], snapshots=SnapshotPolicy(every_events=every_events))


def test_a_long_stream_is_folded_from_its_last_snapshot() -> None:
    journal = Counting()
    store = store_over(journal)
    store.append(ACCOUNT, [Deposited(amount=1) for _ in range(25)])

    assert store.load(ACCOUNT).state.balance == 25
    store.append(ACCOUNT, [Deposited(amount=1)])
    journal.read = 0

    loaded = store.load(ACCOUNT)
    assert (loaded.state.balance, loaded.version, journal.read) == (26, 26, 1)
    journal.read = 0
    assert store.as_of(ACCOUNT, version=25).state.balance == 25
    assert store.as_of(ACCOUNT, position=25).state.balance == 25
    assert journal.read == 0
    assert store.as_of(ACCOUNT, version=24).state.balance == 24


def test_a_snapshot_by_cost_is_made_when_folding_took_long() -> None:
    policy = SnapshotPolicy(every_events=None, every_ms=5)

    assert policy.is_due(3, 5.0)
    assert not policy.is_due(3, 4.9)
    assert not policy.is_due(0, 100.0)
    assert not SnapshotPolicy(every_events=None).is_on


@pytest.mark.parametrize("damage", ["state", "checksum", "fingerprint"])
def test_a_snapshot_is_not_trusted_over_events(damage: str) -> None:
    journal = MemoryJournal()
    store = store_over(journal)
    store.append(ACCOUNT, [Deposited(amount=1) for _ in range(10)])
    store.load(ACCOUNT)
    snapshot, _ = journal.snapshot(ACCOUNT)
    assert snapshot is not None
    other = StateCodec(as_decider(Account), store.codec).snapshot(ACCOUNT, 10, State(balance=999))
    assert other is not None
    lies = {"state": other.state, "checksum": b"", "fingerprint": "of other code"}

    journal.save_snapshot(replace(snapshot, **{damage: lies[damage]}), forgotten_count=0)  # type: ignore[arg-type]

    assert store.load(ACCOUNT).state.balance == 10
    assert journal.snapshot(ACCOUNT)[0] == snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """What came to a sum."""

    sum: int = 0


def total(evolve: Callable[[Total, Deposited], Total], version: int = 1) -> Decider:
    """A decider with a given evolve."""
    body = {"initial": Total(), "decide": lambda state, command: [], "evolve": evolve, "events": (Deposited,)}
    return decider("account", version=version)(type("Sum", (), {**body, "states": (Total,)}))


def plain(state: Total, event: Deposited) -> Total:
    return replace(state, sum=state.sum + event.amount)


def doubled(state: Total, event: Deposited) -> Total:
    return replace(state, sum=state.sum + 2 * event.amount)


def by_step(state: Total, event: Deposited) -> Total:
    return replace(state, sum=state.sum + STEP * event.amount)


def by_helper(state: Total, event: Deposited) -> Total:
    return helper(state, event)


def helper(state: Total, event: Deposited) -> Total:
    return replace(state, sum=state.sum + event.amount)


def test_snapshots_are_made_anew_when_the_code_changes() -> None:
    journal = MemoryJournal()
    store_over(journal, of=total(plain)).append(ACCOUNT, [Deposited(amount=1) for _ in range(10)])

    assert store_over(journal, of=total(plain)).load(ACCOUNT).state.sum == 10
    assert store_over(journal, of=total(doubled)).load(ACCOUNT).state.sum == 20
    assert store_over(journal, of=total(plain)).load(ACCOUNT).state.sum == 10


def test_a_fingerprint_is_that_of_all_that_evolve_reaches(monkeypatch: pytest.MonkeyPatch) -> None:
    codec = EventCodec([Deposited])

    def of(evolve: Callable[[Total, Deposited], Total], version: int = 1) -> str:
        return fingerprint(total(evolve, version), codec)

    before = {each: of(each) for each in (plain, by_step, by_helper)}
    assert len({*before.values(), of(doubled), of(plain, version=2)}) == 5
    assert of(plain) == before[plain]

    monkeypatch.setattr(sys.modules[__name__], "STEP", 2)
    monkeypatch.setattr(sys.modules[__name__], "helper", doubled)
    assert of(plain) == before[plain]
    assert of(by_step) != before[by_step]
    assert of(by_helper) != before[by_helper]


def test_a_fingerprint_is_the_same_in_every_process() -> None:
    told = (
        "from headrace.testing.accounts import Account\n"
        "from headrace.events.codec import EventCodec\n"
        "from headrace.events.snapshots import fingerprint\n"
        "print(fingerprint(Account, EventCodec(Account.events)))"
    )
    ran = [
        subprocess.run(
            [sys.executable, "-c", told],
            env={"PYTHONPATH": ":".join(sys.path), "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]

    account = as_decider(Account)
    assert ran[0] == ran[1] == fingerprint(account, EventCodec(account.events)) + "\n"


class Odd:
    """A state that can't be written."""


def test_a_state_that_can_not_be_written_is_folded_each_time() -> None:
    body = {"initial": Odd(), "decide": lambda state, command: [], "evolve": lambda state, event: state}
    odd = decider("account")(type("Odd", (), {**body, "events": (Deposited,)}))
    journal = MemoryJournal()
    store = store_over(journal, of=odd)
    store.append(ACCOUNT, [Deposited(amount=1) for _ in range(10)])

    assert store.load(ACCOUNT).version == 10
    assert journal.snapshot(ACCOUNT) == (None, 0)


def test_a_failed_load_keeps_no_snapshot_of_the_past() -> None:
    journal = MemoryJournal()
    store = store_over(journal)
    store.append(ACCOUNT, [Deposited(amount=1) for _ in range(20)])

    store.as_of(ACCOUNT, version=15)

    assert journal.snapshot(ACCOUNT) == (None, 0)


@given(st.lists(st.integers(-5, 5), max_size=60), st.integers(1, 7))
def test_snapshots_change_nothing_at_any_version(amounts: list[int], every: int) -> None:
    journal = MemoryJournal()
    kept, plain_store = store_over(journal, every), store_over(journal, None)
    balance = 0
    for version, amount in enumerate(amounts, 1):
        event = Deposited(amount=amount) if amount >= 0 else Withdrawn(amount=-amount)
        kept.append(ACCOUNT, [event])
        balance += amount
        assert kept.load(ACCOUNT) == plain_store.load(ACCOUNT)
        assert kept.load(ACCOUNT).state.balance == balance
        assert kept.as_of(ACCOUNT, version=version // 2) == plain_store.as_of(ACCOUNT, version=version // 2)


def test_commands_are_decided_on_snapshots_too() -> None:
    store = store_over(MemoryJournal(), 3)
    for number in range(1, 11):
        assert store.execute(ACCOUNT, Deposit(amount=1)).version == number
