"""Joins of tables that change, against joins of the tables as they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, get_args
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.streams.changelog import slots
from headrace.streams.changelog.join import How, JoinedTables

SCHEMA = pa.schema(
    [
        ("key", pa.int64()),
        ("_is_right", pa.bool_()),
        ("order", pa.string()),
        ("product", pa.string()),
        ("_weight", pa.int32()),
        ("_changed_at", pa.timestamp("us", "UTC")),
        ("_hash", pa.int64()),
    ]
)
Row = tuple[bool, int | None, str | None]
"""Whether it is of the right table, what it is joined on, and its other column."""


def change(row: Row, weight: int, at: int = 0) -> dict[str, Any]:
    is_right, key, name = row
    return {
        "key": key,
        "_is_right": is_right,
        "order": None if is_right else name,
        "product": name if is_right else None,
        "_weight": weight,
        "_changed_at": at * 1_000_000,
        "_hash": (key or 0) << 16,
    }


def table(changes: Iterable[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(list(changes), SCHEMA)


def join(how: How = "inner") -> JoinedTables:
    return JoinedTables(by=("key",), left=("order",), right=("product",), how=how)


def naive(there: Sequence[Row], how: How) -> Counter[tuple[tuple[str, str], ...]]:
    lefts = [row for row in there if not row[0]]
    rights = [row for row in there if row[0]]
    made: list[tuple[int | None, str | None, str | None]] = [
        (left[1], left[2], right[2])
        for left in lefts
        for right in rights
        if left[1] is not None and left[1] == right[1]
    ]
    if how in {"left", "full"}:
        keys = {right[1] for right in rights if right[1] is not None}
        made += [(left[1], left[2], None) for left in lefts if left[1] not in keys]
    if how == "full":
        keys = {left[1] for left in lefts if left[1] is not None}
        made += [(right[1], None, right[2]) for right in rights if right[1] not in keys]
    names = ("key", "order", "product")
    return Counter(
        tuple(sorted((name, repr(value)) for name, value in zip(names, row, strict=True))) for row in made
    )


ROWS = st.tuples(st.booleans(), st.sampled_from([None, 1, 2, 3, 4]), st.sampled_from([None, "", "a", "ü"]))


@settings(deadline=None, max_examples=100)
@given(
    how=st.sampled_from(get_args(How)),
    adds=st.lists(st.lists(ROWS, max_size=10), max_size=6),
    picks=st.lists(st.integers(0, 1000), max_size=30),
    crashes=st.booleans(),
    slot_rows=st.sampled_from([2, 2048]),
)
def test_the_sum_of_changes_is_the_join_of_the_tables_after_each_batch(
    bucket: Callable[..., Any],
    total: Callable[[], Any],
    how: How,
    adds: list[list[Row]],
    picks: list[int],
    crashes: bool,
    slot_rows: int,
) -> None:
    with patch.object(slots, "SLOT_ROWS", slot_rows):
        stepped, summed = bucket(join(how)), total()
        there: list[Row] = []
        for added in adds:
            batch = [change(row, 1) for row in added]
            there += added
            for _ in range(min(len(there), len(picks) // max(1, len(adds)))):
                batch.insert(0, change(there.pop(picks[0] % len(there)), -1))
                picks = [*picks[1:], picks[0]]
            summed.add(stepped.step(table(batch), crashes=crashes))
            assert summed.rows == naive(there, how)


def told(changes: Sequence[dict[str, Any]]) -> list[tuple[Any, ...]]:
    rows = [(one["order"], one["product"], one["_weight"], one["_changed_at"].second) for one in changes]
    return sorted(rows, key=repr)


def test_a_change_gives_the_results_that_it_is_part_of_at_its_time(bucket: Callable[..., Any]) -> None:
    stepped = bucket(join())
    stepped.step(
        table([change((False, 1, "o1"), 1), change((False, 1, "o2"), 1), change((False, 2, "o3"), 1)])
    )
    stepped.step(table([change((True, 1, "old"), 1), change((True, 2, "other"), 1)]))
    changes = stepped.step(table([change((True, 1, "old"), -1, 5), change((True, 1, "new"), 1, 5)]))
    assert told(changes) == [
        ("o1", "new", 1, 5),
        ("o1", "old", -1, 5),
        ("o2", "new", 1, 5),
        ("o2", "old", -1, 5),
    ]
    # What the left table holds has not changed, and is not written again.
    assert {name.partition("-")[0] for name in stepped.written} == {"right"}
    assert told(stepped.step(table([change((False, 2, "o3"), -1, 6)]))) == [("o3", "other", -1, 6)]


def test_changes_of_both_sides_in_one_batch_give_no_result_that_never_was(bucket: Callable[..., Any]) -> None:
    stepped = bucket(join())
    stepped.step(table([change((False, 1, "order"), 1), change((True, 1, "old"), 1)]))
    changes = stepped.step(
        table(
            [
                change((False, 1, "order"), -1, 3),
                change((True, 1, "old"), -1, 4),
                change((True, 1, "new"), 1, 4),
            ]
        )
    )
    assert told(changes) == [("order", "old", -1, 4)]


def test_a_partner_that_comes_takes_the_place_of_nulls_and_leaves_them_when_it_goes(
    bucket: Callable[..., Any],
) -> None:
    stepped = bucket(join("left"))
    assert told(stepped.step(table([change((False, 1, "o"), 1, 1)]))) == [("o", None, 1, 1)]
    assert told(stepped.step(table([change((True, 1, "p"), 1, 2)]))) == [("o", "p", 1, 2), ("o", None, -1, 2)]
    assert told(stepped.step(table([change((True, 1, "p"), -1, 3)]))) == [
        ("o", "p", -1, 3),
        ("o", None, 1, 3),
    ]


@pytest.mark.parametrize("is_right", [False, True])
def test_a_row_that_goes_before_it_comes_is_counted_and_waited_for(
    bucket: Callable[..., Any], is_right: bool
) -> None:
    stepped = bucket(join())
    stepped.step(table([change((is_right, 1, "x"), -1)]))
    assert stepped.last.counts == {"unmatched": 1}
    stepped.step(table([change((is_right, 1, "y"), 1)]))
    assert stepped.last.counts == {}
    stepped.step(table([change((is_right, 1, "x"), 1), change((is_right, 1, "y"), -1)]))
    assert stepped.last.counts == {}
    assert set(stepped.state) == {"slots"}


def test_what_can_have_no_partner_is_not_kept(bucket: Callable[..., Any]) -> None:
    stepped = bucket(join("full"))
    rows = [(False, None, "o"), (True, None, "p")]
    assert told(stepped.step(table([change(row, 1) for row in rows]))) == [
        ("o", None, 1, 0),
        (None, "p", 1, 0),
    ]
    assert stepped.state == {}
    assert told(stepped.step(table([change(row, -1) for row in rows]))) == [
        ("o", None, -1, 0),
        (None, "p", -1, 0),
    ]
