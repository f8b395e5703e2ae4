"""What a function reaches is told: a change anywhere in it is seen, and nothing else changes the text."""

from __future__ import annotations

import subprocess
import sys
import types
from types import SimpleNamespace

import pytest

from headrace.events import EventStore, MemoryJournal, SnapshotPolicy
from headrace.events.reached_code import ReachedCode

HEAD = """
from __future__ import annotations
import enum, functools, re
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple
import msgspec
from headrace import events
import reached_rules

"""
DECIDER = """
@dataclass(frozen=True)
class Added:
    n: int
{state}
@events.decider("acc")
class Acc:
    initial = S()
    def decide(state: S, command: object): return []
    def evolve(state: S, event: Added) -> S:
        return S(state.total + {added})
"""
STATE = "@dataclass(frozen=True)\nclass S:\n    total: int = 0"
ORDINARY = {
    "int": ("R = %d", "event.n * R"),
    "dict": ("RATES = {'a': %d}", "event.n * RATES['a']"),
    "nested": ("RATES = {'a': [(1, %d)]}", "event.n * RATES['a'][0][1]"),
    "decimal": ("RATE = Decimal(%d)", "int(event.n * RATE)"),
    "set": ("FREE = {%d}", "(1 if 1 in FREE else 2)"),
    "default": ("def fee(n, rate=%d): return n * rate", "fee(event.n)"),
    "keyword default": ("def fee(n, *, rate=%d): return n * rate", "fee(event.n)"),
    "helper class": ("class Fee:\n    @staticmethod\n    def of(n): return n * %d", "Fee.of(event.n)"),
    "class constant": ("class Fee:\n    rate = %d", "event.n * Fee.rate"),
    "instance": ("@dataclass(frozen=True)\nclass P:\n    r: int\nPOLICY = P(%d)", "event.n * POLICY.r"),
    "plain object": ("class P:\n    pass\nP1 = P()\nP1.r = %d", "event.n * P1.r"),
    "method of an object": ("class P:\n    def r(self): return %d\nP1 = P()", "event.n * P1.r()"),
    "field default": ("@dataclass(slots=True)\nclass P:\n    r: int = %d", "event.n * P().r"),
    "struct default": ("class P(msgspec.Struct):\n    r: int = %d", "event.n * P().r"),
    "enum": ("class K(enum.IntEnum):\n    R = %d", "event.n * int(K.R)"),
    "named tuple": (
        "class T(NamedTuple):\n    a: int\n    def f(self): return %d\nT1 = T(1)",
        "event.n * T1.f()",
    ),
    "subclass of int": ("class I(int):\n    pass\nR = I(%d)", "event.n * R"),
    "partial": ("def times(a, b): return a * b\nf = functools.partial(times, %d)", "f(event.n)"),
    "cached": ("@functools.cache\ndef fee(n): return n * %d", "fee(event.n)"),
    "pattern": ("P = re.compile('1{%d}')", "(1 if P.fullmatch('1') else 2)"),
    "module": ("reached_rules.fee = lambda n: n * %d", "reached_rules.fee(event.n)"),
    "constant of a module": ("reached_rules.rate = {1: %d}", "event.n * reached_rules.rate[1]"),
}
"""What stands before the decider, with a factor in it, and what evolve adds."""


@pytest.fixture
def _modules(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("reached_rules", "reached_user"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))


def load(before: str, added: str, state: str = STATE) -> SimpleNamespace:
    """What a user's module defines."""
    module = sys.modules["reached_user"] = types.ModuleType("reached_user")
    text = HEAD + before + DECIDER.format(state=state, added=added)
    exec(compile(text, "reached_user.py", "exec"), vars(module))  # noqa: S102 - the code of this test
    return SimpleNamespace(**vars(module))


def totals(journal: MemoryJournal, user: SimpleNamespace) -> tuple[int, int]:
    """What a load with snapshots says, and what the events say."""
    kept = EventStore(journal, [user.Acc], snapshots=SnapshotPolicy(every_events=5))
    truth = EventStore(journal, [user.Acc], snapshots=SnapshotPolicy(every_events=None))
    if journal.head() == 0:
        kept.append("acc-1", [user.Added(1)] * 10)
    return kept.load("acc-1").state.total, truth.load("acc-1").state.total


@pytest.mark.usefixtures("_modules")
@pytest.mark.parametrize("kind", ORDINARY)
def test_a_snapshot_of_code_that_has_changed_is_not_used(kind: str) -> None:
    before, added = ORDINARY[kind]
    journal = MemoryJournal()
    assert totals(journal, load(before % 1, added)) == (10, 10)
    first, _ = journal.snapshot("acc-1")
    assert first is not None
    same = EventStore(journal, [load(before % 1, added).Acc])
    assert same._loader._states["acc"].fingerprint == first.fingerprint

    assert totals(journal, load(before % 2, added)) == (20, 20)


METHODS = {
    "inherited": (
        "class Base:\n    def by(self, n): return n * %d\n",
        "@dataclass(frozen=True)\nclass S(Base):\n    total: int = 0\n",
        "state.by(event.n)",
    ),
    "of a field": (
        "@dataclass(frozen=True)\nclass Limit:\n    top: int = 1\n    def by(self, n): return n * %d\n",
        "@dataclass(frozen=True)\nclass S:\n    total: int = 0\n    limit: Limit = Limit()\n",
        "state.limit.by(event.n)",
    ),
}


@pytest.mark.usefixtures("_modules")
@pytest.mark.parametrize("kind", METHODS)
def test_methods_of_states_are_seen(kind: str) -> None:
    before, state, added = METHODS[kind]
    journal = MemoryJournal()
    assert totals(journal, load(before % 1, added, state)) == (10, 10)
    assert journal.snapshot("acc-1")[0] is not None
    assert totals(journal, load(before % 2, added, state)) == (20, 20)


def told(value: object) -> str:
    reached = ReachedCode()
    reached.add(value)
    return reached.hexdigest()


def test_what_is_in_itself_has_an_end() -> None:
    ring: list[object] = [1]
    ring.append({"ring": ring})
    deep: list[object] = []
    for _ in range(10_000):
        deep = [deep]

    assert told(ring) == told(ring)
    assert told(deep) == told(deep)


TOLD = """
from dataclasses import dataclass
from typing import Annotated
import logging, threading
from headrace.events.reached_code import ReachedCode
LOG, LOCK, NAMES = logging.getLogger("a"), threading.Lock(), {"a", "b", "c", "d"}
def check(value): return value
@dataclass(slots=True)
class Row:
    a: Annotated[int, check] = 1
def evolve(state, event): return (LOG, LOCK, NAMES, Row, state in {"x", "y", "z"})
reached = ReachedCode()
reached.add(evolve)
print(reached.hexdigest())
"""


def test_addresses_and_the_order_of_sets_are_not_told() -> None:
    ran = {
        subprocess.run(
            [sys.executable, "-c", TOLD],
            env={"PYTHONPATH": ":".join(sys.path), "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }

    assert len(ran) == 1
