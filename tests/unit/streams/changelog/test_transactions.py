"""Changes that wait until their transaction is whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from headrace.streams.changelog.transactions import AlignTransactions

SCHEMA = pa.schema(
    [
        ("name", pa.string()),
        ("_transaction", pa.string()),
        ("_end_count", pa.int64()),
        ("_role", pa.string()),
    ]
)
Change = tuple[str | None, str | None, int | None]
"""Its name and transaction; or the transaction that ends, and with how many changes."""

OTHER = "of another table"


def table(rows: Sequence[Change]) -> pa.Table:
    made = []
    for name, transaction, count in rows:
        role = "end" if count is not None else "other" if name == OTHER else "change"
        made.append({"name": name, "_transaction": transaction, "_end_count": count, "_role": role})
    return pa.Table.from_pylist(made, SCHEMA)


def names(stepped: Any, *rows: Change) -> list[str]:
    return [row["name"] for row in stepped.step(table(rows))]


def test_changes_wait_for_all_of_their_transaction_and_for_those_before_it(
    bucket: Callable[..., Any],
) -> None:
    stepped = bucket(AlignTransactions())
    assert names(stepped, ("snapshot", None, None)) == ["snapshot"]
    assert names(stepped, ("a1", "1", None), ("b1", "2", None), (None, "1", 2)) == []
    # The second is whole, and still waits for the first.
    assert names(stepped, (None, "2", 1), ("later", None, None)) == []
    assert names(stepped, ("a2", "1", None)) == ["a1", "a2", "b1", "later"]
    assert names(stepped, ("c1", "3", None)) == []
    assert names(stepped, (None, "3", 1)) == ["c1"]
    # What another table has of it counts, and is not given.
    assert names(stepped, ("x1", "x", None), (None, "x", 2)) == []
    assert names(stepped, (OTHER, "x", None)) == ["x1"]
    # One that has changed nothing that is read.
    assert names(stepped, (None, "4", 0), ("d1", "5", None), (None, "5", 1)) == ["d1"]


def test_a_transaction_that_never_gets_whole_does_not_hold_all_others_for_ever(
    bucket: Callable[..., Any],
) -> None:
    stepped = bucket(AlignTransactions(held_max=2))
    assert names(stepped, ("a", "1", None), ("b", "1", None), (None, "1", 9)) == []
    assert names(stepped, ("c", "1", None)) == ["a"]
    assert stepped.last.counts == {"unaligned": 1}


@pytest.mark.parametrize("seed", range(20))
def test_whole_transactions_come_in_order_however_topics_are_read(
    bucket: Callable[..., Any], seed: int
) -> None:
    random = Random(seed)
    topics: list[list[Change]] = [[], [], []]
    expected: list[list[str]] = []
    for number in range(12):
        changes = [f"{number}.{place}" for place in range(random.randrange(4))]
        for name in changes:
            topics[random.randrange(2)].append((name, str(number), None))
        topics[2].append((None, str(number), len(changes)))
        expected.append(changes)
    stepped, found, cuts = bucket(AlignTransactions()), [], []
    while any(topics):
        batch: list[Change] = []
        for topic in topics:
            count = random.randrange(4)
            batch += topic[:count]
            del topic[:count]
        found += names(stepped, *batch)
        cuts.append(len(found))
    assert sorted(found) == sorted(name for changes in expected for name in changes)
    assert [int(name.partition(".")[0]) for name in found] == sorted(
        int(name.partition(".")[0]) for name in found
    )
    # Nowhere is a part of a transaction seen.
    whole = {sum(len(changes) for changes in expected[:count]) for count in range(len(expected) + 1)}
    assert set(cuts) <= whole
