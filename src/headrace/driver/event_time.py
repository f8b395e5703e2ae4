"""How far event time has come in an operator of a pipeline, and what it waits for. Pure.

Operators tell it with each batch, and the driver writes it into the pipeline's status. Times are microseconds
since 1970.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

SOURCES_TOLD_MAX: Final = 20
"""Of more sources, those are told that hold time back most."""

_EPOCH: Final = datetime.fromtimestamp(0, UTC)
_FIRST: Final = datetime.min.replace(tzinfo=UTC)
_LAST: Final = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where a source stands: why the watermark is where it is."""

    source: str
    """`transactions-3`: the topic and the partition."""
    event_us: int | None
    """Its newest event."""
    record_us: int | None
    """When its newest record was written."""
    passed_us: int | None
    """Up to when it is complete by the policy; None where it has had no event with a time."""
    is_idle: bool
    """Whether it is left out, because it has had nothing for `idle_after`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeReport:
    """How far an operator is, after a batch."""

    watermark_us: int | None
    """None as long as it has none."""
    delay_us: int | None
    """How long events are waited for now; None where the sources themselves declare how far they are."""
    idle_after_us: int | None
    newest_event_us: int | None
    newest_record_us: int | None
    """Over all sources; None where nothing is known."""
    source_count: int
    sources: tuple[Standing, ...] = ()
    """Those first that hold the watermark back, and SOURCES_TOLD_MAX at most."""


def time_report(content: Mapping[str, Any]) -> TimeReport:
    """Read a report, as a status holds it in JSON."""
    sources = tuple(Standing(**source) for source in content["sources"])
    return TimeReport(**{**content, "sources": sources})


def moment(time_us: int) -> datetime:
    """The time as a calendar has it; the calendar's first or last moment where it does not reach so far."""
    try:
        return _EPOCH + timedelta(microseconds=time_us)
    except OverflowError:
        return _FIRST if time_us < 0 else _LAST
