"""Exact aggregates: as Spark's, and the same however a stream is cut."""

from __future__ import annotations

import math
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import PipelineError
from headrace.streams.windows.aggregate import Aggregate
from headrace.streams.windows.exact import Count, Max, Mean, Min, Sum

NAN = float("nan")


def answer(aggregate: Aggregate, values: list[Any], kind: pa.DataType) -> Any:
    rows = pa.table({"x": pa.array(values, kind)})
    starts = np.zeros(min(len(values), 1), np.int64)
    results = aggregate.finish(aggregate.gather(rows, starts))
    assert results.type == aggregate.result_type(rows.schema)
    return results.to_pylist()[0]


count_x, sum_x, mean_x = Count(name="n", column="x"), Sum(name="s", column="x"), Mean(name="m", column="x")
min_x, max_x = Min(name="least", column="x"), Max(name="greatest", column="x")


def test_count_counts_rows_and_count_of_a_column_its_values() -> None:
    assert answer(Count(name="n"), [1, None, 3], pa.int32()) == 3
    assert answer(count_x, [1, None, 3], pa.int32()) == 2
    assert answer(count_x, [None], pa.string()) == 0


def test_nulls_are_left_out_and_nothing_but_nulls_is_null() -> None:
    assert answer(sum_x, [1, None, 3], pa.int32()) == 4
    assert answer(mean_x, [1, None, 4], pa.int32()) == 2.5
    assert answer(min_x, [None, 3, 1], pa.int32()) == 1
    assert answer(max_x, [None, -3.5], pa.float64()) == -3.5
    for aggregate in (sum_x, mean_x, min_x, max_x):
        assert answer(aggregate, [None, None], pa.int32()) is None
        assert answer(aggregate, [None, None], pa.float64()) is None


def test_nan_makes_sums_nan_and_is_greater_than_all_other_numbers() -> None:
    assert math.isnan(answer(sum_x, [1.0, NAN, None], pa.float64()))
    assert math.isnan(answer(mean_x, [1.0, NAN], pa.float64()))
    assert math.isnan(answer(max_x, [math.inf, NAN, None], pa.float64()))
    assert answer(min_x, [NAN, 2.0, None], pa.float64()) == 2.0
    assert math.isnan(answer(min_x, [NAN, NAN], pa.float64()))
    assert math.isnan(answer(min_x, [NAN, None], pa.float32()))


def test_infinities_add_up_to_nan_without_a_warning() -> None:
    assert math.isnan(answer(sum_x, [math.inf, -math.inf], pa.float64()))


def test_sums_have_the_types_of_spark() -> None:
    schema = pa.schema(
        {"i": pa.int8(), "f": pa.float32(), "d": pa.decimal128(12, 2), "e": pa.decimal128(35, 1)}
    )
    types = [Sum(name="s", column=column).result_type(schema) for column in schema.names]
    assert types == [pa.int64(), pa.float64(), pa.decimal128(22, 2), pa.decimal128(38, 1)]
    assert answer(sum_x, [Decimal("0.10"), Decimal("0.20"), None], pa.decimal128(12, 2)) == Decimal("0.30")


def test_means_of_decimals_are_decimals_of_four_more_digits_rounded_half_up() -> None:
    schema = pa.schema({"x": pa.decimal128(12, 2)})
    assert mean_x.result_type(schema) == pa.decimal128(16, 6)
    assert mean_x.result_type(pa.schema({"x": pa.decimal128(36, 2)})) == pa.decimal128(38, 6)
    assert answer(mean_x, [Decimal("0.10"), None, Decimal("0.40")], pa.decimal128(12, 2)) == Decimal("0.25")
    two_thirds = [Decimal("0.01"), Decimal("0.01"), Decimal("0.00")]
    assert answer(mean_x, two_thirds, pa.decimal128(12, 2)) == Decimal("0.006667")
    assert answer(mean_x, [-value for value in two_thirds], pa.decimal128(12, 2)) == Decimal("-0.006667")
    assert answer(mean_x, [None], pa.decimal128(12, 2)) is None
    with pytest.raises(PipelineError, match="does not fit decimal128"):
        answer(mean_x, [Decimal("9" * 38)], pa.decimal128(38, 0))


def test_sums_of_integers_are_exact_up_to_64_bits_and_never_wrong() -> None:
    assert answer(sum_x, [2**62, 2**62 - 1, None, 0], pa.int64()) == 2**63 - 1
    assert answer(sum_x, [2**63 - 1, 1, -1], pa.int64()) == 2**63 - 1
    with pytest.raises(
        PipelineError, match="an aggregate of column 'x' does not fit bigint; cast the column"
    ):
        answer(sum_x, [2**63 - 1, 1], pa.int64())


