"""User functions over keyed state, called for each bucket."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from headrace.errors import PipelineError
from headrace.streams.buckets.logic import RESULTS, Arrivals, SourceProgress
from headrace.streams.keyed.fields import KEYS, Fields
from headrace.streams.keyed.vectorised import EventTime, Vectorised
from headrace.streams.time.policies import Bounded

ROWS = pa.schema({"k": pa.string(), "n": pa.int64(), "_kafka": pa.struct({"offset": pa.int64()})})


def logic(function: Callable[..., Any]) -> Vectorised:
    return Vectorised(
        fields=Fields(
            operator="adding", keys=pa.schema({"k": pa.string()}), kept=pa.schema({"total": pa.int64()})
        ),
        returns=pa.schema({"total": pa.int64()}),
        function=function,
        event_time="at",
        watermark=Bounded(delay_us=5),
    )


def arrivals(*rows: tuple[str, int], time_us: int = 100) -> Arrivals:
    table = pa.Table.from_pylist([{"k": k, "n": n} for k, n in rows], ROWS)
    progress = SourceProgress(
        source="t-0", row_count=1, event_time_us_max=time_us, record_time_us_max=time_us
    )
    return Arrivals(rows=table, progress=(progress,))


def total(rows: pa.Table, state: pa.Table, time: EventTime) -> tuple[pa.Table, pa.Table]:
    added = rows.rename_columns({"n": "total"})
    sums = pa.concat_tables([state, added]).group_by("k", use_threads=False).aggregate([("total", "sum")])
    sums = sums.rename_columns(["k", "total"])
    return sums, sums


def test_a_function_is_given_rows_and_state_and_what_it_returns_is_kept() -> None:
    adding = logic(total)
    first = adding.step({}, arrivals(("a", 1), ("b", 10), ("a", 2)))
    second = adding.step(first.state, arrivals(("b", 5)))

    assert second.outputs[RESULTS].to_pylist() == [{"k": "a", "total": 3}, {"k": "b", "total": 15}]
    assert second.gauges == {"watermark_us": 95}


def test_a_function_is_told_how_far_time_has_come() -> None:
    times: list[EventTime] = []

    def note(rows: pa.Table, state: pa.Table, time: EventTime) -> tuple[None, pa.Table]:
        times.append(time)
        return None, state

    first = logic(note).step({}, arrivals(time_us=100))
    second = logic(note).step(first.state, arrivals(time_us=200))

    assert (times[1].before_us, times[1].watermark_us, times[1].is_end) == (95, 195, False)
    assert second.outputs == {}
    assert second.state[KEYS] is first.state[KEYS]


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda *_: 5, r"it gave int; return \(results, state\), two tables"),
        (lambda *given: ([], given[1]), "its results are a list, no table"),
        (lambda *given: (given[0], given[1]), "its results have the columns k, n; declared are k, total"),
        (lambda *given: (None, given[0]), "its state have the columns k, n; declared are k, total"),
        (
            lambda *_: (None, pa.table({"k": ["a"], "total": ["many"]})),
            "its state don't fit: Failed to parse string: 'many'",
        ),
        (lambda *_: 1 / 0, r'test_vectorised.py:\d+: ZeroDivisionError: .* given "1 rows, the first of'),
    ],
)
def test_what_is_wrong_with_a_function_is_told_with_its_place(
    function: Callable[..., Any], told: str
) -> None:
    with pytest.raises(PipelineError, match=told):
        logic(function).step({}, arrivals(("a", 1)))
