"""What operators count in workers, and how the driver hears of it.

Each step of a bucket tells its counts and gauges under the batch's id and the bucket's label, by an
accumulator of Spark's. A step that is run again tells the same again, in the same place: so numbers of a
batch are exact however often its tasks were tried. They are complete when the batch is. A driver that starts
anew knows nothing of earlier batches.

Spark merges what tasks tell in a thread of its own; `OperatorReports` may be looked at from any.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from pyspark import SparkContext
from pyspark.accumulators import Accumulator, AccumulatorParam
from pyspark.sql import DataFrame

from headrace.streams.progress import Progress

BATCHES_KEPT: Final = 100
"""As many as Spark keeps reports of."""

StepReport = tuple[Mapping[str, int], Mapping[str, int]]
"""The counts and the gauges of one step."""
StepReports = dict[tuple[int, int], StepReport]
"""By batch id and bucket."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReport:
    """What all buckets have told of a batch."""

    batch_id: int
    counts: Mapping[str, int]
    """Added up."""
    gauges: Mapping[str, int]
    """The smallest."""


class _Merge(AccumulatorParam[StepReports]):
    def zero(self, value: StepReports) -> StepReports:  # noqa: ARG002 - what Spark calls it with
        return {}

    def addInPlace(self, value1: StepReports, value2: StepReports) -> StepReports:  # noqa: N802 - Spark's
        together = {**value1, **value2}
        newest = max((batch_id for batch_id, _bucket in together), default=0)
        return {place: told for place, told in together.items() if place[0] > newest - BATCHES_KEPT}


_collected: Final[ContextVar[list[OperatorReports] | None]] = ContextVar("reports", default=None)


class OperatorReports:
    """The reports of one operator: the driver's side. `add` is the workers'."""

    def __init__(self, operator: str, context: SparkContext) -> None:
        self.operator = operator
        self._told: Accumulator[StepReports] = context.accumulator({}, _Merge())

    def add(self, batch_id: int, bucket: int, counts: Mapping[str, int], gauges: Mapping[str, int]) -> None:
        """Tell what a step has counted."""
        self._told.add({(batch_id, bucket): (dict(counts), dict(gauges))})

    def __reduce__(self) -> tuple[object, ...]:
        return _in_worker, (self.operator, self._told)

    def batches(self) -> list[BatchReport]:
        """The last batches, in their order; the newest may not be complete."""
        told: StepReports = self._told.value
        found: dict[int, tuple[Counter[str], dict[str, int]]] = {}
        for (batch_id, _bucket), (counts, gauges) in sorted(told.items()):
            total, smallest = found.setdefault(batch_id, (Counter(), {}))
            total.update(counts)
            for name, value in gauges.items():
                smallest[name] = min(value, smallest.get(name, value))
        return [
            BatchReport(batch_id=batch_id, counts=dict(total), gauges=smallest)
            for batch_id, (total, smallest) in sorted(found.items())
        ]


@contextmanager
def collected() -> Iterator[list[OperatorReports]]:
    """Have the reports of all operators that are made meanwhile; those that nobody collects are not made."""
    reports: list[OperatorReports] = []
    token = _collected.set(reports)
    try:
        yield reports
    finally:
        _collected.reset(token)


def new_reports(operator: str, rows: DataFrame) -> OperatorReports | None:
    """The reports of an operator that is being made; None where nobody collects them."""
    reports = _collected.get()
    if reports is None:
        return None
    reports.append(OperatorReports(operator, rows.sparkSession.sparkContext))
    return reports[-1]


def with_operators(progress: Progress, told: Iterable[tuple[str, Sequence[BatchReport]]]) -> Progress:
    """What is known of a batch, with what the query's operators have told of it, by name."""
    counts: dict[str, Mapping[str, int]] = {}
    watermarks_us = []
    for operator, batches in told:
        for batch in batches:
            if batch.batch_id == progress.batch_id:
                counts[operator] = batch.counts
                watermarks_us += [batch.gauges["watermark_us"]] if "watermark_us" in batch.gauges else []
    late = sum(each.get("late", 0) for each in counts.values())
    watermark = progress.watermark
    if watermarks_us:
        # Ours waits for the slowest partition, which Spark's own does not.
        watermark = _moment(min(watermarks_us))
    return replace(
        progress,
        operator_counts={operator: counted for operator, counted in counts.items() if counted},
        late_row_count=progress.late_row_count + late,
        watermark=watermark,
    )


def _moment(time_us: int) -> str:
    moment = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=time_us)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _in_worker(operator: str, told: Accumulator[StepReports]) -> OperatorReports:
    reports = OperatorReports.__new__(OperatorReports)
    reports.operator = operator
    reports._told = told  # noqa: SLF001 - it is made here
    return reports
