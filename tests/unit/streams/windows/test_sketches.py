"""Percentiles, distinct counts, heavy hitters and the greatest rows, against exact answers."""

from __future__ import annotations

import math
from collections import Counter
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import PipelineError
from headrace.streams.windows.aggregate import Aggregate, Partials
from headrace.streams.windows.count_min import estimated_counts
from headrace.streams.windows.quantiles import LEVEL_SIZE_MAX, percentile, percentiles
from headrace.streams.windows.rank import greatest_rows
from headrace.streams.windows.runs import joined
from headrace.streams.windows.sketches import approximate_distinct, heavy_hitters

EXAMPLES = 25


def aggregated(aggregate: Aggregate, rows: pa.Table, cuts: list[int] | None = None) -> Any:
    """The result of all rows as one window, which came in pieces that were cut at these rows."""
    bounds = [0, *sorted(cuts or []), rows.num_rows]
    parts: list[Partials] = [
        aggregate.gather(rows.slice(start, end - start), np.zeros(1, dtype=np.int64))
        for start, end in pairwise(bounds)
        if end > start
    ]
    partials = aggregate.merge(joined(parts), np.zeros(1, dtype=np.int64))
    assert tuple(column.type for column in partials) == aggregate.partial_types(rows.schema)
    result = aggregate.finish(partials)
    assert result.type == aggregate.result_type(rows.schema)
    return result.to_pylist()[0]


def table(values: list[Any], kind: pa.DataType | None = None) -> pa.Table:
    return pa.table({"value": pa.array(values, kind)})


def cuts_of(data: st.DataObject, count: int) -> list[int]:
    cuts: list[int] = data.draw(st.lists(st.integers(0, count), max_size=4))
    return cuts


def test_runs_of_rows_have_a_partial_each() -> None:
    rows = table([1, 5, None, 2, 2, None])
    starts = np.array([0, 2, 3, 5])
    middle, distinct = percentile("value", 0.5), approximate_distinct("value")
    hitters, best = heavy_hitters("value", 1), greatest_rows(1, order_by="value", columns=["value"])
    assert middle.finish(middle.gather(rows, starts)).to_pylist() == [1.0, None, 2.0, None]
    assert distinct.finish(distinct.gather(rows, starts)).to_pylist() == [2, 0, 1, 0]
    found = hitters.finish(hitters.gather(rows, starts)).to_pylist()
    assert [[(hit["value"], hit["count"]) for hit in hits] for hits in found] == [[(1, 1)], [], [(2, 2)], []]
    assert best.finish(best.gather(rows, starts)).to_pylist() == [
        [{"value": 5}],
        [{"value": None}],
        [{"value": 2}],
        [{"value": None}],
    ]


def test_the_empty_string_is_a_value_like_others() -> None:
    distinct = approximate_distinct("value")
    assert aggregated(distinct, table(["", "a", None, ""]), cuts=[1]) == 2
    assert aggregated(distinct, table(["", ""])) == 1
    assert aggregated(distinct, table([None], pa.string())) == 0


@pytest.mark.parametrize(
    "aggregate",
    [
        percentile("value", 0.5),
        percentiles("value", [0.1, 0.9]),
        approximate_distinct("value"),
        heavy_hitters("value"),
        estimated_counts("value", [1, 2]),
        greatest_rows(3, order_by="value", columns=["value"]),
    ],
    ids=lambda aggregate: type(aggregate).__name__,
)
def test_no_rows_have_no_partials(aggregate: Aggregate) -> None:
    rows, starts = table([], pa.int64()), np.zeros(0, dtype=np.int64)
    partials = aggregate.merge(aggregate.gather(rows, starts), starts)
    assert aggregate.finish(partials).to_pylist() == []


