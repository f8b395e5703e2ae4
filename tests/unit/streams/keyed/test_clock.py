"""Event time for functions over keyed state."""

from __future__ import annotations

import pyarrow as pa

from headrace.streams.buckets.logic import Arrivals, SourceProgress
from headrace.streams.keyed.clock import read_clock
from headrace.streams.time.policies import bounded


def test_a_watermark_is_told_only_once_it_is_a_time() -> None:
    def gauges(event_time_us: int | None) -> dict[str, int]:
        progress = SourceProgress(source="orders-0", row_count=1, event_time_us_max=event_time_us)
        arrivals = Arrivals(rows=pa.table({"at": [1]}), progress=(progress,))
        return read_clock({}, arrivals, event_time="at", watermark=bounded("1 second")).gauges

    assert gauges(None) == {}
    assert gauges(90_000_000) == {"watermark_us": 89_000_000}
