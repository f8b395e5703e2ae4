"""The two sides of a join, put together as one stream, and how far event time has come in both.

The rows of both sides have all columns of either; those of the other side are null. Beside them there are

    _join_right      whether it is a row of the right side
    _join_hash       a hash of the key: equal keys have equal ones
    _join_time       its event time
    _join_declared   how far its source says that it is, where a side's sources do

The names of sources begin with their side: `left impressions-0`. Each side has a watermark of its own, by its
own policy. The join's time is the lesser of both: what can still come on either side is not older. Where a
side's policy knows `idle_after`, a side whose newest record is older than that, measured by the newest record
of both, holds nothing back; one that has had no record at all is as old as the first of the other. The
join's time never goes back.

State: `watermark.left` and `watermark.right` as they are tracked, and `clock`, with one row:

    watermark_us, first_record_us     the join's time; when the first record of either side was written
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from headrace.driver.event_time import SOURCES_TOLD_MAX, Standing, TimeReport
from headrace.streams.buckets.logic import Arrivals, SourceProgress, Tables
from headrace.streams.buckets.sources import merged
from headrace.streams.time.bounds import BEGINNING_US, END_US
from headrace.streams.time.policies import Policy
from headrace.streams.time.watermarks import Tracked, track

LEFT: Final = "left"
RIGHT: Final = "right"
SIDES: Final = (LEFT, RIGHT)

IS_RIGHT: Final = "_join_right"
HASH: Final = "_join_hash"
TIME: Final = "_join_time"
DECLARED: Final = "_join_declared"
CLOCK: Final = "clock"

_CLOCK: Final = pa.schema({"watermark_us": pa.int64(), "first_record_us": pa.int64()})


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinTime:
    """What a micro-batch has done to the time of a join."""

    tables: Tables
    """To be kept."""
    before_us: int
    """By which the micro-batch's rows are judged."""
    after_us: int
    report: TimeReport


def side_of(source: str) -> str:
    """The side that a source is of, by its name."""
    return source.partition(" ")[0]


def source_name(side: str, topic: str) -> str:
    """How a topic is called as a source of a side."""
    return f"{side} {topic}"


def progress_of_side(side: str, progress: Iterable[SourceProgress]) -> tuple[SourceProgress, ...]:
    """The progress of a side's sources, under their own names."""
    return merged(
        replace(each, source=each.source.partition(" ")[2])
        for each in progress
        if side_of(each.source) == side
    )


def track_sides(policies: Mapping[str, Policy], state: Tables, arrivals: Arrivals) -> JoinTime:
    """Advance the time of a join by a micro-batch. There is a policy for each side that counts."""
    clock = state.get(CLOCK)
    before_us, first_us = (BEGINNING_US, None) if clock is None else _read(clock)
    tracked = {
        side: track(
            policy,
            state.get(f"watermark.{side}"),
            replace(arrivals, progress=progress_of_side(side, arrivals.progress)),
        )
        for side, policy in policies.items()
    }
    newest = [each.report.newest_record_us for each in tracked.values()]
    newest_us = max((each for each in newest if each is not None), default=None)
    if first_us is None:
        first_us = newest_us
    here = {side_of(each.source) for each in arrivals.progress if each.row_count}
    waited_for = [
        each.after_us
        for side, each in tracked.items()
        if side in here or not _is_idle(policies[side], each, newest_us, first_us)
    ]
    after_us = max(before_us, min(waited_for, default=before_us))
    is_same = clock is not None and _read(clock) == (after_us, first_us)
    tables = {f"watermark.{side}": each.table for side, each in tracked.items()}
    return JoinTime(
        tables={**tables, CLOCK: clock if is_same else _written(after_us, first_us)},
        before_us=before_us,
        after_us=after_us,
        report=_report(after_us, [each.report for each in tracked.values()]),
    )


def _is_idle(policy: Policy, tracked: Tracked, newest_us: int | None, first_us: int | None) -> bool:
    last_us = tracked.report.newest_record_us
    since_us = first_us if last_us is None else last_us
    if policy.idle_after_us is None or newest_us is None or since_us is None:
        return False
    return newest_us - since_us > policy.idle_after_us


def _report(after_us: int, reports: list[TimeReport]) -> TimeReport:
    """What is told of both sides together."""

    def hold(place: Standing) -> tuple[bool, bool, int]:
        return place.is_idle, place.passed_us is None, place.passed_us or 0

    def longest(values: Iterable[int | None]) -> int | None:
        return max((value for value in values if value is not None), default=None)

    sources = sorted((place for report in reports for place in report.sources), key=hold)
    return TimeReport(
        watermark_us=after_us if BEGINNING_US < after_us < END_US else None,
        delay_us=longest(report.delay_us for report in reports),
        idle_after_us=longest(report.idle_after_us for report in reports),
        newest_event_us=longest(report.newest_event_us for report in reports),
        newest_record_us=longest(report.newest_record_us for report in reports),
        source_count=sum(report.source_count for report in reports),
        sources=tuple(sources[:SOURCES_TOLD_MAX]),
    )


def _read(clock: pa.Table) -> tuple[int, int | None]:
    (row,) = clock.to_pylist()
    return row["watermark_us"], row.get("first_record_us")


def _written(watermark_us: int, first_record_us: int | None) -> pa.Table:
    rows = [{"watermark_us": watermark_us, "first_record_us": first_record_us}]
    return pa.Table.from_pylist(rows, schema=_CLOCK)
