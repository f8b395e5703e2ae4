"""Windows that are left to Spark: it computes any aggregate, and knows fewer kinds of window.

Results come out whenever they change, and rows that come behind the watermark are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

from headrace.errors import PipelineError
from headrace.streams.event_time import with_spark_watermark
from headrace.streams.time.durations import duration_text
from headrace.streams.windows.aggregate import Aggregate
from headrace.streams.windows.kinds import Hopping, Tumbling
from headrace.streams.windows.late import Drop
from headrace.streams.windows.triggers import OnTime

if TYPE_CHECKING:
    from headrace.streams.window import Windowed


def windows_by_spark(
    windowed: Windowed, aggregates: Sequence[Column | Aggregate], unknown: Sequence[str]
) -> DataFrame:
    """The aggregates, of which Spark alone can compute the unknown ones."""
    names = ", ".join(unknown)
    asked = [each for each in aggregates if isinstance(each, Column)]
    if len(asked) < len(aggregates):
        raise PipelineError(
            f"hr.window: {names} can be computed by Spark only, and aggregates of headrace.streams only by "
            "hr.window itself: use two windows"
        )
    kind = windowed.kind
    if not isinstance(kind, Tumbling | Hopping) or not isinstance(windowed.trigger, OnTime):
        raise PipelineError(
            f"hr.window: {names} is computed by Spark's own windows, which are tumbling or hopping and take "
            "no trigger: use count, sum, avg, min, max or an aggregate of headrace.streams"
        )
    is_stream = windowed.rows.isStreaming
    if is_stream and not isinstance(windowed.late, Drop):
        raise PipelineError(
            f"hr.window: {names} is computed by Spark's own windows, which leave late rows out: say "
            "late=hr.drop if they may, or use count, sum, avg, min, max or an aggregate of headrace.streams"
        )
    assert windowed.time is not None, "these kinds have a time"
    frame = F.window(windowed.time.column, *_lengths(kind))
    rows = with_spark_watermark(windowed.rows, windowed.time) if is_stream else windowed.rows
    result = rows.groupBy(*windowed.by, frame.alias("window")).agg(*asked)
    return result.withColumn("firing", F.lit("update" if is_stream else "on_time"))


def _lengths(kind: Tumbling | Hopping) -> tuple[str, str, str]:
    every_us = kind.every_us if isinstance(kind, Hopping) else kind.size_us
    return duration_text(kind.size_us), duration_text(every_us), duration_text(kind.offset_us)
