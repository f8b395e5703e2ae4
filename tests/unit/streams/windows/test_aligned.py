"""Tumbling, hopping and cumulative windows, rule by rule. Times are seconds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from headrace.errors import PipelineError
from headrace.streams.buckets.logic import LATE, RESULTS, Arrivals, SourceProgress, Step, Tables
from headrace.streams.time.policies import bounded
from headrace.streams.windows.aligned import KEYS, OPEN, PANES, AlignedWindows
from headrace.streams.windows.exact import Count, Sum
from headrace.streams.windows.kinds import AlignedKind, cumulative, hopping, tumbling
from headrace.streams.windows.late import LatePolicy, drop, side_output, update
from headrace.streams.windows.triggers import Trigger, each, early, on_time

S = 1_000_000
SCHEMA = pa.schema({"card": pa.string(), "at": pa.timestamp("us", "UTC"), "amount": pa.int64()})

Event = tuple[str | None, float | None, int | None]


def windows(
    kind: AlignedKind,
    late: LatePolicy = drop,
    trigger: Trigger | None = None,
    *,
    delay: str = "0 seconds",
    by: tuple[str, ...] = ("card",),
) -> AlignedWindows:
    return AlignedWindows(
        by=by,
        time="at",
        kind=kind,
        aggregates=(Count(name="count"), Sum(name="total", column="amount")),
        watermark=bounded(delay),
        late=late,
        trigger=trigger or on_time(),
    )


def batch(*events: Event, now: float = 0, is_end: bool = False) -> Arrivals:
    """The rows of one partition, the last of which is written at `now`."""
    times = [None if at is None else int(at * S) for _, at, _ in events]
    columns = [[card for card, _, _ in events], times, [amount for _, _, amount in events]]
    arrays = [pa.array(values, kind) for values, kind in zip(columns, SCHEMA.types, strict=True)]
    progress = SourceProgress(
        source="payments-0",
        row_count=len(events),
        event_time_us_max=max((at for at in times if at is not None), default=None),
        record_time_us_max=int(now * S),
    )
    rows = pa.Table.from_arrays(arrays, schema=SCHEMA)
    return Arrivals(rows=rows, progress=(progress,) if events else (), is_end=is_end)


def steps(logic: AlignedWindows, *batches: Arrivals) -> list[Step]:
    state: Tables = {}
    made = []
    for arrivals in batches:
        made.append(logic.step(state, arrivals))
        state = made[-1].state
    return made


def shown(step: Step) -> list[str]:
    """Results as lines: key, window, count, total, firing; a minus before what is taken back."""
    return [line(row) for row in step.outputs[RESULTS].to_pylist()]


def line(row: dict[str, Any]) -> str:
    start, end = (int(row["window"][side].timestamp()) for side in ("start", "end"))
    sign = "-" if row.get("retracted") else ""
    return f"{sign}{row.get('card')} [{start}, {end}) {row['count']} {row['total']} {row['firing']}"


def test_a_window_fires_when_the_watermark_passes_its_end() -> None:
    first, second, third = steps(
        windows(tumbling("10 seconds"), delay="5 seconds"),
        batch(("ann", 1, 10), ("ann", 9, 5), ("bob", 3, 7)),
        batch(("ann", 14.9, 1)),
        batch(("ann", 15, 2)),
    )
    assert shown(first) == []
    assert shown(second) == []
    assert shown(third) == ["ann [0, 10) 2 15 on_time", "bob [0, 10) 1 7 on_time"]


def test_a_window_fires_in_the_same_batch_that_completes_it() -> None:
    (step,) = steps(windows(tumbling("10 seconds")), batch(("ann", 1, 10), ("bob", 10, 5)))
    assert shown(step) == ["ann [0, 10) 1 10 on_time"]


def test_a_window_fires_once() -> None:
    *_, last = steps(
        windows(tumbling("10 seconds")), batch(("ann", 1, 10), ("bob", 10, 5)), batch(("bob", 19, 5))
    )
    assert shown(last) == []


def test_an_offset_shifts_windows() -> None:
    logic = windows(tumbling("10 seconds", offset="-3 seconds"))
    (step,) = steps(logic, batch(("ann", 6, 1), ("ann", 7, 1), ("bob", 17, 1)))
    assert shown(step) == ["ann [-3, 7) 1 1 on_time", "ann [7, 17) 1 1 on_time"]


def test_an_event_before_1970_is_in_a_window_before_1970() -> None:
    (step,) = steps(windows(tumbling("10 seconds")), batch(("ann", -1, 1), ("ann", 0, 1)))
    assert shown(step) == ["ann [-10, 0) 1 1 on_time"]


def test_an_event_is_in_all_hopping_windows_that_cover_it() -> None:
    logic = windows(hopping("10 seconds", every="4 seconds"))
    (step,) = steps(logic, batch(("ann", 9, 1), ("ann", 13, 2), ("bob", 100, 0)))
    assert shown(step) == [
        "ann [0, 10) 1 1 on_time",
        "ann [4, 14) 2 3 on_time",
        "ann [8, 18) 2 3 on_time",
        "ann [12, 22) 1 2 on_time",
    ]


def test_cumulative_windows_grow_and_begin_anew() -> None:
    logic = windows(cumulative("30 seconds", step="10 seconds"))
    (step,) = steps(logic, batch(("ann", 5, 1), ("ann", 15, 2), ("ann", 35, 4), ("bob", 100, 0)))
    assert shown(step) == [
        "ann [0, 10) 1 1 on_time",
        "ann [0, 20) 2 3 on_time",
        "ann [0, 30) 2 3 on_time",
        "ann [30, 40) 1 4 on_time",
        "ann [30, 50) 1 4 on_time",
        "ann [30, 60) 1 4 on_time",
    ]


def test_a_null_key_is_a_key_like_others() -> None:
    (step,) = steps(
        windows(tumbling("10 seconds")), batch((None, 1, 1), ("", 1, 2), (None, 2, 4), ("z", 10, 0))
    )
    assert shown(step) == ["None [0, 10) 2 5 on_time", " [0, 10) 1 2 on_time"]


def test_keys_are_equal_as_in_spark() -> None:
    arrivals = batch(*((None, 1, 1) for _ in range(6)), is_end=True)
    keys = pa.array([0.0, float("nan"), -0.0, None, -float("nan"), None])
    step = windows(tumbling("10 seconds")).step(
        {}, replace(arrivals, rows=arrivals.rows.set_column(0, "card", keys))
    )
    assert [row["count"] for row in step.outputs[RESULTS].to_pylist()] == [2, 2, 2]


def test_without_a_key_all_rows_are_together() -> None:
    logic = windows(tumbling("10 seconds"), by=())
    *_, step = steps(logic, batch(("ann", 1, 1)), batch(("bob", 2, 2)), batch(("bob", 10, 0)))
    assert shown(step) == ["None [0, 10) 2 3 on_time"]


def test_late_rows_are_dropped_and_counted() -> None:
    *_, step = steps(
        windows(tumbling("10 seconds")), batch(("ann", 10, 1)), batch(("ann", 9, 1), ("ann", 10, 1))
    )
    assert step.counts == {"late": 1, "dropped": 1}
    assert LATE not in step.outputs


def test_late_rows_go_to_a_side_output_and_say_why() -> None:
    logic = windows(tumbling("10 seconds"), side_output("payments.late"))
    *_, step = steps(logic, batch(("ann", 25, 1)), batch(("ann", 9, 7), (None, None, 8)))
    late, without_time = step.outputs[LATE].to_pylist()
    assert (late["card"], late["amount"], late["late_by_ms"], late["reason"]) == ("ann", 7, 15_000, "late")
    assert [late["window"][side].timestamp() for side in ("start", "end")] == [0, 10]
    assert late["watermark"].timestamp() == 25
    assert (without_time["amount"], without_time["window"], without_time["late_by_ms"]) == (8, None, None)
    assert without_time["reason"] == "no event time"
    assert step.counts == {"late": 1, "no_event_time": 1}
    assert step.outputs[LATE].schema == logic.output_schemas(SCHEMA)[LATE]


def test_a_row_is_judged_by_the_watermark_before_its_batch() -> None:
    (step,) = steps(windows(tumbling("10 seconds")), batch(("ann", 100, 1), ("ann", 1, 2)))
    assert shown(step) == ["ann [0, 10) 1 2 on_time"]
    assert step.counts == {}


def test_a_row_that_is_late_for_some_windows_counts_in_the_others() -> None:
    logic = windows(hopping("10 seconds", every="5 seconds"), side_output("late"))
    _, second, third = steps(logic, batch(("ann", 11, 1)), batch(("ann", 9, 2)), batch(("ann", 15, 0)))
    assert LATE not in second.outputs
    assert shown(second) == []
    assert shown(third) == ["ann [5, 15) 2 3 on_time"]


def test_a_window_fires_again_within_its_allowed_lateness() -> None:
    logic = windows(tumbling("10 seconds"), update(within="20 seconds"))
    _, second, third = steps(
        logic,
        batch(("ann", 1, 10), ("bob", 12, 0)),
        batch(("ann", 5, 1), ("ann", 6, 1), ("bob", 29, 0)),
        batch(("ann", 7, 4), ("bob", 30, 0)),
    )
    assert shown(second)[0] == "ann [0, 10) 3 12 late"
    assert shown(third)[0] == "ann [0, 10) 4 16 late"


def test_after_its_allowed_lateness_a_window_is_forgotten() -> None:
    logic = windows(tumbling("10 seconds"), update(within="20 seconds", then=side_output("late")))
    *_, last = steps(logic, batch(("ann", 1, 10), ("bob", 30, 0)), batch(("ann", 5, 1)))
    assert shown(last) == []
    assert last.outputs[LATE].column("late_by_ms").to_pylist() == [20_000]


def test_a_window_that_only_late_rows_make_fires_late() -> None:
    logic = windows(tumbling("10 seconds"), update(within="20 seconds", retract=True))
    *_, last = steps(logic, batch(("ann", 12, 0)), batch(("ann", 5, 1)))
    assert shown(last) == ["ann [0, 10) 1 1 late"]


def test_a_change_is_the_old_row_taken_back_and_the_new_one() -> None:
    logic = windows(tumbling("10 seconds"), update(within="20 seconds", retract=True))
    first, second, third = steps(
        logic, batch(("ann", 1, 10), ("bob", 12, 0)), batch(("ann", 5, 1)), batch(("ann", 6, 2))
    )
    assert shown(first) == ["ann [0, 10) 1 10 on_time"]
    assert shown(second) == ["-ann [0, 10) 1 10 on_time", "ann [0, 10) 2 11 late"]
    assert shown(third) == ["-ann [0, 10) 2 11 late", "ann [0, 10) 3 13 late"]


def test_a_window_fires_early_when_so_many_rows_have_come_since_it_last_fired() -> None:
    logic = windows(tumbling("10 seconds"), trigger=early(rows=2))
    first, second, third, fourth = steps(
        logic,
        batch(("ann", 1, 1)),
        batch(("ann", 2, 1), ("ann", 3, 1)),
        batch(("ann", 4, 1)),
        batch(("ann", 5, 1), ("bob", 5, 1)),
    )
    assert shown(first) == []
    assert shown(second) == ["ann [0, 10) 3 3 early"]
    assert shown(third) == []
    assert shown(fourth) == ["ann [0, 10) 5 5 early"]


def test_a_window_fires_early_when_so_much_log_time_has_passed_and_it_has_changed() -> None:
    logic = windows(tumbling("60 seconds"), trigger=early(every="10 seconds"))
    made = steps(
        logic,
        batch(("ann", 1, 1), now=100),
        batch(("bob", 2, 1), now=109),
        batch(("bob", 3, 1), now=110),
        batch(("bob", 4, 1), now=119),
        batch(("bob", 5, 1), now=130),
    )
    assert [shown(step) for step in made] == [
        [],
        [],
        ["ann [0, 60) 1 1 early"],
        ["bob [0, 60) 3 3 early"],
        ["bob [0, 60) 4 4 early"],
    ]


def test_a_window_fires_on_time_also_when_nothing_has_changed_since_it_fired_early() -> None:
    logic = windows(tumbling("10 seconds"), trigger=early(rows=1))
    first, second = steps(logic, batch(("ann", 1, 1)), batch(("bob", 10, 1)))
    assert shown(first) == ["ann [0, 10) 1 1 early"]
    assert shown(second) == ["ann [0, 10) 1 1 on_time", "bob [10, 20) 1 1 early"]


def test_what_was_given_early_is_taken_back_too() -> None:
    logic = windows(tumbling("10 seconds"), update(within="1 minute", retract=True), early(rows=1))
    _, second, third = steps(logic, batch(("ann", 1, 1)), batch(("ann", 2, 2)), batch(("bob", 10, 1)))
    assert shown(second) == ["-ann [0, 10) 1 1 early", "ann [0, 10) 2 3 early"]
    assert shown(third) == [
        "-ann [0, 10) 2 3 early",
        "ann [0, 10) 2 3 on_time",
        "bob [10, 20) 1 1 early",
    ]


def test_at_the_end_of_the_input_all_windows_fire_and_nothing_is_kept() -> None:
    logic = windows(hopping("10 seconds", every="5 seconds"), trigger=early(rows=1))
    (step,) = steps(logic, batch(("ann", 7, 1), ("ann", 1, 2), is_end=True))
    assert shown(step) == [
        "ann [-5, 5) 1 2 on_time",
        "ann [0, 10) 2 3 on_time",
        "ann [5, 15) 1 1 on_time",
    ]
    assert [step.state[name].num_rows for name in (KEYS, PANES, OPEN)] == [0, 0, 0]


def test_no_rows_and_no_progress_change_nothing() -> None:
    first, second = steps(
        windows(tumbling("10 seconds"), trigger=early(rows=5)), batch(("ann", 1, 1)), batch()
    )
    assert shown(second) == []
    assert all(second.state[name] is first.state[name] for name in first.state)


def test_state_does_not_grow_with_time() -> None:
    logic = windows(tumbling("10 seconds"), update(within="10 seconds"), early(rows=2))
    made = steps(logic, *(batch((f"card-{n}", n * 10, 1)) for n in range(50)))
    assert all(step.state[name].num_rows <= 4 for step in made for name in (KEYS, PANES, OPEN))


def test_open_windows_stay_with_their_keys_when_other_keys_are_forgotten() -> None:
    logic = windows(tumbling("10 seconds"), trigger=early(rows=2))
    first, second = steps(logic, batch(("gone", 1, 1), ("ann", 25, 2)), batch(("ann", 26, 4)))
    assert first.state[KEYS].column("card").to_pylist() == ["ann"]
    assert shown(second) == ["ann [20, 30) 2 6 early"]


def test_every_bucket_tells_the_watermark() -> None:
    first, second = steps(windows(tumbling("10 seconds")), batch(("ann", None, 1)), batch(("ann", 25, 1)))
    assert first.gauges == {}
    assert second.gauges == {"watermark_us": 25 * S}


def test_the_last_year_of_all_calendars_and_beyond_breaks_nothing() -> None:
    logic = windows(tumbling("10 seconds"), side_output("late"))
    end_of_9999 = 253_402_300_799
    beyond = pa.Table.from_arrays(
        [["ann", "bob"], pa.array([end_of_9999 * S, 2**63 - 1]).view(SCHEMA.types[1]), pa.array([1, 2])],
        schema=SCHEMA,
    )
    step = logic.step({}, Arrivals(rows=beyond, is_end=True))
    assert step.outputs[RESULTS].column("count").to_pylist() == [1]
    assert step.outputs[LATE].column("card").to_pylist() == ["bob"]


def test_a_new_aggregate_begins_with_nothing_in_windows_that_are_open() -> None:
    before = AlignedWindows(
        by=("card",),
        time="at",
        kind=tumbling("10 seconds"),
        aggregates=(Sum(name="total", column="amount"),),
        watermark=bounded("0 seconds"),
        late=drop,
    )
    state = before.step({}, batch(("ann", 1, 5), ("bob", 1, 5))).state
    step = windows(tumbling("10 seconds")).step(state, batch(("ann", 2, 1), ("zoe", 10, 0)))
    assert shown(step) == ["ann [0, 10) 1 6 on_time", "bob [0, 10) 0 5 on_time"]


def test_a_state_of_other_keys_or_types_is_refused() -> None:
    state = windows(tumbling("10 seconds")).step({}, batch(("ann", 1, 5))).state
    with pytest.raises(
        PipelineError, match="kept by card, and are by card, amount now: take the change back"
    ):
        windows(tumbling("10 seconds"), by=("card", "amount")).step(state, batch(("ann", 1, 5)))
    arrivals = batch(("ann", 1, 5))
    in_cents = arrivals.rows.set_column(2, "amount", arrivals.rows["amount"].cast(pa.float64()))
    with pytest.raises(PipelineError, match="has '_total_0' as int64, which is double now"):
        windows(tumbling("10 seconds")).step(state, replace(arrivals, rows=in_cents))


def test_what_is_taken_back_is_what_was_given_to_the_last_digit() -> None:
    logic = AlignedWindows(
        by=(),
        time="at",
        kind=hopping("1 minute", every="1 second"),
        aggregates=(Sum(name="total", column="amount"),),
        watermark=bounded("0 seconds"),
        late=update(within="40 seconds", retract=True),
    )

    def tenths(*times: float) -> Arrivals:
        arrivals = batch(*((None, at, 1) for at in times))
        tenth = pa.array([0.1 + at / 7 for at in times])
        return replace(arrivals, rows=arrivals.rows.set_column(2, "amount", tenth))

    state: Tables = {}
    given: dict[Any, Any] = {}
    # Time moves on by an odd number of panes, some of which are forgotten, and rows come 50 seconds late.
    for times in (range(100), *((100 + 7 * n, 50 + 7 * n) for n in range(10))):
        step = logic.step(state, tenths(*times))
        state = step.state
        for row in step.outputs[RESULTS].to_pylist():
            if row["retracted"]:
                assert given.pop(row["window"]["end"]) == row["total"]
            else:
                given[row["window"]["end"]] = row["total"]
    assert len(given) > 100


def test_triggers_of_global_windows_are_refused() -> None:
    with pytest.raises(
        PipelineError, match=r"for global windows; give windows that end on_time\(\) or early"
    ):
        windows(tumbling("10 seconds"), trigger=each(rows=1))


def test_columns_that_can_not_be_are_refused() -> None:
    with pytest.raises(PipelineError, match="timestamp"):
        windows(tumbling("1 second")).output_schemas(SCHEMA.set(1, pa.field("at", pa.int64())))
    with pytest.raises(PipelineError, match="two columns of the results would be called 'window'"):
        windows(tumbling("1 second"), by=("window",)).output_schemas(
            SCHEMA.append(pa.field("window", pa.int8()))
        )