@pytest.mark.parametrize(
    ("aggregate", "expected"),
    [
        (percentile("value", 0.5), 3.0),
        (approximate_distinct("value"), 1),
        (heavy_hitters("value"), [{"value": 3, "count": 1, "error": 0}]),
        (estimated_counts("value", [3]), [{"value": 3, "count": 1, "error": 0}]),
    ],
    ids=["percentile", "distinct", "heavy hitters", "counts"],
)
def test_state_from_before_there_was_the_aggregate_counts_as_no_values(aggregate: Any, expected: Any) -> None:
    rows, one = table([3]), np.zeros(1, dtype=np.int64)
    nothing = tuple(pa.nulls(1, kind) for kind in aggregate.partial_types(rows.schema))
    merged = aggregate.merge(joined([nothing, aggregate.gather(rows, one)]), one)
    assert aggregate.finish(merged).to_pylist() == [expected]
    assert aggregate.finish(aggregate.merge(nothing, one)).to_pylist() in (
        [None],
        [0],
        [[]],
        [[{"value": 3, "count": 0, "error": 0}]],
    )


numbers = st.floats(allow_subnormal=False) | st.none()


@settings(max_examples=EXAMPLES)
@given(values=st.lists(numbers, min_size=1, max_size=60), p=st.floats(0, 1), data=st.data())
def test_percentiles_of_few_values_are_exact(
    values: list[float | None], p: float, data: st.DataObject
) -> None:
    # NaN is greater than all other numbers.
    known = sorted((v for v in values if v is not None), key=lambda v: (math.isnan(v), v))
    expected = known[max(1, math.ceil(p * len(known))) - 1] if known else None
    found = aggregated(percentile("value", p), table(values, pa.float64()), cuts_of(data, len(values)))
    assert found == expected or (math.isnan(found) and expected is not None and math.isnan(expected))


@settings(max_examples=EXAMPLES)
@given(seed=st.integers(0, 2**32), data=st.data())
def test_percentiles_of_many_values_are_within_half_a_percent_of_their_rank(
    seed: int, data: st.DataObject
) -> None:
    random = np.random.default_rng(seed)
    count = data.draw(st.integers(LEVEL_SIZE_MAX + 1, 20_000))
    make: Any = data.draw(st.sampled_from([random.normal, random.exponential, random.random]))
    values = make(size=count)
    ranks = [0.001, 0.05, 0.5, 0.9, 0.99, 0.999]
    found = aggregated(percentiles("value", ranks), table(values.tolist()), cuts_of(data, count))
    ordered = np.sort(values)
    for rank, value in zip(ranks, found, strict=True):
        low = np.searchsorted(ordered, value, "left") / count
        high = np.searchsorted(ordered, value, "right") / count
        assert low - 0.005 <= rank <= high + 0.005
        assert value in ordered


def test_infinite_values_and_nan_keep_their_place_among_many() -> None:
    values = [-math.inf] * 1_000 + [1.0] * 1_000 + [math.inf] * 1_000 + [math.nan] * 1_000
    ranks = [0, 0.24, 0.26, 0.49, 0.51, 0.74, 0.76, 1]
    found = aggregated(percentiles("value", ranks), table(values), [500, 2_500])
    assert str(found) == "[-inf, -inf, 1.0, 1.0, inf, inf, nan, nan]"


def test_the_same_rows_give_the_same_sketch_each_time() -> None:
    rows = table(np.random.default_rng(1).normal(size=5_000).tolist())
    starts = np.array([0, 1_000])
    for aggregate in (percentile("value", 0.5), approximate_distinct("value")):
        first, second = aggregate.gather(rows, starts), aggregate.gather(rows, starts)
        assert first == second
        one = np.zeros(1, dtype=np.int64)
        assert aggregate.merge(first, one) == aggregate.merge(second, one)


