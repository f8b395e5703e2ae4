"""Pictures of time: as text, as SVG, as a page, and as JSON."""

from __future__ import annotations

import json
import re
from xml.etree import ElementTree as ET

from headrace.streams.time.policies import adaptive, bounded, declared, perfect
from headrace.streams.timeline.example import Event, example
from headrace.streams.timeline.operators import Traced
from headrace.streams.timeline.page import draw_page
from headrace.streams.timeline.picture import BANDS_MAX, POINTS_MAX, Picture, picture_of
from headrace.streams.timeline.scales import Scale, tick_texts, time_text
from headrace.streams.timeline.svg import draw_svg
from headrace.streams.timeline.tables import late_rows, timeline_json, window_rows
from headrace.streams.timeline.text import draw
from headrace.streams.timeline.timeline import Timeline
from headrace.streams.timeline.words import late_words, operator_words, trigger_words, watermark_words
from headrace.streams.windows.aligned import AlignedWindows
from headrace.streams.windows.exact import Count
from headrace.streams.windows.globals import GlobalWindows
from headrace.streams.windows.kinds import tumbling
from headrace.streams.windows.late import drop, side_output, update
from headrace.streams.windows.triggers import each, early, on_time

WINDOWS = AlignedWindows(
    by=("key",),
    time="at",
    kind=tumbling("1 minute"),
    aggregates=(Count(name="count"),),
    watermark=bounded("10 seconds"),
    late=update(within="1 minute", then=side_output("payments.late")),
    trigger=early(rows=1),
)
EVENTS = [
    Event("ann", "10:00:05", "10:00:06", batch=0),
    Event("ann", "10:00:50", "10:00:52", batch=1),
    Event("bob", "10:01:15", "10:01:20", batch=2),
    Event("ann", "10:00:40", "10:01:35", batch=3),
    Event("bob", "10:01:50", "10:01:51", batch=3),
    Event("bob", "10:02:40", "10:02:41", batch=4),
    Event("ann", "10:00:30", "10:03:00", batch=5),
    Event("bob", "10:03:10", "10:03:11", batch=5),
]


def drawn(timeline: Timeline, **options: object) -> Picture:
    picture = picture_of(timeline, **options)  # type: ignore[arg-type]  # what the test gives
    assert picture is not None
    return picture


def test_the_picture_for_a_terminal_shows_rows_the_watermark_windows_and_firings() -> None:
    assert draw(drawn(example(WINDOWS, EVENTS)), width=64, height=16) == SNAPSHOT.strip("\n").split("\n")


SNAPSHOT = """
10:04 │┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄○┄┄
      │
      │
      │                                                      ·
10:03 │┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄○┄┄┄┄┄┄┄●──
      │                                              ·       │
      │                                              ┌───────┘
10:02 │┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄○┄┄┄┄┄┄┄┄○┄┄┄┄┄┄┄┄┄┄┄┄┄●┄┄┄┄┄┄┄┄┄┄
      │                                ·             │
      │                                ┌─────────────┘
      │                       ·        │
10:01 │┄┄○┄┄┄┄┄┄┄┄┄┄┄┄○┄┄┄┄┄┄┄●────────◆┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄
      │               ┌───────┘   +
      │               │                                   x
10:00 │  ·            │
      │  ─────────────┘
      └─────────────────────────────────────────────────────────
                        10:01            10:02            10:03
       the log's time
"""


def test_only_the_windows_and_rows_of_a_key_are_drawn_where_one_is_asked_for() -> None:
    picture = drawn(example(WINDOWS, EVENTS), key=("ann",))
    assert len(picture.points) == 4
    assert [band.label for band in picture.bands] == ["3 rows of 1 key"]


