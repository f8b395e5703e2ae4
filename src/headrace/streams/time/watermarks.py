"""How far event time is known to be complete, step by step, from what every source has come to.

The rules, in each micro-batch:

- A source has passed its newest event less the policy's delay, or what it has declared, whichever is more.
- The watermark is what all sources have passed: the least of them rules. So a partition that lags behind, as
  on replay, is waited for. It never goes back.
- A source that has no rows now, and whose newest record is more than `idle_after` older than the newest of
  all, is idle, and left out. When it has rows again it counts again.
- Sources that don't say when their records were written are tasks, which only this micro-batch knows: they
  are not remembered, and `idle_after` means nothing to them.
- A source that never had an event with a time is left out; where sources declare how far they are, one that
  has not done so yet is waited for.
- A micro-batch without rows changes nothing.
- At the end of the input the watermark is the end of time.

The log's time is when the newest record was written, over all sources; where that is not known, the newest
event stands in for it. It does not go back either. All of this comes from the rows alone, never from a clock,
so that a micro-batch that runs again comes to the same.

The table that is kept has a row for each source, and one with no source for what is common to all:

    source, event_us, record_us, declared_us, is_here     a source: the newest it has come to, and whether it
                                                          had rows in the last micro-batch
    null, event_us, record_us, watermark_us, lateness     all: the newest, the watermark, decayed counts
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa

from headrace.driver.event_time import SOURCES_TOLD_MAX, Standing, TimeReport
from headrace.streams.buckets.logic import Arrivals, SourceProgress
from headrace.streams.time.bounds import BEGINNING_US, END_US, EVENT_TIME_US_MAX, EVENT_TIME_US_MIN
from headrace.streams.time.lateness import lateness_counts
from headrace.streams.time.policies import Adaptive, Bounded, Declared, Policy

HALF_LIFE_ROWS: Final = 100_000
"""After so many rows, a row counts half in what lateness is expected."""

_SCHEMA: Final = pa.schema(
    {
        "source": pa.string(),
        "event_us": pa.int64(),
        "record_us": pa.int64(),
        "declared_us": pa.int64(),
        "is_here": pa.bool_(),
        "watermark_us": pa.int64(),
        "lateness": pa.list_(pa.float64()),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tracked:
    """What a micro-batch has done to the watermark."""

    table: pa.Table
    """To be kept, and given to the next step; the same object as before where nothing has changed."""
    before_us: int
    """The watermark by which the micro-batch's rows are judged; BEGINNING_US at first."""
    after_us: int
    """The watermark by which windows fire; END_US at the end of the input."""
    log_time_us: int
    """When the newest record was written, as far as is known; BEGINNING_US where nothing is."""
    report: TimeReport
    """What is told of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    event_us: int | None = None
    record_us: int | None = None
    declared_us: int | None = None
    is_here: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    sources: Mapping[str, _Source]
    all: _Source
    watermark_us: int
    lateness: tuple[float, ...]


def track(policy: Policy, tracked: pa.Table | None, arrivals: Arrivals) -> Tracked:
    """Advance the watermark by a micro-batch. `tracked` is the table of the step before."""
    known = _read(tracked)
    progress = [source for source in arrivals.progress if source.row_count]
    here = {source.source: _newest(known.sources.get(source.source), source) for source in progress}
    # Without any rows, whoever was here last still is.
    away = {
        name: replace(source, is_here=source.is_here and not here) for name, source in known.sources.items()
    }
    sources = {**away, **here}
    newest = _Source(
        event_us=_greatest(known.all.event_us, *(source.event_us for source in here.values())),
        record_us=_greatest(known.all.record_us, *(source.record_us for source in here.values())),
    )
    is_adaptive = isinstance(policy, Adaptive)
    lateness = _decayed(known, progress) if is_adaptive else known.lateness
    places = _standings(policy, sources, newest.record_us, lateness)
    after_us = known.watermark_us
    if arrivals.is_end:
        after_us = END_US
    elif _has_begun(policy, places):
        passed = [place.passed_us for place in places if place.passed_us is not None and not place.is_idle]
        after_us = max(after_us, min(passed, default=after_us))
    after = _Known(
        sources={name: source for name, source in sources.items() if source.record_us is not None},
        all=newest,
        watermark_us=after_us,
        lateness=lateness,
    )
    return Tracked(
        table=tracked if tracked is not None and after == known else _written(after),
        before_us=known.watermark_us,
        after_us=after_us,
        log_time_us=_log_time_us(newest),
        report=_report(policy, after, places),
    )


def standings(policy: Policy, tracked: pa.Table) -> list[Standing]:
    """Where each source stands, those first that hold the watermark back.

    Sources that only one micro-batch knows are not among them.
    """
    known = _read(tracked)
    return _by_hold(_standings(policy, known.sources, known.all.record_us, known.lateness))


def delay_now_us(policy: Adaptive, lateness: tuple[float, ...]) -> int:
    """The delay that the lateness seen asks for: the upper bound of the entry in which the quantile falls.

    While fewer rows were seen than it takes to see the quantile at all, it is the longest: a watermark that
    came too far can't go back.
    """
    total = sum(lateness)
    if total * (1 - policy.quantile) < 1:
        return policy.at_most_us
    seen, delay_us = 0.0, 0
    for entry, count in enumerate(lateness):
        seen += count
        if seen >= total * policy.quantile:
            delay_us = 0 if entry == 0 else 1_000 << entry
            break
    return min(max(delay_us, policy.at_least_us), policy.at_most_us)


def _newest(before: _Source | None, now: SourceProgress) -> _Source:
    before = before or _Source()
    return _Source(
        event_us=_greatest(before.event_us, _in_bounds(now.event_time_us_max)),
        record_us=_greatest(before.record_us, now.record_time_us_max),
        declared_us=_greatest(before.declared_us, _in_bounds(now.declared_us)),
        is_here=True,
    )


def _standings(
    policy: Policy,
    sources: Mapping[str, _Source],
    newest_record_us: int | None,
    lateness: tuple[float, ...],
) -> list[Standing]:
    return [
        Standing(
            source=name,
            event_us=source.event_us,
            record_us=source.record_us,
            passed_us=_passed_us(source, policy, lateness),
            is_idle=_is_idle(source, newest_record_us, policy.idle_after_us),
        )
        for name, source in sources.items()
    ]


def _has_begun(policy: Policy, places: Iterable[Standing]) -> bool:
    """Whether all have spoken who must have, so that the watermark can move."""
    if not isinstance(policy, Declared) or policy.partitions is None:
        return True
    return sum(place.passed_us not in {None, BEGINNING_US} for place in places) >= policy.partitions


def _by_hold(places: Iterable[Standing]) -> list[Standing]:
    return sorted(places, key=lambda place: (place.is_idle, place.passed_us is None, place.passed_us or 0))


def _report(policy: Policy, known: _Known, places: Iterable[Standing]) -> TimeReport:
    kept = _by_hold(place for place in places if place.source in known.sources)
    return TimeReport(
        watermark_us=known.watermark_us if BEGINNING_US < known.watermark_us < END_US else None,
        delay_us=_delay_us(policy, known.lateness),
        idle_after_us=policy.idle_after_us,
        newest_event_us=known.all.event_us,
        newest_record_us=known.all.record_us,
        source_count=len(kept),
        sources=tuple(kept[:SOURCES_TOLD_MAX]),
    )


def _is_idle(source: _Source, newest_record_us: int | None, idle_after_us: int | None) -> bool:
    if idle_after_us is None or newest_record_us is None or source.record_us is None or source.is_here:
        return False
    return newest_record_us - source.record_us > idle_after_us


def _passed_us(source: _Source, policy: Policy, lateness: tuple[float, ...]) -> int | None:
    """Up to when a source is complete; None where it does not count, having no event with a time."""
    delay_us = _delay_us(policy, lateness)
    if delay_us is None:
        return BEGINNING_US if source.declared_us is None else source.declared_us
    if source.event_us is None:
        return source.declared_us
    return _greatest(source.event_us - delay_us, source.declared_us)


def _delay_us(policy: Policy, lateness: tuple[float, ...]) -> int | None:
    """How long is waited for events; None where the sources themselves declare how far they are."""
    if isinstance(policy, Bounded):
        return policy.delay_us
    return delay_now_us(policy, lateness) if isinstance(policy, Adaptive) else None


def _decayed(known: _Known, progress: Iterable[SourceProgress]) -> tuple[float, ...]:
    """The lateness of all rows so far, the older ones counting less."""
    counts = [
        lateness_counts(source.lateness, known.sources.get(source.source, _Source()).event_us)
        for source in progress
    ]
    rows = sum(sum(entries) for entries in counts)
    if not rows:
        return known.lateness
    kept = 0.5 ** (rows / HALF_LIFE_ROWS)
    size = max(len(known.lateness), *(len(entries) for entries in counts))
    return tuple(
        (known.lateness[i] * kept if i < len(known.lateness) else 0.0)
        + sum(entries[i] for entries in counts if i < len(entries))
        for i in range(size)
    )


def _log_time_us(newest: _Source) -> int:
    if newest.record_us is not None:
        return newest.record_us
    return BEGINNING_US if newest.event_us is None else newest.event_us


def _greatest(*times_us: int | None) -> int | None:
    return max((time_us for time_us in times_us if time_us is not None), default=None)


def _in_bounds(time_us: int | None) -> int | None:
    """No event can be outside of the times that events have, so none moves the watermark there."""
    return None if time_us is None else min(max(time_us, EVENT_TIME_US_MIN), EVENT_TIME_US_MAX)


def _read(table: pa.Table | None) -> _Known:
    rows: list[dict[str, Any]] = [] if table is None else table.to_pylist()
    # A column that an older version did not write is read as null.
    sources = {str(row["source"]): _source(row) for row in rows if row["source"] is not None}
    common: dict[str, Any] = next((row for row in rows if row["source"] is None), {})
    watermark_us = common.get("watermark_us")
    return _Known(
        sources=sources,
        all=replace(_source(common), declared_us=None),
        watermark_us=BEGINNING_US if watermark_us is None else watermark_us,
        lateness=tuple(common.get("lateness") or ()),
    )


def _source(row: Mapping[str, Any]) -> _Source:
    return _Source(
        event_us=row.get("event_us"),
        record_us=row.get("record_us"),
        declared_us=row.get("declared_us"),
        is_here=bool(row.get("is_here")),
    )


def _written(known: _Known) -> pa.Table:
    rows = [
        {
            "source": name,
            "event_us": source.event_us,
            "record_us": source.record_us,
            "declared_us": source.declared_us,
            "is_here": source.is_here,
        }
        for name, source in sorted(known.sources.items())
    ]
    common = {
        "source": None,
        "event_us": known.all.event_us,
        "record_us": known.all.record_us,
        "watermark_us": known.watermark_us,
        "lateness": list(known.lateness),
    }
    return pa.Table.from_pylist([*rows, common], schema=_SCHEMA)