def test_a_sum_of_decimals_that_does_not_fit_is_an_error() -> None:
    most = Decimal("9" * 38)
    assert answer(sum_x, [most, Decimal("-" + "9" * 38), most], pa.decimal128(38, 0)) == most
    with pytest.raises(PipelineError, match="does not fit decimal128"):
        answer(sum_x, [most] * 5, pa.decimal128(38, 0))


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.string(), ["b", "", "ä", "a"]),
        (pa.binary(), [b"\x80", b"\x00", b""]),
        (pa.bool_(), [True, False]),
        (pa.date32(), [3, -4]),
        (pa.timestamp("us", "UTC"), [3, -4]),
        (pa.decimal128(4, 2), [Decimal("1.10"), Decimal("-0.01")]),
        (pa.int64(), [2**63 - 1, -(2**63)]),
    ],
)
def test_whatever_has_an_order_has_a_least_and_a_greatest(kind: pa.DataType, values: list[Any]) -> None:
    in_arrow = pa.array(values, kind).to_pylist()
    assert answer(min_x, [*values, None], kind) == min(in_arrow)
    assert answer(max_x, [None, *values], kind) == max(in_arrow)


@pytest.mark.parametrize(
    ("aggregate", "kind", "message"),
    [
        (sum_x, pa.string(), "Sum is of numbers, but column 'x' is string; cast it first"),
        (mean_x, pa.bool_(), "Mean is of numbers"),
        (min_x, pa.list_(pa.int8()), "Min is of values that have an order"),
        (Sum(name="s", column="y"), pa.int64(), "of column 'y', but the columns are x"),
        (Count(name="n", column="y"), pa.int64(), "of column 'y', but the columns are x"),
    ],
)
def test_an_aggregate_of_the_wrong_column_is_refused(
    aggregate: Aggregate, kind: pa.DataType, message: str
) -> None:
    with pytest.raises(PipelineError, match=message):
        aggregate.result_type(pa.schema({"x": kind}))


def test_no_rows_give_no_results() -> None:
    rows, none = pa.table({"x": pa.array([], pa.int64())}), np.zeros(0, np.int64)
    for aggregate in (Count(name="n"), count_x, sum_x, mean_x, min_x, max_x):
        partials = aggregate.gather(rows, none)
        assert tuple(partial.type for partial in partials) == aggregate.partial_types(rows.schema)
        assert len(aggregate.finish(aggregate.merge(partials, none))) == 0


# Halves add up exactly in floating point, so that the order of adding does not show.
numbers = {
    pa.int64(): st.none() | st.integers(-(10**6), 10**6),
    pa.int8(): st.none() | st.integers(-128, 127),
    pa.float64(): st.none() | st.just(NAN) | st.integers(-1_000, 1_000).map(lambda half: half / 2),
    pa.decimal128(9, 2): st.none() | st.decimals(-1_000, 1_000, places=2, allow_nan=False),
}


@st.composite
def cut_groups(draw: st.DrawFn) -> tuple[pa.DataType, list[list[list[Any]]]]:
    kind = draw(st.sampled_from(list(numbers)))
    piece = st.lists(numbers[kind], min_size=1, max_size=6)
    return kind, draw(st.lists(st.lists(piece, min_size=1, max_size=4), min_size=1, max_size=4))


def naive(name: str, values: list[Any]) -> Any:
    there = [value for value in values if value is not None]
    if name == "n":
        return len(there)
    if not there:
        return None
    if name == "s":
        return sum(there[1:], there[0])
    if name == "m":
        mean = sum(there[1:], there[0]) / len(there)
        return mean.quantize(Decimal("1e-6"), ROUND_HALF_UP) if isinstance(mean, Decimal) else mean
    return min(there, key=nan_last) if name == "least" else max(there, key=nan_last)


def nan_last(value: Any) -> tuple[bool, Any]:
    return math.isnan(value), value


def is_same(result: Any, wanted: Any) -> bool:
    if isinstance(result, float) and isinstance(wanted, float):
        return math.isclose(result, wanted, rel_tol=1e-12) or (math.isnan(result) and math.isnan(wanted))
    return bool(result == wanted)


def starts_of(pieces: list[Any]) -> Any:
    return np.cumsum([0, *(len(piece) for piece in pieces[:-1])])


@settings(max_examples=100)
@given(cut_groups())
def test_merged_partials_give_what_all_rows_at_once_give(
    case: tuple[pa.DataType, list[list[list[Any]]]],
) -> None:
    kind, groups = case
    pieces = [piece for group in groups for piece in group]
    rows = pa.table({"x": pa.array([value for piece in pieces for value in piece], kind)})
    for aggregate in (count_x, sum_x, mean_x, min_x, max_x):
        gathered = aggregate.gather(rows, starts_of(pieces))
        results = aggregate.finish(aggregate.merge(gathered, starts_of(groups)))
        expected = [naive(aggregate.name, [value for piece in group for value in piece]) for group in groups]
        assert results.type == aggregate.result_type(rows.schema)
        for result, wanted in zip(results.to_pylist(), expected, strict=True):
            assert is_same(result, wanted)