@settings(max_examples=EXAMPLES)
@given(seed=st.integers(0, 2**32), data=st.data())
def test_distinct_counts_are_within_five_relative_errors_however_the_stream_is_cut(
    seed: int, data: st.DataObject
) -> None:
    count = data.draw(st.sampled_from([1, 5, 100, 3_000]))
    values = np.random.default_rng(seed).integers(0, 2 * count, size=count).tolist()
    exact = len(set(values))
    aggregate = approximate_distinct("value", relative_error=0.02)
    found = aggregated(aggregate, table(values), cuts_of(data, count))
    assert abs(found - exact) <= 0.1 * exact
    assert found == aggregated(aggregate, table(values), cuts_of(data, count))


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["a", "b", "a", None], pa.string()),
        ([1.5, 2.5, 1.5, None], pa.float64()),
        ([True, False, True, None], pa.bool_()),
        ([1, 2, 1, None], pa.timestamp("us", "UTC")),
        ([1, 2, 1, None], pa.date32()),
        ([Decimal("1.10"), Decimal("2.20"), Decimal("1.10"), None], pa.decimal128(5, 2)),
    ],
    ids=str,
)
def test_values_of_any_plain_type_are_told_apart(values: list[Any], kind: pa.DataType) -> None:
    assert aggregated(approximate_distinct("value"), table(values, kind), [1]) == 2


@settings(max_examples=EXAMPLES)
@given(seed=st.integers(0, 2**32), data=st.data())
def test_heavy_hitters_are_there_and_their_counts_within_their_errors(seed: int, data: st.DataObject) -> None:
    count = data.draw(st.sampled_from([1, 50, 3_000]))
    values = np.random.default_rng(seed).zipf(1.3, size=count).clip(max=10**6).tolist()
    exact = Counter(values)
    relative_error = 0.05
    found = aggregated(
        heavy_hitters("value", 1_000, relative_error=relative_error), table(values), cuts_of(data, count)
    )
    for hit in found:
        assert hit["count"] - hit["error"] <= exact[hit["value"]] <= hit["count"]
    assert [hit["count"] for hit in found] == sorted((hit["count"] for hit in found), reverse=True)
    frequent = {value for value, times in exact.items() if times > relative_error * count}
    assert frequent <= {hit["value"] for hit in found}


def test_few_values_are_counted_exactly_the_most_frequent_first() -> None:
    rows = table(["b", "a", "c", "a", "ü", None, "b", "a"])
    assert aggregated(heavy_hitters("value", 3), rows, [2, 5]) == [
        {"value": "a", "count": 3, "error": 0},
        {"value": "b", "count": 2, "error": 0},
        {"value": "c", "count": 1, "error": 0},
    ]


amounts = st.floats(allow_infinity=False, width=16) | st.none()


@settings(max_examples=EXAMPLES)
@given(
    values=st.lists(amounts, min_size=1, max_size=30),
    n=st.integers(1, 5),
    data=st.data(),
    least=st.booleans(),
    ties=st.booleans(),
)
def test_the_greatest_rows_are_those_of_a_sort(
    values: list[float | None], n: int, data: st.DataObject, least: bool, ties: bool
) -> None:
    rows = pa.table({"amount": pa.array(values, pa.float64()), "id": pa.array(range(len(values)))})

    def place(i: int) -> tuple[bool, bool, float, int]:
        value = values[i]
        if value is None:
            return (True, False, 0.0, i)
        is_nan = math.isnan(value)
        return (False, is_nan is least, 0.0 if is_nan else value if least else -value, i)

    in_order = sorted(range(len(values)), key=place)
    expected = in_order[:n]
    if ties:
        expected += [i for i in in_order[n:] if place(i)[:-1] == place(expected[-1])[:-1]]
    aggregate = greatest_rows(n, order_by="amount", columns=["id", "amount"], smallest=least, ties=ties)
    assert [row["id"] for row in aggregated(aggregate, rows, cuts_of(data, len(values)))] == expected


