"""Aggregates of a table that changes, against aggregates of the table as it is."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable
from decimal import ROUND_HALF_UP, Decimal
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import PipelineError
from headrace.streams.changelog import slots
from headrace.streams.changelog.distinct import CountDistinct
from headrace.streams.changelog.grouped import GroupedTable
from headrace.streams.windows.arrival import first, last
from headrace.streams.windows.exact import Count, Max, Mean, Min, Sum
from headrace.streams.windows.rank import greatest_rows

SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("whole", pa.int32()),
        ("fraction", pa.float64()),
        ("exact", pa.decimal128(9, 2)),
        ("_weight", pa.int32()),
        ("_changed_at", pa.timestamp("us", "UTC")),
        ("_hash", pa.int64()),
    ]
)
AGGREGATES = (
    Count(name="rows"),
    Count(name="wholes", column="whole"),
    Sum(name="sum", column="whole"),
    Sum(name="float_sum", column="fraction"),
    Sum(name="exact_sum", column="exact"),
    Mean(name="mean", column="whole"),
    Mean(name="float_mean", column="fraction"),
    Mean(name="exact_mean", column="exact"),
    Min(name="least", column="fraction"),
    Max(name="greatest", column="whole"),
    CountDistinct(name="different", column="fraction"),
    greatest_rows(2, order_by="whole", columns=["whole", "fraction"]),
)
LOGIC = GroupedTable(by=("key",), aggregates=AGGREGATES)
Row = tuple[str | None, int | None, float | None, Decimal | None]


def change(row: Row, weight: int, at: int = 0) -> dict[str, Any]:
    key, whole, fraction, exact = row
    return {
        "key": key,
        "whole": whole,
        "fraction": fraction,
        "exact": exact,
        "_weight": weight,
        "_changed_at": at,
        "_hash": sum((key or "?").encode()) << 16,
    }


def table(changes: Iterable[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(list(changes), SCHEMA)


def naive(rows: Iterable[Row]) -> Counter[tuple[tuple[str, str], ...]]:
    """The aggregates of the rows that are there, in plain Python."""
    groups: dict[str | None, list[Row]] = {}
    for each in rows:
        groups.setdefault(each[0], []).append(each)
    return Counter(tuple(sorted((n, repr(v)) for n, v in _group(k, g).items())) for k, g in groups.items())


def _group(key: str | None, rows: list[Row]) -> dict[str, Any]:
    wholes = [row[1] for row in rows if row[1] is not None]
    fractions = [row[2] for row in rows if row[2] is not None]
    exacts = [row[3] for row in rows if row[3] is not None]
    numbers = [each for each in fractions if not math.isnan(each)]
    float_sum = math.nan if len(numbers) < len(fractions) else _sum(fractions)
    best = sorted(rows, key=lambda row: (-math.inf if row[1] is None else row[1], *_rest(row)))
    best.sort(key=lambda row: math.inf if row[1] is None else -row[1])
    return {
        "key": key,
        "rows": len(rows),
        "wholes": len(wholes),
        "sum": sum(wholes) if wholes else None,
        "float_sum": float_sum if fractions else None,
        "exact_sum": sum(exacts) if exacts else None,
        "mean": sum(wholes) / len(wholes) if wholes else None,
        "float_mean": float_sum / len(fractions) if fractions else None,
        "exact_mean": (sum(exacts, Decimal(0)) / len(exacts)).quantize(Decimal("0.000001"), ROUND_HALF_UP)
        if exacts
        else None,
        "least": (min(numbers) if numbers else math.nan) if fractions else None,
        "greatest": max(wholes) if wholes else None,
        "different": len({repr(each) for each in fractions}),
        "top": [{"whole": row[1], "fraction": row[2]} for row in best[:2]],
    }


def _sum(values: list[float]) -> float:
    has = [each for each in values if math.isinf(each)]
    return sum(has) if has else math.fsum(values)


def _rest(row: Row) -> tuple[float, ...]:
    """NULL comes before all values, and NaN behind them."""
    fraction = row[2]
    return (0.0, 0.0) if fraction is None else (2.0, 0.0) if math.isnan(fraction) else (1.0, fraction)


ROWS = st.tuples(
    st.sampled_from([None, "", "a", "b", "ü"]),
    st.sampled_from([None, -5, 0, 3, 2**31 - 1]),
    st.sampled_from([None, 0.5, -0.25, 1024.0, math.nan, math.inf]),
    st.sampled_from([None, Decimal("1.25"), Decimal("-0.75"), Decimal("9999999.99")]),
)


@settings(deadline=None, max_examples=60)
@given(
    adds=st.lists(st.lists(ROWS, max_size=12), max_size=5),
    picks=st.lists(st.integers(0, 1000), max_size=40),
    crashes=st.booleans(),
    slot_rows=st.sampled_from([2, 2048]),
)
def test_the_sum_of_changes_is_the_aggregate_of_the_table_after_each_batch(
    bucket: Callable[..., Any],
    total: Callable[[], Any],
    adds: list[list[Row]],
    picks: list[int],
    crashes: bool,
    slot_rows: int,
) -> None:
    with patch.object(slots, "SLOT_ROWS", slot_rows):
        stepped, summed = bucket(LOGIC), total()
        there: list[Row] = []
        for added in adds:
            batch = [change(row, 1) for row in added]
            there += added
            for _ in range(min(len(there), len(picks) // max(1, len(adds)))):
                gone = there.pop(picks[0] % len(there))
                picks = [*picks[1:], picks[0]]
                # What goes may come first in the batch: it is the sum that counts.
                batch.insert(0, change(gone, -1))
            summed.add(stepped.step(table(batch), crashes=crashes))
            assert summed.rows == naive(there)
        summed.add(stepped.step(table([change(row, -1) for row in there])))
        assert summed.rows == Counter()
        assert set(stepped.state) <= {"slots"}


def test_taking_away_leaves_no_trace_of_what_was_added(bucket: Callable[..., Any]) -> None:
    stepped = bucket(GroupedTable(by=("key",), aggregates=(Sum(name="sum", column="fraction"),)))
    stepped.step(table([change(("a", 0, 0.1, None), 1), change(("a", 1, 1e300, None), 1)]))
    stepped.step(table([change(("a", 2, math.nan, None), 1), change(("a", 1, 1e300, None), -1)]))
    changes = stepped.step(table([change(("a", 2, math.nan, None), -1)]))
    assert [(each["sum"], each["_weight"]) for each in changes if each["_weight"] > 0] == [(0.1, 1)]


def test_a_group_whose_result_stays_the_same_gives_no_change(bucket: Callable[..., Any]) -> None:
    stepped = bucket(GroupedTable(by=("key",), aggregates=(Max(name="greatest", column="whole"),)))
    stepped.step(table([change(("a", 5, None, None), 1)]))
    assert stepped.step(table([change(("a", 3, None, None), 1)])) == []
    # A column that is not asked about has changed.
    update = [change(("a", 5, 1.0, None), -1), change(("a", 5, 2.0, None), 1)]
    assert stepped.step(table(update)) == []
    assert stepped.written == set()


def test_without_aggregates_it_gives_the_different_keys(bucket: Callable[..., Any]) -> None:
    stepped = bucket(GroupedTable(by=("key",), aggregates=()))
    rows = [("a", 1, None, None), ("a", 2, None, None), ("b", 1, None, None)]
    assert [each["key"] for each in stepped.step(table([change(row, 1) for row in rows]))] == ["a", "b"]
    assert stepped.step(table([change(rows[0], -1)])) == []
    (gone,) = stepped.step(table([change(rows[1], -1, 7_000_000)]))
    assert (gone["key"], gone["_weight"], gone["_changed_at"].second) == ("a", -1, 7)


def test_a_row_that_goes_before_it_comes_is_counted_and_waited_for(bucket: Callable[..., Any]) -> None:
    stepped = bucket(GroupedTable(by=("key",), aggregates=(Count(name="rows"),)))
    assert stepped.step(table([change(("a", 1, None, None), -1)])) == []
    assert stepped.last is not None
    assert stepped.last.counts == {"unmatched": 1}
    assert stepped.step(table([change(("a", 1, None, None), 1)])) == []


@pytest.mark.parametrize(
    "aggregates",
    [
        (Sum(name="n", column="whole"),),
        (Max(name="n", column="whole"),),
        (Sum(name="n", column="whole"), Min(name="least", column="whole")),
    ],
)
def test_a_group_without_rows_is_kept_while_it_is_owed_one(
    bucket: Callable[..., Any], aggregates: tuple[Any, ...]
) -> None:
    stepped = bucket(GroupedTable(by=("key",), aggregates=aggregates))
    stepped.step(table([change(("a", 5, None, None), 1)]))
    stepped.step(table([change(("a", 3, None, None), -1)]))
    assert stepped.last.counts == {"unmatched": 1}
    (row,) = stepped.step(table([change(("a", 3, None, None), 1)]))
    assert (row["n"], row["_weight"]) == (5, 1)
    assert stepped.last.counts == {}
    stepped.step(table([change(("a", 5, None, None), -1)]))
    assert set(stepped.state) == {"slots"}


def test_a_value_that_goes_without_having_come_is_counted_though_there_are_rows(
    bucket: Callable[..., Any],
) -> None:
    stepped = bucket(GroupedTable(by=("key",), aggregates=(Max(name="greatest", column="whole"),)))
    stepped.step(table([change(("a", 5, None, None), 1), change(("a", 7, None, None), 1)]))
    stepped.step(table([change(("a", 3, None, None), -1)]))
    assert stepped.last.counts == {"unmatched": 1}


def test_the_first_and_last_to_come_are_refused_because_a_table_has_no_such_order() -> None:
    for aggregate, smallest in ((first("whole"), ", smallest=True"), (last("whole"), "")):
        told = f'hr.greatest_rows(1, order_by="...", columns=["whole"]{smallest})'
        with pytest.raises(PipelineError, match=re.escape(told)):
            GroupedTable(by=("key",), aggregates=(Count(name="rows"), aggregate))


def test_a_sum_that_does_not_fit_is_refused(bucket: Callable[..., Any]) -> None:
    rows = pa.table({"key": ["a", "a"], "n": [2**62, 2**62], "_weight": [1, 1], "_hash": [0, 0]})
    stepped = bucket(GroupedTable(by=("key",), aggregates=(Sum(name="sum", column="n"),)))
    with pytest.raises(PipelineError, match="does not fit bigint"):
        stepped.step(rows)
