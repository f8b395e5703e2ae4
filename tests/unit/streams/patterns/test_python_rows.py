"""Rows as functions are given them: those that Python has no word for, too."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.streams.patterns.python_rows import PythonRows, covered, rows_of, values_of
from headrace.streams.patterns.so_far import MatchSoFar

BEYOND_DAYS = 3_000_000
BEYOND_US = 253_402_300_800_000_000
DAY = pa.array([0, BEYOND_DAYS, None], pa.int32()).cast(pa.date32())
TIME = pa.array([0, BEYOND_US], pa.int64()).cast(pa.timestamp("us", "UTC"))


def test_a_time_beyond_the_years_of_python_is_a_number_and_others_stay_what_they_are() -> None:
    assert values_of(pa.chunked_array([DAY])) == [date(1970, 1, 1), BEYOND_DAYS, None]
    first, beyond = values_of(pa.chunked_array([TIME]))
    assert (first.year, beyond) == (1970, BEYOND_US)


def test_such_times_are_found_in_values_that_have_several() -> None:
    struct = pa.StructArray.from_arrays([DAY, pa.array([1, 2, 3])], names=["day", "n"])
    assert values_of(pa.chunked_array([struct]))[1] == {"day": BEYOND_DAYS, "n": 2}
    listed = pa.ListArray.from_arrays(pa.array([0, 3], pa.int32()), DAY)
    assert values_of(pa.chunked_array([listed])) == [[date(1970, 1, 1), BEYOND_DAYS, None]]
    mapped = pa.MapArray.from_arrays(pa.array([0, 2], pa.int32()), pa.array(["a", "b"]), DAY.slice(0, 2))
    assert values_of(pa.chunked_array([mapped])) == [[("a", date(1970, 1, 1)), ("b", BEYOND_DAYS)]]


def test_a_function_is_given_a_row_with_a_time_that_is_beyond(
    start: Callable[..., Any], row: Callable[..., Any]
) -> None:
    def is_never(row: Any, match: MatchSoFar) -> bool:
        return match.previous is not None and row["due"] == match.previous["due"] == BEYOND_DAYS

    run = start("a b", functions={"b": is_never}, is_by_arrival=True)
    arrivals = run.arrivals([row("x", 1, "a", 1), row("x", 2, "b", 2)])
    due = pa.array([BEYOND_DAYS] * 2, pa.int32()).cast(pa.date32())
    made = run.search.logic().step({}, replace(arrivals, rows=arrivals.rows.append_column("due", due)))
    assert made.counts == {"matches": 1}


def test_rows_are_made_of_the_places_that_are_asked_for() -> None:
    table = pa.table({"n": [10, 11, 12, 13, 14]})
    assert covered(np.array([0, 3]), np.array([2, 1]), 5).tolist() == [0, 1, 3]
    rows = PythonRows(table, np.array([4, 3, 2, 1, 0]), np.array([0, 1, 3]))
    assert [rows[place]["n"] for place in (3, 0, 1)] == [11, 14, 13]
    assert rows_of(table.slice(0, 0)) == []
