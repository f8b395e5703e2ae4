"""Why windows have not ended yet, in sentences, from the status of a pipeline. Pure.

A window ends when the watermark passes its end. What keeps the watermark back is looked for in this order,
and all that is found is said:

    an event from the future     it is ahead of the clock: nothing waits, and rows that come in time are late
    no rows                      nothing has been written for NO_ROWS_US, and all was read: only newer events
                                 move time on
    records yet to be read       the pipeline is behind the log
    a partition                  its newest event is more than APART_US older than the newest of all: because
                                 it is silent, or because what is written to it is old

Else it is as far as its delay lets it be.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from headrace.driver.event_time import SOURCES_TOLD_MAX, Standing, TimeReport, moment
from headrace.driver.status import Status

APART_US: Final = 10_000_000
"""Partitions that are less apart are side by side."""
NO_ROWS_US: Final = 60_000_000
"""So long without a record is silence."""

_UNITS_US: Final = {
    "day": 86_400_000_000,
    "hour": 3_600_000_000,
    "minute": 60_000_000,
    "second": 1_000_000,
    "millisecond": 1_000,
}
_UNITS_SHOWN: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """What the windows of an operator wait for."""

    operator: str
    is_held_back: bool
    """Whether something keeps the watermark from where its delay would let it be."""
    found: str
    advice: str
    """What can be done about it."""


@dataclass(frozen=True, slots=True)
class _Cause:
    found: str
    advice: str


def waiting(status: Status, now: datetime) -> Iterator[Waiting]:
    """What the operators of a running pipeline wait for; nothing where it does not run or has no windows."""
    if status.state != "running":
        return
    now_us = (now - datetime.fromtimestamp(0, UTC)) // timedelta(microseconds=1)
    for operator, report in sorted(status.time_reports.items()):
        causes = list(_causes(report, status.lag or 0, now_us))
        told = causes or [_in_course(report)]
        yield Waiting(
            operator=operator,
            is_held_back=bool(causes),
            found="; ".join([_watermark(report, now_us), *(cause.found for cause in told)]),
            advice="; ".join(cause.advice for cause in told),
        )


def _watermark(report: TimeReport, now_us: int) -> str:
    if report.watermark_us is None:
        return "it has no watermark yet"
    behind_us = now_us - report.watermark_us
    side = "behind" if behind_us >= 0 else "ahead of"
    return f"its watermark is {_time(report.watermark_us)}, {_length(abs(behind_us))} {side} the clock"


def _causes(report: TimeReport, lag: int, now_us: int) -> Iterator[_Cause]:
    newest_us = report.newest_event_us
    if report.watermark_us is not None and report.watermark_us - now_us > NO_ROWS_US:
        yield _Cause(
            "events from the future have moved it on, and rows that come now may be late",
            "give the topic max_ahead=, so that such events are dead letters",
        )
    if newest_us is None and report.delay_us is not None:
        yield _Cause("no event with a time has come yet", "look at the topic, and at its event_time=")
    yield from _flow(report, lag, now_us)
    holder = next((source for source in report.sources if not source.is_idle), None)
    if report.delay_us is None:
        behind_us = (newest_us or 0) - (report.watermark_us or 0)
        if report.watermark_us is None or behind_us > APART_US:
            yield _undeclared(holder)
    elif holder is not None and holder.event_us is not None and newest_us is not None:
        if newest_us - holder.event_us > APART_US:
            yield _held_by(holder, report, newest_us)
    elif not report.source_count and report.watermark_us is not None:
        yield _Cause(
            "which partition it waits for is not known, since the rows come without `_kafka`",
            "keep the column `_kafka` in what the operator is given",
        )


def _flow(report: TimeReport, lag: int, now_us: int) -> Iterator[_Cause]:
    if lag > 0:
        yield _Cause(
            f"{lag} records were yet to be read when the last batch began, and windows end as they are",
            "see by `headrace pipelines` whether the lag goes down",
        )
    elif report.newest_record_us is not None and now_us - report.newest_record_us > NO_ROWS_US:
        ago = _length(now_us - report.newest_record_us)
        yield _Cause(
            f"no rows since {_time(report.newest_record_us)}, {ago} ago: windows end when newer events come",
            "look at the topic's producers",
        )


def _held_by(holder: Standing, report: TimeReport, newest_us: int) -> _Cause:
    assert holder.event_us is not None, "only who has had an event holds time back"
    behind = _length(newest_us - holder.event_us)
    found = (
        f"{holder.source}{_others(holder, report, newest_us)} holds it back: its newest event is of "
        f"{_time(holder.event_us)}, {behind} before the newest of all"
    )
    producer = f"look at what writes to {holder.source}"
    if holder.record_us is None or report.newest_record_us is None:
        return _Cause(found, producer)
    silent_us = report.newest_record_us - holder.record_us
    if silent_us <= APART_US:
        return _Cause(
            f"{found}, although it was written at {_time(holder.record_us)}",
            f"{producer}: its events are old, as when a log is replayed or a clock is slow",
        )
    found = f"{found}, and it is silent since {_time(holder.record_us)}"
    producer += ", and at filters before the operator, which may leave its rows out"
    if report.idle_after_us is None:
        return _Cause(
            f"{found}; no idle_after is set, so it is waited for without end",
            f'{producer}, or give the watermark an idle_after: hr.bounded(..., idle_after="5 minutes")',
        )
    idle_after = _length(report.idle_after_us)
    return _Cause(
        f"{found}; it is waited for until other records are more than {idle_after} newer, by idle_after",
        f"{producer}, or give the watermark a shorter idle_after",
    )


def _others(holder: Standing, report: TimeReport, newest_us: int) -> str:
    """How many more would hold it back if the first did not: ` (and 2 more after it)`."""
    count = sum(
        source is not holder
        and not source.is_idle
        and source.event_us is not None
        and newest_us - source.event_us > APART_US
        for source in report.sources
    )
    at_least = "at least " if count + 1 == SOURCES_TOLD_MAX < report.source_count else ""
    return f" (and {at_least}{count} more after it)" if count else ""


def _undeclared(holder: Standing | None) -> _Cause:
    who = "no source has declared" if holder is None else f"it waits for {holder.source} to declare"
    return _Cause(
        f"{who} how far it is, as hr.declared() asks",
        "let its producer say so in the column that is named there; a filter before the operator may keep "
        'that from it; or use hr.bounded("30 seconds")',
    )


def _in_course(report: TimeReport) -> _Cause:
    if report.delay_us is None:
        return _Cause(
            "nothing holds it back: it is as far as the sources have declared",
            "producers that say more often how far they are end windows sooner",
        )
    return _Cause(
        f"nothing holds it back: it follows the newest event by its delay, {_length(report.delay_us or 0)}",
        "a shorter delay ends windows sooner, and more rows are late",
    )


def _time(time_us: int) -> str:
    return moment(time_us).isoformat(timespec="seconds").replace("+00:00", "Z")


def _length(length_us: int) -> str:
    """The length in its two largest units: `2 days 3 hours`."""
    parts = []
    for unit, unit_us in _UNITS_US.items():
        count, length_us = divmod(length_us, unit_us)
        if count:
            parts.append(f"{count} {unit}{'' if count == 1 else 's'}")
    return " ".join(parts[:_UNITS_SHOWN]) or "0 seconds"
