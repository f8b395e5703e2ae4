"""What operators count in workers, and how the driver hears of it.

Each step of a bucket tells its counts and gauges under the batch's id and the bucket's label, by an
accumulator of Spark's. A step that is run again tells the same again, in the same place: so numbers of a
batch are exact however often its tasks were tried. How far event time has come is the same in all buckets, so
it is kept once for each batch. They are complete when the batch is. A driver that starts
anew knows nothing of earlier batches.

Spark merges what tasks tell in a thread of its own; `OperatorReports` may be looked at from any.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from pyspark import SparkContext
from pyspark.accumulators import Accumulator, AccumulatorParam
from pyspark.sql import DataFrame

from headrace.driver.event_time import TimeReport, moment
from headrace.streams.buckets.logic import Step
from headrace.streams.progress import Progress

BATCHES_KEPT: Final = 100
"""As many as Spark keeps reports of."""

_ALL_BUCKETS: Final = -1


class StepReport(NamedTuple):
    """What one step tells, or all steps of a batch alike."""

    counts: Mapping[str, int]
    gauges: Mapping[str, int]
    time_report: TimeReport | None = None


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
    time_report: TimeReport | None = None


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

    def add(self, batch_id: int, bucket: int, step: Step) -> None:
        """Tell what a step has counted, and how far it is."""
        told = {(batch_id, bucket): StepReport(dict(step.counts), dict(step.gauges))}
        if step.time_report is not None:
            told[batch_id, _ALL_BUCKETS] = StepReport({}, {}, step.time_report)
        self._told.add(told)

    def __reduce__(self) -> tuple[object, ...]:
        return _in_worker, (self.operator, self._told)

    def batches(self) -> list[BatchReport]:
        """The last batches, in their order; the newest may not be complete."""
        told: StepReports = self._told.value
        found: dict[int, tuple[Counter[str], dict[str, int]]] = {}
        for (batch_id, _bucket), report in told.items():
            total, smallest = found.setdefault(batch_id, (Counter(), {}))
            total.update(report.counts)
            for name, value in report.gauges.items():
                smallest[name] = min(value, smallest.get(name, value))
        alike = {
            batch_id: report.time_report
            for (batch_id, bucket), report in told.items()
            if bucket == _ALL_BUCKETS
        }
        return [
            BatchReport(
                batch_id=batch_id, counts=dict(total), gauges=smallest, time_report=alike.get(batch_id)
            )
            for batch_id, (total, smallest) in sorted(found.items())
        ]


@contextmanager
def collected() -> Iterator[list[OperatorReports]]:
    """Have the reports of all operators that are made meanwhile; those that nobody collects are not made.

    A context around this one has them as well, when this one ends.
    """
    around = _collected.get()
    reports: list[OperatorReports] = []
    token = _collected.set(reports)
    try:
        yield reports
    finally:
        _collected.reset(token)
        if around is not None:
            around.extend(reports)


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
    time_reports: dict[str, TimeReport] = {}
    for operator, batches in told:
        for batch in batches:
            if batch.batch_id == progress.batch_id:
                counts[operator] = batch.counts
                watermarks_us += [batch.gauges["watermark_us"]] if "watermark_us" in batch.gauges else []
                if batch.time_report is not None:
                    time_reports[operator] = batch.time_report
    late = sum(each.get("late", 0) for each in counts.values())
    watermark = progress.watermark
    if watermarks_us:
        # Ours waits for the slowest partition, which Spark's own does not.
        text = moment(min(watermarks_us)).isoformat(timespec="milliseconds")
        watermark = text.replace("+00:00", "Z")
    return replace(
        progress,
        operator_counts={operator: counted for operator, counted in counts.items() if counted},
        late_row_count=progress.late_row_count + late,
        watermark=watermark,
        time_reports=time_reports,
    )


def _in_worker(operator: str, told: Accumulator[StepReports]) -> OperatorReports:
    reports = OperatorReports.__new__(OperatorReports)
    reports.operator = operator
    reports._told = told  # noqa: SLF001 - it is made here
    return reports
