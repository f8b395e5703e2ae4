"""State that an older definition has written is read by a newer one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from headrace.errors import PipelineError
from headrace.streams.buckets.logic import Logic, Tables
from headrace.streams.keyed.deduplicate import Deduplicate
from headrace.streams.keyed.top import TopRows
from headrace.streams.time.policies import bounded
from headrace.streams.windows.exact import Count, Sum
from headrace.streams.windows.globals import GlobalWindows
from headrace.streams.windows.kinds import Session, sliding
from headrace.streams.windows.late import update
from headrace.streams.windows.quantiles import percentile
from headrace.streams.windows.rank import greatest_rows
from headrace.streams.windows.sessions import SessionWindows
from headrace.streams.windows.sketches import approximate_distinct, heavy_hitters
from headrace.streams.windows.sliding import SlidingWindows
from headrace.streams.windows.triggers import each

COUNT = (Count(name="count"),)
MORE = (
    *COUNT,
    Sum(name="total", column="amount"),
    percentile("amount", 0.5, name="median"),
    approximate_distinct("amount", name="distinct"),
    heavy_hitters("id", name="heavy"),
    greatest_rows(1, order_by="amount", columns=["amount"], name="best"),
)
POLICY = bounded("0 seconds")
LATE = update(within="1 hour", retract=True)
WINDOWS: dict[str, Any] = {
    "session": SessionWindows(
        by=("key",), time="at", kind=Session(gap_us=9_000_000), aggregates=COUNT, watermark=POLICY, late=LATE
    ),
    "sliding": SlidingWindows(
        by=("key",), time="at", kind=sliding("9 seconds"), aggregates=COUNT, watermark=POLICY, late=LATE
    ),
    "global": GlobalWindows(by=("key",), aggregates=COUNT, trigger=each(rows=2)),
}
LOGICS: dict[str, Logic] = {
    **WINDOWS,
    "deduplicate": Deduplicate(by=("key",), watermark=POLICY, time="at", ttl_us=9_000_000),
    "deduplicate for ever": Deduplicate(by=("key",), watermark=POLICY),
    "top": TopRows(by=("key",), n=2, order_by=("amount",), watermark=POLICY, item=("id",)),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_an_aggregate_that_is_added_begins_with_what_comes_then(kit: Any, name: str) -> None:
    before = WINDOWS[name]
    after = replace(before, aggregates=MORE)
    state = before.step({}, kit.arrivals([kit.row("a", 1, 5)])).state
    state = before.step(state, kit.arrivals([kit.row("b", 30, 5)])).state
    step = after.step(state, kit.arrivals([kit.row("a", 3, 7)]))
    told = [row for row in kit.plain(step.outputs["results"]) if not row.get("retracted")]
    (row,) = (row for row in told if row["key"] == "a")
    assert (row["count"], row["total"], row["median"], row["distinct"]) == (2, 7, 7.0, 1)
    assert row["best"] == [{"amount": 7}]
    assert step.outputs["results"].schema == after.output_schemas(kit.schema)["results"]


@pytest.mark.parametrize("name", WINDOWS)
def test_an_aggregate_that_is_taken_away_is_forgotten(kit: Any, name: str) -> None:
    after = WINDOWS[name]
    state = replace(after, aggregates=MORE).step({}, kit.arrivals([kit.row("a", 1, 5)])).state
    step = after.step(state, kit.arrivals([kit.row("a", 3, 7), kit.row("b", 60)]))
    assert step.outputs["results"].schema == after.output_schemas(kit.schema)["results"]
    assert [row["count"] for row in kit.plain(step.outputs["results"]) if row["key"] == "a"][-1] == 2


@pytest.mark.parametrize("name", LOGICS)
def test_whether_columns_can_be_null_may_change(kit: Any, name: str) -> None:
    logic = LOGICS[name]
    state: Tables = {}
    strict = pa.schema([field.with_nullable(False) for field in kit.schema])
    for schema in (strict, kit.schema, strict):
        arrivals = kit.arrivals([kit.row("a", 1, 5), kit.row("b", 30, 5)])
        arrivals = replace(arrivals, rows=arrivals.rows.cast(schema))
        step = logic.step(state, arrivals)
        assert step.outputs["results"].schema == logic.output_schemas(schema)["results"]
        state = step.state


def test_rows_may_get_a_column(kit: Any) -> None:
    board = LOGICS["top"]
    rows = kit.arrivals([kit.row("a", 1, 9)])
    state = board.step({}, replace(rows, rows=rows.rows.drop_columns("closes"))).state
    step = board.step(state, kit.arrivals([kit.row("a", 1, 5, id=1)]))
    assert step.state["rows"]["closes"].to_pylist() == [None, False]


@pytest.mark.parametrize("name", LOGICS)
def test_a_key_of_another_type_is_refused(kit: Any, name: str) -> None:
    arrivals = kit.arrivals([kit.row("1", 1, 5), kit.row("2", 30, 5)])
    state = LOGICS[name].step({}, arrivals).state
    numbers = arrivals.rows.set_column(0, "key", arrivals.rows["key"].cast(pa.int64()))
    with pytest.raises(PipelineError, match="'key' as string, which is int64 now"):
        LOGICS[name].step(state, replace(arrivals, rows=numbers))


@pytest.mark.parametrize("name", WINDOWS)
def test_other_keys_are_refused(kit: Any, name: str) -> None:
    state = WINDOWS[name].step({}, kit.arrivals([kit.row("a", 1)])).state
    with pytest.raises(PipelineError, match="kept by key, and are by key, closes now"):
        replace(WINDOWS[name], by=("key", "closes")).step(state, kit.arrivals([]))
