"""The watermark: what all sources have passed, by the rows alone."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.driver.event_time import SOURCES_TOLD_MAX, TimeReport
from headrace.streams.buckets.logic import Arrivals, SourceProgress
from headrace.streams.time.bounds import BEGINNING_US, END_US, EVENT_TIME_US_MAX
from headrace.streams.time.lateness import LatenessRun
from headrace.streams.time.policies import Policy, adaptive, bounded, declared, perfect
from headrace.streams.time.watermarks import Tracked, delay_now_us, standings, track

S = 1_000_000
NO_ROWS = pa.table({})


def at(
    source: str,
    event_s: float | None,
    record_s: float | None = 0,
    *,
    declared_s: float | None = None,
    rows: int = 1,
    lateness: tuple[int, ...] = (),
    begins_s: float = 10_000,
) -> SourceProgress:
    return SourceProgress(
        source=source,
        row_count=rows,
        event_time_us_max=None if event_s is None else int(event_s * S),
        record_time_us_max=None if record_s is None else int(record_s * S),
        declared_us=None if declared_s is None else int(declared_s * S),
        lateness=(LatenessRun(int(begins_s * S), lateness),) if lateness else (),
    )


def tracked(policy: Policy, *batches: tuple[SourceProgress, ...]) -> Tracked:
    last = None
    for progress in batches:
        last = track(policy, None if last is None else last.table, Arrivals(rows=NO_ROWS, progress=progress))
    assert last is not None
    return last


def test_the_watermark_is_the_newest_event_less_the_delay() -> None:
    assert tracked(bounded("10 seconds"), (at("t-0", 100),)).after_us == 90 * S


def test_rows_are_judged_by_the_watermark_before_their_batch() -> None:
    step = tracked(bounded("10 seconds"), (at("t-0", 100),), (at("t-0", 200),))
    assert (step.before_us, step.after_us) == (90 * S, 190 * S)


def test_before_the_first_batch_nothing_is_late() -> None:
    assert tracked(bounded("10 seconds"), (at("t-0", 100),)).before_us == BEGINNING_US


def test_the_source_that_lags_behind_rules() -> None:
    assert tracked(bounded("0 seconds"), (at("t-0", 100), at("t-1", 40))).after_us == 40 * S


def test_a_source_without_rows_still_counts_with_what_it_had() -> None:
    step = tracked(bounded("0 seconds"), (at("t-0", 100), at("t-1", 40)), (at("t-0", 300),))
    assert step.after_us == 40 * S


def test_the_watermark_does_not_go_back_when_a_new_source_begins_further_behind() -> None:
    step = tracked(bounded("0 seconds"), (at("t-0", 100),), (at("t-1", 5),))
    assert step.after_us == 100 * S


def test_an_idle_source_does_not_hold_time_back() -> None:
    policy = bounded("0 seconds", idle_after="1 minute")
    begun = (at("t-0", 100, record_s=100), at("t-1", 40, record_s=40))
    assert tracked(policy, begun, (at("t-0", 100, record_s=100),)).after_us == 40 * S
    assert tracked(policy, begun, (at("t-0", 101, record_s=101),)).after_us == 101 * S


def test_without_idle_after_a_source_is_waited_for_for_ever() -> None:
    begun = (at("t-0", 100, record_s=100), at("t-1", 40, record_s=40))
    assert tracked(bounded("0 seconds"), begun, (at("t-0", 9_000, record_s=9_000),)).after_us == 40 * S


def test_a_source_that_wakes_up_counts_again_and_time_waits_for_it() -> None:
    policy = bounded("0 seconds", idle_after="1 minute")
    begun = (at("t-0", 100, record_s=100), at("t-1", 40, record_s=40))
    gone_on = (at("t-0", 500, record_s=500),)
    back = (at("t-0", 600, record_s=600), at("t-1", 50, record_s=601))
    step = tracked(policy, begun, gone_on, back)
    assert (step.before_us, step.after_us) == (500 * S, 500 * S)
    assert tracked(policy, begun, gone_on, back, (at("t-1", 550, record_s=602),)).after_us == 550 * S


def test_a_lagging_partition_on_replay_is_not_idle_while_it_has_rows() -> None:
    policy = bounded("0 seconds", idle_after="1 minute")
    assert tracked(policy, (at("t-0", 9_000, record_s=9_000), at("t-1", 40, record_s=40))).after_us == 40 * S


def test_sources_of_this_batch_only_are_not_remembered() -> None:
    step = tracked(
        bounded("0 seconds"),
        (at("task-0", 100, None), at("task-1", 40, None)),
        (at("task-0", 90, None), at("task-2", 80, None)),
    )
    assert step.after_us == 80 * S
    assert step.table.num_rows == 1


def test_a_source_without_any_event_time_does_not_count() -> None:
    assert tracked(bounded("0 seconds"), (at("t-0", None), at("t-1", 40))).after_us == 40 * S
    assert tracked(bounded("0 seconds"), (at("t-0", None),)).after_us == BEGINNING_US


def test_what_a_source_declares_is_believed() -> None:
    assert tracked(bounded("1 minute"), (at("t-0", 100, declared_s=95),)).after_us == 95 * S


def test_a_perfect_watermark_moves_by_what_is_declared_only() -> None:
    assert tracked(perfect(), (at("t-0", 100),)).after_us == BEGINNING_US
    assert (
        tracked(perfect(), (at("t-0", 100, declared_s=70), at("t-1", 10, declared_s=60))).after_us == 60 * S
    )
    assert tracked(perfect(), (at("t-0", 100, declared_s=70), at("t-1", 10))).after_us == BEGINNING_US


def test_a_declared_watermark_is_the_least_that_partitions_have_declared() -> None:
    policy = declared("told")
    assert tracked(policy, (at("t-0", 900, declared_s=70), at("t-1", 10, declared_s=60))).after_us == 60 * S
    silent = (at("t-0", 900, declared_s=70), at("t-1", 10))
    assert tracked(policy, silent).after_us == BEGINNING_US
    assert tracked(policy, silent, (at("t-1", None, declared_s=65),)).after_us == 65 * S


def test_what_a_partition_declared_is_not_taken_back() -> None:
    policy = declared("told")
    step = tracked(policy, (at("t-0", 10, declared_s=70),), (at("t-0", 10, declared_s=50),))
    assert (step.before_us, step.after_us) == (70 * S, 70 * S)


def test_a_declared_watermark_can_wait_until_all_partitions_have_spoken() -> None:
    policy = declared("told", partitions=2)
    first = (at("t-0", 10, declared_s=70),)
    assert tracked(policy, first, (at("t-1", 10),)).after_us == BEGINNING_US
    assert tracked(policy, first, (at("t-1", None, declared_s=40),)).after_us == 40 * S


def test_a_partition_that_declares_nothing_any_more_may_be_idle() -> None:
    policy = declared("told", idle_after="1 minute")
    begun = (at("t-0", 10, 100, declared_s=70), at("t-1", 10, 100, declared_s=20))
    assert tracked(policy, begun, (at("t-0", 10, 170, declared_s=90),)).after_us == 90 * S


@pytest.mark.parametrize("policy", [perfect(), bounded("1 hour"), adaptive(), declared("told")])
def test_at_the_end_of_the_input_everything_is_complete(policy: Policy) -> None:
    step = track(policy, None, Arrivals(rows=NO_ROWS, progress=(at("t-0", 5),), is_end=True))
    assert (step.before_us, step.after_us) == (BEGINNING_US, END_US)


def test_an_adaptive_delay_is_what_the_quantile_of_rows_is_late_by() -> None:
    # 900 rows in order, 90 less than 2 ms late, 10 less than 1,024 ms.
    lateness = (900, 90, 0, 0, 0, 0, 0, 0, 0, 0, 10)
    policy = adaptive(quantile=0.95, at_least="0 seconds")
    assert tracked(policy, (at("t-0", 100, lateness=lateness),)).after_us == 100 * S - 2_000
    policy = adaptive(quantile=0.995, at_least="0 seconds")
    assert tracked(policy, (at("t-0", 100, lateness=lateness),)).after_us == 100 * S - 1_024_000


def test_an_adaptive_delay_keeps_to_its_bounds() -> None:
    in_order = at("t-0", 100, lateness=(1_000,))
    assert tracked(adaptive(at_least="3 seconds"), (in_order,)).after_us == 97 * S
    very_late = at("t-0", 100, lateness=(*([0] * 30), 1_000))
    assert tracked(adaptive(at_most="20 seconds"), (very_late,)).after_us == 80 * S


def test_until_enough_was_seen_an_adaptive_delay_is_the_longest() -> None:
    assert tracked(adaptive(at_most="20 seconds"), (at("t-0", 100, lateness=(99,)),)).after_us == 80 * S


def test_rows_are_late_by_what_came_in_earlier_batches() -> None:
    policy = adaptive(quantile=0.5, at_least="0 seconds")
    # All of them in order among themselves, and a minute behind what was there before.
    behind = at("t-0", 40, lateness=(1_000,), begins_s=40)
    assert tracked(policy, (at("t-0", 100),), (behind,)).after_us == 100 * S - 65_536_000
    assert tracked(policy, (at("t-1", 100),), (behind,)).after_us == 40 * S


def test_only_an_adaptive_delay_counts_how_late_rows_are() -> None:
    step = tracked(bounded("0 seconds"), (at("t-0", 100),))
    progress = (at("t-0", 50, lateness=(5, 5)),)
    assert (
        track(bounded("0 seconds"), step.table, Arrivals(rows=NO_ROWS, progress=progress)).table is step.table
    )


def test_what_was_late_long_ago_is_forgotten_by_and_by() -> None:
    policy = adaptive(at_least="0 seconds")
    late, in_order = at("t-0", 100, lateness=(0,) * 11 + (10_000,)), at("t-0", 200, lateness=(100_000,))
    assert tracked(policy, (late,), (in_order,)).after_us == 200 * S - 2_048_000
    assert tracked(policy, (late,), *[(in_order,)] * 5).after_us == 200 * S


def test_the_log_time_is_when_the_newest_record_was_written() -> None:
    step = tracked(bounded("0 seconds"), (at("t-0", 100, 500), at("t-1", 40, 700)), (at("t-0", 300, 600),))
    assert step.log_time_us == 700 * S


def test_where_records_have_no_time_the_newest_event_stands_in_for_the_log_time() -> None:
    assert (
        tracked(bounded("0 seconds"), (at("task-0", 100, None), at("task-1", 40, None))).log_time_us
        == 100 * S
    )


def test_a_batch_without_news_leaves_the_table_as_it_is() -> None:
    step = tracked(bounded("0 seconds"), (at("t-0", 100),))
    again = track(bounded("0 seconds"), step.table, Arrivals(rows=NO_ROWS, progress=(at("t-0", 50),)))
    assert again.table is step.table


def test_what_holds_the_watermark_back_can_be_seen() -> None:
    policy = bounded("10 seconds", idle_after="1 minute")
    step = tracked(
        policy,
        (at("t-0", 100, record_s=100), at("t-1", 40, record_s=40), at("t-2", None, record_s=100)),
        (at("t-0", 101, record_s=101), at("t-3", 60, record_s=60)),
    )
    places = standings(policy, step.table)
    assert [(place.source, place.is_idle) for place in places] == [
        ("t-3", False),
        ("t-0", False),
        ("t-2", False),
        ("t-1", True),
    ]
    assert places[0].passed_us == 50 * S
    assert places[2].passed_us is None


def test_an_event_beyond_all_calendars_does_not_move_the_watermark_beyond_them() -> None:
    progress = SourceProgress(source="t-0", row_count=1, event_time_us_max=2**63 - 1, record_time_us_max=0)
    step = track(bounded("0 seconds"), None, Arrivals(rows=NO_ROWS, progress=(progress,)))
    assert step.after_us == EVENT_TIME_US_MAX


def test_a_table_of_an_older_version_is_read_with_defaults() -> None:
    old = pa.table({"source": pa.array(["t-0", None]), "event_us": [100 * S, 100 * S], "record_us": [0, 0]})
    step = track(bounded("0 seconds"), old, Arrivals(rows=NO_ROWS, progress=(at("t-1", 300),)))
    assert (step.before_us, step.after_us) == (BEGINNING_US, 100 * S)


times = st.none() | st.integers(-1_000, 1_000)
steps = st.lists(st.lists(st.tuples(st.sampled_from("abc"), times, st.integers(0, 300)), max_size=3))


@given(steps, st.none() | st.integers(1, 100), st.integers(0, 50))
def test_the_watermark_never_goes_back_and_a_repeated_step_says_the_same(
    batches: list[list[tuple[str, int | None, int]]], idle_s: int | None, delay_s: int
) -> None:
    policy = bounded(f"{delay_s} seconds", idle_after=None if idle_s is None else f"{idle_s} seconds")
    table, newest = None, BEGINNING_US
    for batch in batches:
        arrivals = Arrivals(rows=NO_ROWS, progress=tuple(at(*source) for source in batch))
        step = track(policy, table, arrivals)
        assert step == track(policy, table, arrivals)
        assert step.before_us == newest
        assert step.after_us >= step.before_us
        table, newest = step.table, step.after_us


@given(st.lists(st.floats(0, 1e6), max_size=40), st.floats(0.01, 0.999))
def test_an_adaptive_delay_is_always_within_its_bounds(lateness: list[float], quantile: float) -> None:
    policy = adaptive(quantile=quantile, at_least="2 seconds", at_most="1 minute")
    assert 2 * S <= delay_now_us(policy, tuple(lateness)) <= 60 * S


def test_what_the_watermark_waits_for_is_told_with_it() -> None:
    policy = bounded("10 seconds", idle_after="1 minute")
    step = tracked(policy, (at("t-0", 100, 100), at("t-1", 40, 41), at("t-2", 5, 6)), (at("t-0", 102, 103),))
    assert step.report == TimeReport(
        watermark_us=92 * S,
        delay_us=10 * S,
        idle_after_us=60 * S,
        newest_event_us=102 * S,
        newest_record_us=103 * S,
        source_count=3,
        sources=tuple(standings(policy, step.table)),
    )
    assert [(each.source, each.is_idle) for each in step.report.sources] == [
        ("t-0", False),
        ("t-2", True),
        ("t-1", True),
    ]


def test_of_many_sources_those_are_told_that_hold_the_watermark_back() -> None:
    many = tuple(at(f"t-{number}", 1000 - number) for number in range(3 * SOURCES_TOLD_MAX))
    told = tracked(bounded("0 seconds"), many).report
    assert told.source_count == len(many)
    assert [each.source for each in told.sources] == [
        each.source for each in reversed(many[-SOURCES_TOLD_MAX:])
    ]


def test_tasks_are_not_told_because_the_next_batch_has_others() -> None:
    told = tracked(bounded("0 seconds"), (at("task-0", 7, None),)).report
    assert (told.watermark_us, told.source_count, told.sources) == (7 * S, 0, ())


def test_as_long_as_there_is_no_watermark_none_is_told() -> None:
    told = tracked(perfect(), (at("t-0", 7),)).report
    assert (told.watermark_us, told.delay_us, told.newest_event_us) == (None, None, 7 * S)
