"""What an operator with keyed state is, apart from Spark: a pure function that steps one bucket.

All keys are spread over a fixed number of buckets by their hash. The state of all keys of a bucket is a set
of Arrow tables, and a micro-batch is one step of each bucket:

    (state, arrivals) -> (state, outputs)

A logic can rely on this:

- Every bucket steps in every micro-batch that has rows, and is told the progress of every source in it, even
  of those that it has no rows of. So all buckets have the same watermark.
- Rows come ordered by their source's name, and within a source in the order of the log.
- Rows of one key always come to the same bucket.

And must keep to this:

- It is deterministic: the same arguments give the same results, in the same order. A batch that is run again
  after a crash then changes nothing that was written.
- It changes no argument. A table of the state that it returns as the same object is not written again.
- It reads tables of a state that an older version of its code has written: a column that is missing there
  gets its default.

Times are microseconds since 1970, as Spark's own timestamps are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

import pyarrow as pa

from headrace.driver.event_time import TimeReport
from headrace.streams.time.lateness import LatenessRun

Tables = Mapping[str, pa.Table]

RESULTS: Final = "results"
"""The output that becomes the operator's DataFrame."""
LATE: Final = "late"
"""The output of rows that came too late, or have no time; it goes to a topic of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceProgress:
    """How far one source came in a micro-batch: a partition of a topic, or a task where that is not known."""

    source: str
    """`transactions-3`: the topic and the partition."""
    row_count: int
    event_time_us_max: int | None = None
    """The newest event's; None where no row has a time."""
    record_time_us_max: int | None = None
    """When the newest record was written to the log; None where that is not known."""
    declared_us: int | None = None
    """The source has said that nothing older will come; None where it says no such thing."""
    lateness: tuple[LatenessRun, ...] = ()
    """How late its rows were; judged by the micro-batch alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """What a micro-batch brings to a bucket."""

    rows: pa.Table
    """The bucket's rows, with the columns that the operator was given."""
    progress: tuple[SourceProgress, ...] = ()
    """Of all sources that have rows in the micro-batch, in any bucket; by name."""
    is_end: bool = False
    """Whether the input ends with these rows: nothing can come any more, late or not."""
    ends: Mapping[str, int] | None = None
    """By source, such as `products-0`: up to which offset the micro-batch reads, whether that gave rows or
    not. None where the operator has not asked for it, and in batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What a step has made."""

    state: Tables
    outputs: Tables = field(default_factory=dict)
    """By name; an output that is missing has no rows."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """What is told in metrics: `late`, `dropped`, ... Those of all buckets are added up."""
    gauges: Mapping[str, int] = field(default_factory=dict)
    """The same for what is not added up, such as `watermark_us`: the smallest of all buckets counts."""
    time_report: TimeReport | None = None
    """How far event time has come, and what it waits for: the same in all buckets. None where the operator
    knows no event time."""


class Logic(Protocol):
    """Steps buckets. Travels to Spark's workers, so it holds values only."""

    def output_schemas(self, rows: pa.Schema) -> Mapping[str, pa.Schema]:
        """The outputs' columns, for rows of this schema."""

    def step(self, state: Tables, arrivals: Arrivals) -> Step:
        """Step one bucket; its state is empty at first."""
