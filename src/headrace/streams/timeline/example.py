"""A timeline of a few events that are written down by hand: for documentation, tests, and questions.

    example(windows, [Event("ann", "10:00:05", "10:00:06"), Event("ann", "10:01:20", "10:01:21", batch=1)])

Times are times of day, of 2026-01-01 in UTC. Offsets follow from the order of events in their partition.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.streams.timeline.operators import Traced, WindowLogic
from headrace.streams.timeline.timeline import Timeline
from headrace.streams.timeline.trace import trace
from headrace.streams.topic import METADATA_COLUMN
from headrace.streams.windows.globals import GlobalWindows

KEY: Final = "key"
TIME: Final = "at"
AMOUNT: Final = "amount"
_TIME: Final = pa.timestamp("us", "UTC")
_PLACE: Final = pa.struct(
    {"topic": pa.string(), "partition": pa.int32(), "offset": pa.int64(), "timestamp": _TIME}
)


@dataclass(frozen=True, slots=True)
class Event:
    """A row, with when it happened and when its record was written."""

    key: str | None
    happened: str | None
    written: str
    _: KW_ONLY
    batch: int = 0
    partition: int = 0
    amount: int = 1


def example(
    windows: WindowLogic,
    events: Sequence[Event],
    *,
    topic: str = "payments",
    tracked: pa.Table | None = None,
) -> Timeline:
    """What happens to the events. The columns of the windows are `key`, `at` and `amount`.

    `tracked` is a table of the watermark to begin with.
    """
    offsets: Counter[int] = Counter()
    places = []
    for event in events:
        offset, offsets[event.partition] = offsets[event.partition], offsets[event.partition] + 1
        written = _moment(event.written)
        places.append({"topic": topic, "partition": event.partition, "offset": offset, "timestamp": written})
    rows = pa.table(
        {
            KEY: pa.array([event.key for event in events], pa.string()),
            TIME: pa.array([_moment(event.happened) for event in events], _TIME),
            AMOUNT: pa.array([event.amount for event in events], pa.int64()),
            METADATA_COLUMN: pa.array(places, _PLACE),
        }
    )
    batches = np.array([event.batch for event in events], np.int64)
    event_time = None if isinstance(windows, GlobalWindows) else TIME
    operator = Traced(name="window", logic=windows, by=windows.by, event_time=event_time)
    return trace(operator, rows, batches, range(int(batches.max(initial=-1)) + 1), tracked)


def _moment(time_of_day: str | None) -> datetime | None:
    if time_of_day is None:
        return None
    return datetime.fromisoformat(f"2026-01-01T{time_of_day}").replace(tzinfo=UTC)
