"""How far time has come in the join of a stream with a table.

The stream has a watermark, by its topic's policy. The table's time is the least of what its partitions have
come to: changes are in order in each, so that nothing older comes. A partition that has brought no change yet
is not known, and not waited for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from headrace.driver.event_time import TimeReport
from headrace.streams.buckets.logic import Arrivals, Tables
from headrace.streams.joins.asked import AsOf, Version
from headrace.streams.joins.sides import LEFT, RIGHT, progress_of_side, side_of
from headrace.streams.time.bounds import BEGINNING_US, END_US
from headrace.streams.time.policies import Bounded, Policy
from headrace.streams.time.watermarks import track

_IN_ORDER: Final = Bounded(delay_us=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupTime:
    """What a micro-batch has done to time."""

    tables: Tables
    """To be kept."""
    before_us: int
    """The stream's watermark by which events are judged."""
    after_us: int
    ready_us: int
    """Events that are older need not wait for the table."""
    horizon_us: int
    """What the table was before this is not asked for any more."""
    report: TimeReport | None


def track_lookup(watermark: Policy | None, version: Version, state: Tables, arrivals: Arrivals) -> LookupTime:
    """Advance time by a micro-batch."""
    if watermark is None:
        end_us = END_US if arrivals.is_end else BEGINNING_US
        return LookupTime(
            tables={},
            before_us=BEGINNING_US,
            after_us=end_us,
            ready_us=END_US,
            horizon_us=END_US,
            report=None,
        )
    events = tuple(each for each in arrivals.progress if side_of(each.source) != RIGHT)
    stream = track(watermark, state.get(f"watermark.{LEFT}"), replace(arrivals, progress=events))
    tables = {f"watermark.{LEFT}": stream.table}
    ready_us, horizon_us = END_US, END_US
    if isinstance(version, AsOf):
        horizon_us = stream.after_us - version.keep_us
    if isinstance(version, AsOf) and version.wait_us is not None:
        changes = progress_of_side(RIGHT, arrivals.progress)
        table = track(_IN_ORDER, state.get(f"watermark.{RIGHT}"), replace(arrivals, progress=changes))
        tables[f"watermark.{RIGHT}"] = table.table
        ready_us = max(table.after_us, stream.after_us - version.wait_us + 1)
    return LookupTime(
        tables=tables,
        before_us=stream.before_us,
        after_us=stream.after_us,
        ready_us=ready_us,
        horizon_us=horizon_us,
        report=stream.report,
    )
