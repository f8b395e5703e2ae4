"""The first and the last value, in the order of the log, against a naive reference."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import PipelineError
from headrace.streams.windows.aggregate import Partials
from headrace.streams.windows.arrival import ByArrival, first, last
from headrace.streams.windows.runs import joined

ONE = np.zeros(1, dtype=np.int64)
STAMP = pa.timestamp("us", "UTC")
PLACE = pa.struct({"topic": pa.string(), "partition": pa.int32(), "offset": pa.int64(), "timestamp": STAMP})
ROWS = pa.schema({"value": pa.string(), "_kafka": PLACE})

Row = tuple[str | None, int, int, int]
"""A value, when it was written, the partition and the offset."""
rows_of_a_window = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c"]) | st.none(),
        st.integers(-3, 3),
        st.integers(0, 2),
        st.integers(0, 100),
    ),
    min_size=1,
    max_size=20,
    unique_by=lambda row: row[2:],
)


def table(rows: list[Row]) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                "value": value,
                "_kafka": {"topic": "t", "partition": partition, "offset": offset, "timestamp": time},
            }
            for value, time, partition, offset in rows
        ],
        ROWS,
    )


def gathered(aggregate: ByArrival, rows: pa.Table, cuts: list[int]) -> list[Partials]:
    bounds = [0, *sorted(cuts), rows.num_rows]
    return [
        aggregate.gather(rows.slice(start, end - start), ONE)
        for start, end in pairwise(bounds)
        if end > start
    ]


def result(aggregate: ByArrival, parts: list[Partials]) -> Any:
    merged = aggregate.merge(joined(parts), ONE)
    assert tuple(column.type for column in merged) == aggregate.partial_types(ROWS)
    return aggregate.finish(merged).to_pylist()[0]


@given(
    rows=rows_of_a_window,
    cuts=st.lists(st.integers(0, 20), max_size=4),
    shuffle=st.randoms(use_true_random=False),
    is_last=st.booleans(),
    ignore_nulls=st.booleans(),
)
def test_the_order_of_the_log_decides_however_it_is_cut_and_in_whatever_order_pieces_are_merged(
    rows: list[Row], cuts: list[int], shuffle: Any, is_last: bool, ignore_nulls: bool
) -> None:
    aggregate = (last if is_last else first)("value", ignore_nulls=ignore_nulls)
    ordered = sorted((row for row in rows if row[0] is not None or not ignore_nulls), key=lambda row: row[1:])
    expected = (ordered[-1] if is_last else ordered[0])[0] if ordered else None
    parts = gathered(aggregate, table(rows), [cut for cut in cuts if cut < len(rows)])
    shuffle.shuffle(parts)
    assert result(aggregate, parts) == expected


@given(values=st.lists(st.integers(0, 9), min_size=1), cuts=st.lists(st.integers(0, 20), max_size=4))
def test_rows_that_don_t_tell_their_place_come_in_the_order_in_which_they_are_given(
    values: list[int], cuts: list[int]
) -> None:
    rows = pa.table({"value": values})
    kept = [cut for cut in cuts if cut < len(values)]
    for aggregate, expected in ((first("value"), values[0]), (last("value"), values[-1])):
        merged = aggregate.merge(joined(gathered(aggregate, rows, kept)), ONE)
        assert aggregate.finish(merged).to_pylist() == [expected]


def test_runs_of_rows_have_a_result_each() -> None:
    rows, starts = table([("a", 2, 0, 0), ("b", 1, 0, 1), (None, 0, 0, 2)]), np.array([0, 2])
    assert first("value").finish(first("value").gather(rows, starts)).to_pylist() == ["b", None]
    assert last("value").finish(last("value").gather(rows, starts)).to_pylist() == ["a", None]


def test_no_rows_have_no_partials() -> None:
    nothing = np.zeros(0, dtype=np.int64)
    partials = first("value").gather(table([]), nothing)
    assert first("value").finish(first("value").merge(partials, nothing)).to_pylist() == []


def test_state_from_before_there_was_the_aggregate_counts_as_no_rows() -> None:
    nothing = tuple(pa.nulls(1, kind) for kind in last("value").partial_types(ROWS))
    assert result(last("value"), [*gathered(last("value"), table([("a", 0, 0, 0)]), []), nothing]) == "a"


def test_a_column_that_is_not_there_is_refused() -> None:
    with pytest.raises(PipelineError, match="of column 'status'"):
        first("status").result_type(ROWS)
