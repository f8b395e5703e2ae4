"""Aligned windows against a naive reference, on random streams: same answer, however they are cut.

The reference keeps every row of every window in plain dicts, and looks at each row and each window by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.streams.buckets.logic import LATE, RESULTS, Arrivals, SourceProgress, Tables
from headrace.streams.time.policies import bounded, perfect
from headrace.streams.windows.aligned import AlignedWindows
from headrace.streams.windows.exact import Count, Max, Mean, Min, Sum
from headrace.streams.windows.kinds import AlignedKind, Cumulative, Hopping, Tumbling
from headrace.streams.windows.late import Drop, LatePolicy, SideOutput, Update
from headrace.streams.windows.triggers import Early, OnTime

SCHEMA = pa.schema(
    {
        "who": pa.string(),
        "where": pa.struct({"shop": pa.int32()}),
        "at": pa.timestamp("us", "UTC"),
        "paid": pa.int64(),
    }
)
AGGREGATES = (
    Count(name="rows"),
    Count(name="payments", column="paid"),
    Sum(name="total", column="paid"),
    Mean(name="mean", column="paid"),
    Min(name="least", column="paid"),
    Max(name="most", column="paid"),
)

Row = dict[str, Any]
Window = tuple[int, int]


def windows_of(kind: AlignedKind, time: int) -> list[Window]:
    """All windows that a time is in, by trying those nearby."""
    size, offset = kind.size_us, kind.offset_us
    if isinstance(kind, Cumulative):
        begin = offset
        while begin > time:
            begin -= size
        while begin + size <= time:
            begin += size
        ends = range(begin + kind.step_us, begin + size + 1, kind.step_us)
        return [(begin, end) for end in ends if time < end]
    every = kind.every_us if isinstance(kind, Hopping) else size
    near = range((time - offset - size) // every - 1, (time - offset) // every + 2)
    starts = [offset + k * every for k in near]
    return [(start, start + size) for start in starts if start <= time < start + size]


@dataclass
class Reference:
    """The semantics, word by word."""

    kind: AlignedKind
    late: LatePolicy
    trigger: OnTime | Early
    delay: int
    idle_after: int | None
    watermark: int | None = None
    sources: dict[str, tuple[int | None, int]] = field(default_factory=dict)
    """The newest event and the newest record of each source."""
    rows: dict[tuple[Any, Window], list[Row]] = field(default_factory=dict)
    given: dict[tuple[Any, Window], Row] = field(default_factory=dict)
    fired_rows: dict[tuple[Any, Window], int] = field(default_factory=dict)
    since: dict[tuple[Any, Window], int] = field(default_factory=dict)

    @property
    def within(self) -> int:
        return self.late.within_us if isinstance(self.late, Update) else 0

    def step(self, batch: list[Row], *, is_end: bool = False) -> tuple[list[Row], list[Row]]:
        """Results and late rows."""
        before = self.watermark
        late_rows, touched = [], set()
        for row in batch:
            windows = [] if row["at"] is None else windows_of(self.kind, row["at"])
            taken = [window for window in windows if before is None or window[1] + self.within > before]
            for window in taken:
                place = (key_of(row), window)
                self.rows.setdefault(place, []).append(row)
                touched.add(place)
            if not taken:
                last = max(windows, key=lambda window: window[1], default=None)
                late_rows.append(late_row(row, last, before))
        self.advance(batch)
        if is_end:
            self.watermark = 10**18
        results = [row for place in sorted(self.rows, key=repr) for row in self.fire(place, before, touched)]
        for place in list(self.rows):
            if self.watermark is not None and place[1][1] + self.within <= self.watermark:
                del self.rows[place]
                self.given.pop(place, None)
        return results, late_rows

    def advance(self, batch: list[Row]) -> None:
        if not batch:
            return
        here = set()
        for row in batch:
            here.add(row["source"])
            event, record = self.sources.get(row["source"], (None, row["record"]))
            if row["at"] is not None:
                event = row["at"] if event is None else max(event, row["at"])
            self.sources[row["source"]] = (event, max(record, row["record"]))
        passed = []
        for name, (event, record) in self.sources.items():
            is_idle = (
                self.idle_after is not None
                and name not in here
                and self.log_time() - record > self.idle_after
            )
            if event is not None and not is_idle:
                passed.append(event - self.delay)
        if passed and (self.watermark is None or min(passed) > self.watermark):
            self.watermark = min(passed)

    def log_time(self) -> int:
        return max(record for _, record in self.sources.values())

    def fire(self, place: tuple[Any, Window], before: int | None, touched: set[Any]) -> Iterator[Row]:
        end = place[1][1]
        if before is not None and end <= before:
            if place in touched:
                yield from self.give(place, "late")
        elif self.watermark is not None and end <= self.watermark:
            yield from self.give(place, "on_time")
        elif self.is_due(place):
            yield from self.give(place, "early")
            self.fired_rows[place] = len(self.rows[place])
            self.since[place] = self.log_time()

    def is_due(self, place: tuple[Any, Window]) -> bool:
        if isinstance(self.trigger, OnTime):
            return False
        fresh = len(self.rows[place]) - self.fired_rows.get(place, 0)
        if self.trigger.rows is not None:
            return fresh >= self.trigger.rows
        since = self.since.setdefault(place, self.log_time())
        assert self.trigger.every_us is not None
        return fresh > 0 and self.log_time() - since >= self.trigger.every_us

    def give(self, place: tuple[Any, Window], firing: str) -> Iterator[Row]:
        result = {**aggregated(self.rows[place]), "window": place[1], "firing": firing}
        if not (isinstance(self.late, Update) and self.late.retract):
            yield result
            return
        if place in self.given:
            yield {**self.given[place], "retracted": True}
        self.given[place] = result
        yield {**result, "retracted": False}


def key_of(row: Row) -> Any:
    return (row["who"], None if row["where"] is None else row["where"]["shop"], row["where"] is None)


def aggregated(rows: list[Row]) -> Row:
    paid = [row["paid"] for row in rows if row["paid"] is not None]
    return {
        "who": rows[0]["who"],
        "where": rows[0]["where"],
        "rows": len(rows),
        "payments": len(paid),
        "total": sum(paid) if paid else None,
        "mean": sum(paid) / len(paid) if paid else None,
        "least": min(paid, default=None),
        "most": max(paid, default=None),
    }


def late_row(row: Row, window: Window | None, watermark: int | None) -> Row:
    return {
        **{name: row[name] for name in SCHEMA.names},
        "window": window,
        "late_by_ms": None if window is None or watermark is None else (watermark - window[1]) // 1_000,
        "watermark": watermark,
        "reason": "no event time" if window is None else "late",
    }


# The product, on the same batches.


def arrivals(batch: list[Row], *, is_end: bool = False, only: Any = None) -> Arrivals:
    in_order = sorted(batch, key=lambda row: str(row["source"]))
    rows = [{name: row[name] for name in SCHEMA.names} for row in in_order if only is None or only(row)]
    progress = []
    for source in sorted({row["source"] for row in batch}):
        own = [row for row in batch if row["source"] == source]
        progress.append(
            SourceProgress(
                source=source,
                row_count=len(own),
                event_time_us_max=max((row["at"] for row in own if row["at"] is not None), default=None),
                record_time_us_max=max(row["record"] for row in own),
            )
        )
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    return Arrivals(rows=table, progress=tuple(progress), is_end=is_end)


def restarted(state: Tables) -> Tables:
    """The state as it comes back from where it is kept."""
    back = {}
    for name, table in state.items():
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema.with_metadata({"buckets": "8"})) as writer:
            writer.write_table(table)
        back[name] = pa.ipc.open_stream(sink.getvalue()).read_all()
    return back


def plain(table: pa.Table | None) -> list[Row]:
    """Rows with times as numbers."""
    if table is None:
        return []
    columns = dict(zip(table.column_names, table.columns, strict=True))
    for name, column in columns.items():
        if pa.types.is_timestamp(column.type):
            columns[name] = column.cast(pa.int64())
        if name == "window":
            ends = [
                pa.compute.struct_field(column, end).cast(pa.int64()).to_pylist() for end in ("start", "end")
            ]
            windows = zip(*ends, strict=True)
            columns[name] = [None if start is None else (start, end) for start, end in windows]
    names = list(columns)
    values = [column if isinstance(column, list) else column.to_pylist() for column in columns.values()]
    return [dict(zip(names, row, strict=True)) for row in zip(*values, strict=True)]


def by_window(results: list[Row]) -> list[Row]:
    """In an order of windows and keys; rows of the same keep theirs."""
    return sorted(results, key=lambda row: (row["window"], repr(row["who"]), repr(row["where"])))


KINDS: list[AlignedKind] = [
    Tumbling(size_us=10_000),
    Tumbling(size_us=7_000, offset_us=-3_000),
    Hopping(size_us=24_000, every_us=2_000),
    Hopping(size_us=15_000, every_us=10_000, offset_us=1_000),
    Cumulative(size_us=20_000, step_us=5_000),
    Cumulative(size_us=12_000, step_us=6_000, offset_us=-5_000),
]
TOPIC = SideOutput(topic="late")
POLICIES: list[LatePolicy] = [
    Drop(),
    TOPIC,
    Update(within_us=8_000, then=TOPIC),
    Update(within_us=20_000, retract=True, then=TOPIC),
    Update(within_us=3_000, retract=True),
]
TRIGGERS: list[OnTime | Early] = [OnTime(), Early(rows=2), Early(rows=1), Early(every_us=6_000)]

times = st.none() | st.integers(-30_000, 60_000)
keys = st.sampled_from(
    [("ann", {"shop": 1}), ("ann", {"shop": None}), ("ann", None), (None, {"shop": 1}), ("", None)]
)
values = st.none() | st.integers(-100, 100)
event = st.tuples(st.sampled_from(["t-0", "t-1", "t-2"]), times, keys, values, st.integers(0, 4_000))
cuts = st.lists(st.lists(event, max_size=8), min_size=1, max_size=7)


def numbered(batches: list[list[Any]]) -> list[list[Row]]:
    """Rows whose record times grow as they are written."""
    record, cut = 0, []
    for batch in batches:
        rows = []
        for source, time, (who, where), paid, pause in batch:
            record += pause
            row = {"source": source, "at": time, "who": who, "where": where, "paid": paid, "record": record}
            rows.append(row)
        cut.append(rows)
    return cut


def windows_for(reference: Reference) -> AlignedWindows:
    idle_after = None if reference.idle_after is None else timedelta(microseconds=reference.idle_after)
    return AlignedWindows(
        by=("who", "where"),
        time="at",
        kind=reference.kind,
        aggregates=AGGREGATES,
        watermark=bounded(timedelta(microseconds=reference.delay), idle_after=idle_after),
        late=reference.late,
        trigger=reference.trigger,
    )


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=20)
@given(
    batches=cuts.map(numbered),
    late=st.sampled_from(POLICIES),
    trigger=st.sampled_from(TRIGGERS),
    delay=st.sampled_from([0, 4_000]),
    idle_after=st.sampled_from([None, 5_000]),
    crashes=st.integers(0, 2**7 - 1),
    is_ended=st.booleans(),
)
def test_every_step_gives_what_the_reference_gives(
    kind: AlignedKind,
    batches: list[list[Row]],
    late: LatePolicy,
    trigger: OnTime | Early,
    delay: int,
    idle_after: int | None,
    crashes: int,
    is_ended: bool,
) -> None:
    reference = Reference(kind=kind, late=late, trigger=trigger, delay=delay, idle_after=idle_after)
    logic = windows_for(reference)
    state: Tables = {}
    for number, batch in enumerate(batches):
        is_end = is_ended and number == len(batches) - 1
        in_order = sorted(batch, key=lambda row: str(row["source"]))
        results, late_rows = reference.step(in_order, is_end=is_end)
        step = logic.step(state, arrivals(batch, is_end=is_end))
        if crashes >> number & 1:
            again = logic.step(restarted(state), arrivals(batch, is_end=is_end))
            assert again.outputs == step.outputs
            assert again.counts == step.counts
            step = again
        assert by_window(plain(step.outputs.get(RESULTS))) == by_window(results)
        is_dropped = isinstance(late.then if isinstance(late, Update) else late, Drop)
        assert plain(step.outputs.get(LATE)) == ([] if is_dropped else late_rows)
        assert step.counts.get("dropped", 0) == (len(late_rows) if is_dropped else 0)
        schemas = logic.output_schemas(SCHEMA)
        assert all(table.schema == schemas[name] for name, table in step.outputs.items())
        state = restarted(step.state) if crashes >> number & 1 else step.state


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=7)
@given(batches=cuts.map(numbered), trigger=st.sampled_from(TRIGGERS), retract=st.booleans())
def test_a_stream_that_waits_long_enough_ends_with_what_one_batch_gives(
    kind: AlignedKind, batches: list[list[Row]], trigger: OnTime | Early, retract: bool
) -> None:
    late = Update(within_us=10**9, retract=retract)
    reference = Reference(kind=kind, late=late, trigger=trigger, delay=0, idle_after=None)
    logic = windows_for(reference)
    state: Tables = {}
    standing: dict[Any, Row] = {}
    for number, batch in enumerate(batches):
        step = logic.step(state, arrivals(batch, is_end=number == len(batches) - 1))
        state = step.state
        for row in plain(step.outputs.get(RESULTS)):
            place = (repr(row["who"]), repr(row["where"]), row["window"])
            if row.get("retracted"):
                assert standing.pop(place) == {**row, "retracted": False}
            else:
                assert place not in standing or not retract
                standing[place] = row
    at_once = AlignedWindows(
        by=("who", "where"), time="at", kind=kind, aggregates=AGGREGATES, watermark=perfect(), late=Drop()
    ).step({}, arrivals([row for batch in batches for row in batch], is_end=True))
    without = [
        {name: value for name, value in row.items() if name not in {"firing", "retracted"}}
        for row in standing.values()
    ]
    expected = [
        {name: value for name, value in row.items() if name != "firing"}
        for row in plain(at_once.outputs.get(RESULTS))
    ]
    assert by_window(without) == by_window(expected)


@settings(max_examples=10)
@given(batches=cuts.map(numbered), kind=st.sampled_from(KINDS), late=st.sampled_from(POLICIES))
def test_how_keys_are_spread_over_buckets_does_not_show(
    batches: list[list[Row]], kind: AlignedKind, late: LatePolicy
) -> None:
    reference = Reference(kind=kind, late=late, trigger=Early(rows=2), delay=0, idle_after=None)
    logic = windows_for(reference)
    states: list[Tables] = [{}, {}, {}]
    for batch in batches:
        steps = [
            logic.step(states[0], arrivals(batch)),
            logic.step(states[1], arrivals(batch, only=lambda row: row["who"] == "ann")),
            logic.step(states[2], arrivals(batch, only=lambda row: row["who"] != "ann")),
        ]
        states = [step.state for step in steps]
        one, *spread = (plain(step.outputs.get(RESULTS)) for step in steps)
        assert by_window(one) == by_window([row for rows in spread for row in rows])
        assert len({step.gauges.get("watermark_us") for step in steps}) == 1