def test_rows_are_ordered_by_several_columns_of_any_plain_type() -> None:
    rows = pa.table({"word": ["b", "a", None, "b"], "amount": [1, 9, 9, 2]})
    aggregate = greatest_rows(4, order_by=["word", "amount"], columns=["word", "amount"])
    assert [tuple(row.values()) for row in aggregated(aggregate, rows)] == [
        ("b", 2),
        ("b", 1),
        ("a", 9),
        (None, 9),
    ]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: percentile("value", 1.5), "0 to 1"),
        (lambda: percentiles("value", []), "0 to 1"),
        (lambda: approximate_distinct("value", relative_error=0.00001), "relative error"),
        (lambda: heavy_hitters("value", 0), "at least one"),
        (lambda: heavy_hitters("value", relative_error=0.0), "relative error"),
        (lambda: greatest_rows(0, order_by="value", columns=["value"]), "at least one"),
        (lambda: greatest_rows(1, order_by=[], columns=["value"]), "order by"),
        (lambda: percentile("other", 0.5).result_type(table([1]).schema), "other"),
        (lambda: percentile("value", 0.5).result_type(table(["a"]).schema), "numbers"),
        (lambda: approximate_distinct("value").result_type(table([[1]]).schema), "cast"),
        (lambda: heavy_hitters("value").result_type(table([1.5]).schema), "cast"),
        (
            lambda: greatest_rows(1, order_by="value", columns=["value"]).result_type(table([[1]]).schema),
            "order by",
        ),
    ],
)
def test_what_can_not_be_is_refused_with_a_reason(make: Any, message: str) -> None:
    with pytest.raises(PipelineError, match=message):
        make()


words = st.lists(
    st.sampled_from(["a", "b", "7", "007", "ä", "", "\N{GRINNING FACE}"]) | st.none(), max_size=60
)


@settings(max_examples=EXAMPLES)
@given(values=words.filter(bool), data=st.data())
def test_given_values_are_counted_and_the_cut_does_not_show(
    values: list[str | None], data: st.DataObject
) -> None:
    asked = ["ä", "a", "not there", "", "7", "007"]
    aggregate = estimated_counts("value", asked)
    rows = table(values, pa.string())
    found = aggregated(aggregate, rows, cuts_of(data, len(values)))
    assert found == aggregated(aggregate, rows)
    # Of so few values none collide: the library's hashes are the same each time.
    assert [(hit["value"], hit["count"]) for hit in found] == [(each, values.count(each)) for each in asked]


@settings(max_examples=EXAMPLES)
@given(seed=st.integers(0, 2**32), data=st.data())
def test_counts_of_given_values_are_never_too_low_and_seldom_by_more_than_the_error_too_high(
    seed: int, data: st.DataObject
) -> None:
    values = np.random.default_rng(seed).zipf(1.3, 3_000) % 5_000
    exact = Counter(values.tolist())
    asked = list(range(200))
    aggregate = estimated_counts("value", asked, relative_error=0.01, confidence=0.99)
    found = aggregated(aggregate, table(values.tolist(), pa.int64()), cuts_of(data, len(values)))
    assert [hit["value"] for hit in found] == asked
    assert all(hit["count"] >= exact[hit["value"]] for hit in found)
    too_high = [hit for hit in found if hit["count"] - exact[hit["value"]] > len(values) * 0.01]
    # One in a hundred is expected at most; of 200, ten would be by no chance that a test has to expect.
    assert len(too_high) < 10
    assert all(hit["error"] <= len(values) * 0.01 for hit in found)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"values": []}, "give a list of values"),
        ({"values": "abc"}, "give a list of values"),
        ({"values": ["a", "a"]}, "each of them once"),
        ({"values": ["a"], "relative_error": 0}, "relative_error=0"),
        ({"values": ["a"], "relative_error": 1}, "relative_error=1"),
        ({"values": ["a"], "confidence": 1}, "confidence=1"),
        ({"values": ["a"], "confidence": math.nan}, "confidence=nan"),
    ],
)
def test_counts_that_can_t_be_had_are_refused(asked: Any, told: str) -> None:
    with pytest.raises(PipelineError, match=told):
        estimated_counts("value", **asked)


@pytest.mark.parametrize(
    ("kind", "told"), [(pa.int64(), "give values of that type"), (pa.float64(), "cast the column")]
)
def test_counted_values_must_be_of_the_column_s_type(kind: pa.DataType, told: str) -> None:
    with pytest.raises(PipelineError, match=told):
        estimated_counts("value", ["a"]).partial_types(pa.schema({"value": kind}))
