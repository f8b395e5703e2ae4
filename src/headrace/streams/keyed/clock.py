"""How far event time has come for a user's function, and what is kept of it; nothing where it has none."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.driver.event_time import TimeReport
from headrace.streams.buckets.logic import Arrivals, Tables
from headrace.streams.keyed.fields import TIME
from headrace.streams.time.bounds import BEGINNING_US, END_US
from headrace.streams.time.policies import Policy
from headrace.streams.time.watermarks import track
from headrace.streams.windows.results import watermark_gauge


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """The event time of a micro-batch."""

    before_us: int
    """The watermark before its rows."""
    after_us: int
    """The watermark after them."""
    kept: Tables
    """The table to keep, by its name."""
    gauges: dict[str, int]
    time_report: TimeReport | None = None


def read_clock(state: Tables, arrivals: Arrivals, *, event_time: str | None, watermark: Policy) -> Clock:
    """Advance event time by a micro-batch."""
    if event_time is None:
        after_us = END_US if arrivals.is_end else BEGINNING_US
        return Clock(before_us=BEGINNING_US, after_us=after_us, kept={}, gauges={})
    tracked = track(watermark, state.get(TIME), arrivals)
    return Clock(
        before_us=tracked.before_us,
        after_us=tracked.after_us,
        kept={TIME: tracked.table},
        gauges=watermark_gauge(tracked.after_us),
        time_report=tracked.report,
    )