def test_rows_that_were_written_at_once_are_drawn_in_the_order_in_which_they_came() -> None:
    events = [Event("a", f"10:00:{second:02}", "10:01:00", batch=second // 5) for second in range(20)]
    picture = drawn(example(WINDOWS, events))
    assert picture.across == "order"
    assert sorted(point.x for point in picture.points) == list(range(20))
    assert "in the order in which they came" in draw(picture, width=80)[-1]
    assert "in the order in which they came" in draw_svg(picture)


def test_a_few_rows_that_are_far_away_leave_room_for_the_others() -> None:
    events = [Event("a", f"10:00:{second:02}", f"10:00:{second:02}", batch=second) for second in range(20)]
    picture = drawn(example(WINDOWS, [*events, Event("a", "00:00:01", "10:00:20", batch=20)]))
    assert time_text(picture.y.least) > "2026-01-01T09"
    assert picture.notes == ("above or below what is drawn, and put at its edge: 1 row",)
    assert draw(picture, width=70)


def test_the_svg_is_xml_in_which_all_data_is_escaped() -> None:
    events = [Event('<b>&"', "10:00:05", "10:00:06"), Event("x", "10:00:06", "10:00:07")]
    picture = drawn(example(WINDOWS, events, topic="</title><script>"), title="<script>&")
    tree = ET.fromstring(draw_svg(picture))  # noqa: S314 - it was made here
    names = {element.tag.rpartition("}")[2] for element in tree.iter()}
    assert names == {"svg", "style", "text", "g", "circle", "path", "rect", "title", "line", "polyline"}
    assert not re.search(r"(href|src|url)\s*[=(]", draw_svg(picture))


def test_the_page_is_one_file_that_loads_nothing_and_escapes_all_data() -> None:
    timeline = example(WINDOWS, [*EVENTS, Event("<img src=x>", "10:00:05", "10:03:12", batch=6)])
    page = draw_page("<script>", ["it & that"], [timeline])
    assert "<script>" not in page
    assert "<img" not in page
    assert "it &amp; that" in page
    assert "payments/0/6" in page
    assert not re.search(r"(href|src)\s*=", page.replace("&lt;img src=x&gt;", ""))


def test_what_is_told_as_json_is_json_with_times_as_text() -> None:
    told = json.loads(json.dumps(timeline_json(example(WINDOWS, EVENTS))))
    assert told["batches"][2]["after"] == "2026-01-01T10:01:05Z"
    assert told["batches"][2]["holder"] == "payments-0"
    late = told["rows"][6]
    assert (late["fate"], late["lateness"]["late_by_ms"], late["batch"]) == ("late", 90_000, 5)
    assert late["why"].startswith("the watermark came there in batch 4: payments-0 had come to")
    assert told["windows"][0]["firings"][-1] == {
        "firing": "late",
        "batch": 3,
        "retracted": False,
        "values": {"count": 3},
    }


def test_tables_have_a_row_for_each_window_and_each_late_row() -> None:
    timeline = example(WINDOWS, EVENTS)
    first = next(window_rows(timeline))
    assert first == {
        "key": "ann",
        "window": "10:00:00 to 10:01:00",
        "rows": 3,
        "fired_in_batch": "early 0, 1; on time 2; late 3",
        "last_result": "count 3",
        "closed": "batch 4",
    }
    (late,) = late_rows(timeline)
    assert (late["record"], late["late_by"], late["went_to"]) == (
        "payments/0/6",
        "1 minute 30 seconds",
        "payments.late",
    )
    assert list(late_rows(timeline, ("bob",))) == []


def test_a_great_many_rows_and_windows_are_drawn_in_part_and_that_is_said() -> None:
    events = [
        Event("a", f"{number // 3600:02}:{number // 60 % 60:02}:{number % 60:02}", "10:00:00")
        for number in range(0, 86_400, 12)
    ]
    picture = drawn(example(WINDOWS, events))
    assert len(picture.points) <= POINTS_MAX
    assert len(picture.bands) == BANDS_MAX
    assert len(picture.notes) == 2
    assert draw(picture, width=100)


def test_where_nothing_has_an_event_time_there_is_no_picture() -> None:
    assert picture_of(example(WINDOWS, [Event("a", None, "10:00:00")])) is None
    globals_ = GlobalWindows(by=("key",), aggregates=(Count(name="count"),), trigger=each(rows=2))
    assert picture_of(example(globals_, EVENTS)) is None


def test_ticks_are_round_moments_and_no_more_than_asked_for() -> None:
    for length in (1, 7, 1_000, 90_000_000, 5_000_000_000, 10**14, 3 * 10**17):
        scale = Scale(least=-12_345, greatest=-12_345 + length)
        for count in (1, 4, 9):
            ticks = scale.ticks(count)
            assert len(ticks) <= count + 1
            assert all(scale.holds(tick) for tick in ticks)
            assert len(tick_texts(ticks)) == len(ticks)


def test_operators_are_described_in_words() -> None:
    told = list(operator_words(Traced(name="window", logic=WINDOWS, by=("key",), event_time="at")))
    assert told[0] == "window: tumbling window of 1 minute by key"
    assert told[1].startswith(
        "event time is the column at; the watermark is the newest event of the partition"
    )
    assert "(no idle_after)" in told[1]
    assert (
        told[2]
        == "a window fires on time when the watermark comes to its end, and early for each 1 row that came"
    )
    assert told[3] == (
        "until 1 minute after its end a window that late rows change fires again; after that, late rows go "
        "to the topic payments.late"
    )
    assert "less what 0.9 of the last events were late by" in watermark_words(adaptive(quantile=0.9))
    assert "comes with the end of the input" in watermark_words(perfect())
    assert watermark_words(declared("done", idle_after="1 hour")) == (
        "the watermark is what the column done says of the partition that is furthest behind; a partition "
        "without records for 1 hour is not waited for"
    )
    assert "behind, once 4 partitions have said something; a p" in watermark_words(
        declared("done", partitions=4)
    )
    assert "for 5 minutes is not waited for" in watermark_words(bounded("1 second", idle_after="5 minutes"))
    assert trigger_words(on_time()).endswith("comes to its end")
    assert trigger_words(early(every="10 seconds")).endswith("the log is 10 seconds further")
    assert trigger_words(each(where="is_last")).endswith("in which is_last is true")
    assert late_words(drop) == "late rows are counted and dropped"
