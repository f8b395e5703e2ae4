"""What is noted of rows, the watermark and windows: known stories, and many against a naive reference."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest

from headrace.driver.event_time import moment
from headrace.streams.buckets.logic import Arrivals, SourceProgress
from headrace.streams.time.bounds import EVENT_TIME_US_MAX
from headrace.streams.time.policies import Policy, bounded, declared
from headrace.streams.time.watermarks import track
from headrace.streams.timeline.example import Event, example
from headrace.streams.timeline.operators import Traced, WindowLogic
from headrace.streams.timeline.picture import picture_of
from headrace.streams.timeline.tables import timeline_json
from headrace.streams.timeline.text import draw
from headrace.streams.timeline.timeline import Timeline
from headrace.streams.timeline.trace import trace
from headrace.streams.timeline.words import driver_of, row_story
from headrace.streams.windows.aligned import AlignedWindows
from headrace.streams.windows.exact import Count
from headrace.streams.windows.globals import GlobalWindows
from headrace.streams.windows.kinds import (
    AlignedKind,
    Kind,
    Sliding,
    cumulative,
    hopping,
    session_window,
    sliding,
    tumbling,
)
from headrace.streams.windows.late import LatePolicy, drop, side_output, update
from headrace.streams.windows.logics import window_logic
from headrace.streams.windows.sessions import SessionWindows
from headrace.streams.windows.sliding import SlidingWindows
from headrace.streams.windows.triggers import Early, OnTime, each, early, on_time

COUNT = (Count(name="count"),)
TEN = datetime(2026, 1, 1, 10, tzinfo=UTC)
PLACE = pa.struct(
    {
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", "UTC"),
    }
)
TEN_US = int(TEN.timestamp()) * 1_000_000


def windows(
    kind: AlignedKind | None = None,
    *,
    watermark: Policy | None = None,
    late: LatePolicy = drop,
    trigger: OnTime | Early | None = None,
) -> AlignedWindows:
    return AlignedWindows(
        by=("key",),
        time="at",
        kind=kind or tumbling("1 minute"),
        aggregates=COUNT,
        watermark=watermark or bounded("10 seconds"),
        late=late,
        trigger=trigger or OnTime(),
    )


def watermarks(timeline: Timeline) -> list[str | None]:
    return [
        None if each.after_us is None else f"{moment(each.after_us):%H:%M:%S}" for each in timeline.moments
    ]


def firings(timeline: Timeline) -> list[tuple[str, str, int, int]]:
    """Of each window: when it began, how it fired, in which batch, and its count."""
    return [
        (f"{moment(window.start_us or 0):%H:%M:%S}", firing.kind, firing.moment, firing.values["count"])
        for window in timeline.windows
        for firing in window.firings
    ]


def test_the_slowest_partition_holds_the_watermark_and_a_silent_one_does_so_until_it_is_idle() -> None:
    timeline = example(
        windows(watermark=bounded("10 seconds", idle_after="1 minute")),
        [
            Event("a", "10:01:40", "10:01:40", batch=0),
            Event("a", "10:01:30", "10:01:30", batch=0, partition=1),
            Event("a", "10:02:30", "10:02:30", batch=1),
            Event("a", "10:02:31", "10:02:31", batch=2),
            Event("a", "10:02:40", "10:02:40", batch=3),
            Event("a", "10:01:35", "10:02:40", batch=3, partition=1),
        ],
    )
    assert watermarks(timeline) == ["10:01:20", "10:01:20", "10:02:21", "10:02:21"]
    assert [each.holder for each in timeline.moments] == [
        "payments-1",
        "payments-1",
        "payments-0",
        "payments-1",
    ]
    assert [each.idle for each in timeline.moments] == [(), (), ("payments-1",), ()]
    # Back from its silence, the partition is far behind what was not held back for it.
    (late,) = timeline.late_rows()
    assert (late.place, late.fate) == ("payments/1/1", "late")
    assert driver_of(timeline, late) == (
        "the watermark came there in batch 2: payments-0 had come to 2026-01-01T10:02:31Z with payments/0/2, "
        "less 10 seconds; not waited for: payments-1"
    )


def test_a_window_fires_early_on_time_and_late_and_then_is_closed() -> None:
    timeline = example(
        windows(late=update(within="2 minutes", then=side_output("payments.late")), trigger=early(rows=1)),
        [
            Event("ann", "10:00:05", "10:00:07", batch=0),
            Event("ann", "10:00:50", "10:00:52", batch=1),
            Event("ann", "10:01:12", "10:01:14", batch=2),
            Event("ann", "10:00:40", "10:01:30", batch=3),
            Event("ann", "10:03:15", "10:03:17", batch=4),
            Event("ann", "10:00:30", "10:03:40", batch=5),
            Event(None, None, "10:03:41", batch=5),
        ],
    )
    assert firings(timeline) == [
        ("10:00:00", "early", 0, 1),
        ("10:00:00", "early", 1, 2),
        ("10:00:00", "on_time", 2, 2),
        ("10:00:00", "late", 3, 3),
        ("10:01:00", "early", 2, 1),
        ("10:01:00", "on_time", 4, 1),
        ("10:03:00", "early", 4, 1),
    ]
    first, second, third = timeline.windows
    assert (first.row_count, first.closed, first.is_open) == (3, 4, False)
    assert (second.row_count, second.closed, second.is_open) == (1, None, False)
    assert (third.row_count, third.closed, third.is_open) == (1, None, True)
    fates = [row.fate for row in timeline.rows]
    assert fates == ["in_time", "in_time", "in_time", "correction", "in_time", "late", "no_event_time"]
    assert timeline.late_topic == "payments.late"


def test_the_story_of_a_late_row_says_what_made_it_late_and_where_it_went() -> None:
    timeline = example(
        windows(),
        [
            Event("ann", "10:00:05", "10:00:06", batch=0),
            Event("bob", "10:02:00", "10:02:00", batch=1),
            Event("ann", "10:00:30", "10:02:10", batch=2),
        ],
    )
    assert list(row_story(timeline, timeline.rows[2])) == [
        (
            "payments/0/2 (key ann) happened at 2026-01-01T10:00:30Z and was written at "
            "2026-01-01T10:02:10Z, 1 minute 40 seconds later"
        ),
        (
            "it came with batch 2, when the watermark was 2026-01-01T10:01:50Z; after the batch it was "
            "2026-01-01T10:01:50Z"
        ),
        (
            "it was late: its window 2026-01-01T10:00:00Z to 2026-01-01T10:01:00Z had ended, and the "
            "watermark was 50 seconds past that end; it was counted and dropped"
        ),
        (
            "the watermark came there in batch 1: payments-0 had come to 2026-01-01T10:02:00Z with "
            "payments/0/1, less 10 seconds"
        ),
    ]
    assert list(row_story(timeline, timeline.rows[0]))[2:] == [
        (
            "the window 2026-01-01T10:00:00Z to 2026-01-01T10:01:00Z of ann has 1 row, fired on time in "
            "batch 1 (count 1), was closed in batch 1"
        )
    ]


def test_a_part_of_a_stream_goes_on_from_the_watermark_that_was_there_before() -> None:
    policy = bounded("10 seconds")
    came = Arrivals(
        rows=pa.table({}),
        progress=(SourceProgress(source="payments-0", row_count=1, event_time_us_max=TEN_US + 120_000_000),),
    )
    before = track(policy, None, came).table
    timeline = example(windows(), [Event("ann", "10:00:30", "10:02:10")], tracked=before)
    (row,) = timeline.late_rows()
    assert row.lateness is not None
    assert row.lateness.late_by_us == 50_000_000
    assert driver_of(timeline, row) == (
        "the watermark had come there before the first record that is looked at"
    )


def test_a_row_that_is_late_for_some_of_its_windows_counts_in_the_others() -> None:
    timeline = example(
        windows(hopping("2 minutes", every="1 minute"), watermark=bounded("0 seconds")),
        [
            Event("a", "10:02:10", "10:02:10", batch=0),
            Event("a", "10:01:30", "10:02:20", batch=1),
        ],
    )
    assert timeline.rows[1].fate == "in_time"
    counted = [f"{moment(each.start_us or 0):%H:%M}" for each in timeline.windows_of(timeline.rows[1])]
    assert counted == ["10:01"]


def test_sessions_that_grow_have_the_rows_of_the_windows_that_they_came_to_be() -> None:
    logic = SessionWindows(
        by=("key",),
        time="at",
        kind=session_window("10 seconds"),
        aggregates=COUNT,
        watermark=bounded("0 seconds"),
        late=update(within="1 hour"),
    )
    timeline = example(
        logic,
        [
            Event("a", "10:00:00", "10:00:00", batch=0),
            Event("b", "10:01:00", "10:01:00", batch=1),
            Event("a", "10:00:08", "10:01:01", batch=2),
        ],
    )
    assert firings(timeline) == [("10:00:00", "on_time", 1, 1), ("10:00:00", "late", 2, 2)]
    old, new, is_open = timeline.windows
    assert (old.row_count, new.row_count, is_open.is_open) == (1, 2, True)
    # It never was in the window that was given before it came.
    assert list(timeline.windows_of(timeline.rows[2])) == [new]


def test_sliding_and_global_windows_are_told_by_their_results() -> None:
    events = [
        Event("a", "10:00:01", "10:00:01", batch=0),
        Event("a", "10:00:03", "10:00:03", batch=0),
        Event("a", "10:01:00", "10:01:00", batch=1),
    ]
    slid = example(
        SlidingWindows(
            by=("key",),
            time="at",
            kind=sliding("5 seconds"),
            aggregates=COUNT,
            watermark=bounded("0 seconds"),
            late=drop,
        ),
        events,
    )
    assert [(window.row_count, window.is_open) for window in slid.windows] == [
        (1, False),
        (2, False),
        (1, True),
    ]
    grouped = example(GlobalWindows(by=("key",), aggregates=COUNT, trigger=each(rows=2)), events)
    (window,) = grouped.windows
    assert (window.start_us, [firing.values["count"] for firing in window.firings], window.is_open) == (
        None,
        [2],
        True,
    )
    assert window.row_count == 3


def test_where_no_row_came_nothing_happened() -> None:
    timeline = example(windows(), [])
    assert (timeline.moments, timeline.rows, timeline.windows) == ((), (), ())


def test_a_year_that_no_calendar_of_python_has_does_not_end_it() -> None:
    logic = windows(tumbling("1000 days"))
    rows = pa.table(
        {
            "key": ["a", "b"],
            # The last microsecond of 9999, and one beyond it.
            "at": pa.array([EVENT_TIME_US_MAX, EVENT_TIME_US_MAX + 1], pa.timestamp("us", "UTC")),
            "_kafka": pa.array(
                [{"topic": "t", "partition": 0, "offset": offset, "timestamp": TEN} for offset in range(2)],
                PLACE,
            ),
        }
    )
    operator = Traced(name="window", logic=logic, by=("key",), event_time="at")
    timeline = trace(operator, rows, np.zeros(2, np.int64), [0])
    assert [row.fate for row in timeline.rows] == ["in_time", "no_event_time"]
    (window,) = timeline.windows
    assert window.is_open
    assert (window.end_us or 0) > EVENT_TIME_US_MAX
    picture = picture_of(timeline)
    assert picture is not None
    assert draw(picture, width=80)
    assert json.dumps(timeline_json(timeline))


def declaring(told: Sequence[tuple[int, int, int | None, int | None]]) -> Timeline:
    """What happens to rows of a batch and a partition, with an event time and what they declare, in seconds
    after ten.
    """
    offsets = [sum(before[1] == row[1] for before in told[:number]) for number, row in enumerate(told)]

    def times(place: int) -> pa.Array:
        seconds = [row[place] for row in told]
        found = [None if each is None else TEN_US + each * 1_000_000 for each in seconds]
        return pa.array(found, pa.timestamp("us", "UTC"))

    rows = pa.table(
        {
            "key": pa.array(["a" if event is not None else None for _, _, event, _ in told], pa.string()),
            "at": times(2),
            "complete_until": times(3),
            "_kafka": pa.array(
                [
                    {"topic": "t", "partition": row[1], "offset": offset, "timestamp": TEN}
                    for row, offset in zip(told, offsets, strict=True)
                ],
                PLACE,
            ),
        }
    )
    logic = windows(watermark=declared("complete_until"), late=side_output("t.late"))
    operator = Traced(name="window", logic=logic, by=("key",), event_time="at")
    batches = np.array([batch for batch, *_ in told], np.int64)
    return trace(operator, rows, batches, range(int(batches.max(initial=-1)) + 1))


def test_sources_that_say_themselves_how_far_they_are_move_the_watermark_by_rows_that_are_no_events() -> None:
    timeline = declaring(
        [
            (0, 0, 30, None),
            (0, 1, 200, None),
            (1, 0, None, 70),
            (2, 1, None, 90),
            (3, 0, 40, 65),
            (3, 1, None, None),
        ]
    )
    assert watermarks(timeline) == [None, None, "10:01:10", "10:01:10"]
    assert [each.row_count for each in timeline.moments] == [2, 0, 0, 2]
    assert [(row.place, row.fate) for row in timeline.rows] == [
        ("t/0/0", "in_time"),
        ("t/1/0", "in_time"),
        ("t/0/2", "late"),
        ("t/1/2", "no_event_time"),
    ]
    assert firings(timeline) == [("10:00:00", "on_time", 2, 1)]
    late, _timeless = timeline.late_rows()
    assert driver_of(timeline, late) == (
        "the watermark came there in batch 2: t-0 had said with t/0/1 that it was complete up to "
        "2026-01-01T10:01:10Z"
    )
    told = timeline_json(timeline)
    assert told["batches"][2]["holder_declared"] == "2026-01-01T10:01:10Z"
    assert picture_of(timeline) is not None


def test_where_sources_only_say_how_far_they_are_or_nothing_there_are_no_rows() -> None:
    assert (declaring([(0, 0, None, 10)]).rows, declaring([]).rows) == ((), ())
    assert watermarks(declaring([(0, 0, None, 10)])) == ["10:00:10"]


@pytest.mark.parametrize("seed", range(30))
def test_each_row_is_counted_or_late_as_a_naive_reading_of_the_rules_says(seed: int) -> None:
    choose = random.Random(seed)
    batch_count, within_s = choose.randint(1, 8), choose.choice([0, 60])
    events = []
    for batch in range(batch_count):
        for _ in range(choose.randint(0, 6)):
            happened = TEN + timedelta(seconds=batch * 30 + choose.randint(-150, 30))
            written = TEN + timedelta(seconds=batch * 30)
            events.append(
                Event(
                    choose.choice(["a", "b", None]),
                    None if choose.random() < 0.1 else f"{happened:%H:%M:%S}",
                    f"{written:%H:%M:%S}",
                    batch=batch,
                    partition=choose.randint(0, 1),
                )
            )
    if not events:
        return
    late: LatePolicy = update(within=f"{within_s} seconds") if within_s else drop
    timeline = example(windows(late=late), events)

    newest: dict[int, datetime] = {}
    watermark: datetime | None = None
    counts: dict[tuple[str | None, datetime], int] = {}
    expected = []
    for batch in range(batch_count):
        own = [event for event in events if event.batch == batch]
        for event in own:
            if event.happened is None:
                expected.append("no_event_time")
                continue
            at = datetime.fromisoformat(f"2026-01-01T{event.happened}+00:00")
            end = at.replace(second=0) + timedelta(minutes=1)
            newest[event.partition] = max(newest.get(event.partition, at), at)
            if watermark is not None and end + timedelta(seconds=within_s) <= watermark:
                expected.append("late")
                continue
            expected.append("correction" if watermark is not None and end <= watermark else "in_time")
            counts[event.key, end] = counts.get((event.key, end), 0) + 1
        if own and newest:
            passed = min(newest.values()) - timedelta(seconds=10)
            watermark = passed if watermark is None else max(watermark, passed)
    assert [row.fate for row in timeline.rows] == expected
    assert {
        (window.key[0], moment(window.end_us or 0)): window.row_count for window in timeline.windows
    } == counts
    last = timeline.moments[-1].after_us
    assert (None if last is None else moment(last)) == watermark


KINDS: list[Kind] = [
    tumbling("1 minute"),
    hopping("2 minutes", every="30 seconds"),
    cumulative("2 minutes", step="1 minute"),
    session_window("20 seconds"),
    sliding("1 minute"),
]


@pytest.mark.parametrize("seed", range(40))
def test_each_firing_counts_the_rows_that_are_said_to_be_in_its_window(seed: int) -> None:
    choose = random.Random(seed)
    events = [
        Event(
            choose.choice("ab"),
            f"{TEN + timedelta(seconds=batch * 40 + choose.randint(-200, 30)):%H:%M:%S}",
            f"{TEN + timedelta(seconds=batch * 40):%H:%M:%S}",
            batch=batch,
            partition=choose.randint(0, 1),
        )
        for batch in range(choose.randint(1, 8))
        for _ in range(choose.randint(1, 8))
    ]
    policies: list[LatePolicy] = [drop, side_output("late"), update(within="1 minute", retract=True)]
    late = choose.choice(policies)
    kind = choose.choice(KINDS)
    trigger = early(rows=2) if choose.random() < 0.5 and not isinstance(kind, Sliding) else on_time()
    logic = window_logic(
        kind,
        by=("key",),
        time="at",
        aggregates=COUNT,
        watermark=bounded("5 seconds"),
        late=late,
        trigger=trigger,
    )
    assert isinstance(logic, WindowLogic)
    timeline = example(logic, events)
    assert timeline.windows
    for window in timeline.windows:
        members = [row for row in timeline.rows if timeline.counts_in(row, window)]
        assert len(members) == window.row_count
        for firing in window.firings:
            if not firing.retracted:
                came = [row for row in members if row.moment <= firing.moment]
                assert firing.values["count"] == len(came), (window, firing)
    in_some = {row.place for row in timeline.rows if any(timeline.windows_of(row))}
    assert in_some.isdisjoint(row.place for row in timeline.late_rows())
    assert len(in_some) + len(list(timeline.late_rows())) == len(timeline.rows)
