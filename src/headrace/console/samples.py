"""When input events happened and where, from a sample of the input topic.

A page can't read all of a busy input, and need not: a few dozen records a second show how late events come
and where they are. A sample is a record whose JSON has an event time; a place is taken where there is one.

    event time    when it happened, by the field that the view names
    record time   when it was written to the topic: the processing time of the page's chart
    delay         record time minus event time; below zero when a clock is ahead

Records without a readable event time are counted and not shown. Memory is bounded: the newest
SAMPLE_COUNT_MAX samples of the last WINDOW_S.
"""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headrace.console.decode import VALUE_BYTES_MAX, instant_ms, place_of
from headrace.console.latency import quantile

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.console.view import View

WINDOW_S: Final = 90.0
SAMPLE_COUNT_MAX: Final = 900
PLACE_COUNT_MAX: Final = 300
DATE_MS_MAX: Final = 253_402_300_799_999
"""The last millisecond of the year 9999: later than that, a time is a mistake."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRecord:
    """One record of the input topic, as it was read."""

    value: bytes | None
    timestamp_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One event of the input."""

    event_ms: int
    record_ms: int
    place: tuple[float, float] | None
    """Latitude and longitude."""

    @property
    def delay_ms(self) -> int:
        """How much later than it happened it was written."""
        return self.record_ms - self.event_ms


def sample_of(record: InputRecord, view: View) -> Sample | None:
    """What the page shows of a record; None where it does not say when it happened."""
    if record.value is None or record.timestamp_ms is None or view.event_time is None:
        return None
    if len(record.value) > VALUE_BYTES_MAX:
        return None
    try:
        fields = json.loads(record.value)
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict):
        return None
    event_ms = _time_ms(fields.get(view.event_time))
    if event_ms is None:
        return None
    place = place_of(fields, view.latitude, view.longitude)
    return Sample(event_ms=event_ms, record_ms=record.timestamp_ms, place=place)


def _time_ms(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        # The range tells NaN and infinity too, and, unlike isfinite, takes integers that no float can hold.
        return int(value) if abs(value) <= DATE_MS_MAX else None
    return instant_ms(value)


class SampleWindow:
    """The samples of the last WINDOW_S. Not safe to share between threads."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, Sample]] = deque(maxlen=SAMPLE_COUNT_MAX)
        self.unreadable_count = 0

    def add(self, at_s: float, samples: Iterable[Sample | None]) -> None:
        """Take in what was sampled at a moment; None is a record that could not be read."""
        for sample in samples:
            if sample is None:
                self.unreadable_count += 1
            else:
                self._samples.append((at_s, sample))

    def summary(self, at_s: float) -> dict[str, Any]:
        """The samples as the page gets them: pairs of record time and event time, and places."""
        while self._samples and self._samples[0][0] < at_s - WINDOW_S:
            self._samples.popleft()
        kept = [sample for _, sample in self._samples]
        delays = sorted(sample.delay_ms for sample in kept)
        return {
            "points": [[sample.record_ms, sample.event_ms] for sample in kept],
            "places": [sample.place for sample in kept if sample.place is not None][-PLACE_COUNT_MAX:],
            "count": len(kept),
            "unreadable_count": self.unreadable_count,
            "delay_p50_ms": quantile(delays, 0.50),
            "delay_p99_ms": quantile(delays, 0.99),
            "delay_max_ms": delays[-1] if delays else None,
        }
