"""What pipelines do, under Prometheus' names. Nothing is counted here: statuses are read when somebody asks.

Counts are those of all runs of a pipeline on its data directory, so they go on over restarts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, get_args

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import choose_encoder

from headrace.driver.status import State, Status

if TYPE_CHECKING:
    from prometheus_client.core import Metric

Statuses = Callable[[], Sequence[Status]]
Lags = Callable[[Sequence[Status]], dict[str, int]]
Value = Callable[[Status], float | None]

_EPOCH: Final = datetime.fromtimestamp(0, UTC)

COUNTERS: Final[dict[str, tuple[str, Value]]] = {
    "batches": ("Batches finished.", lambda status: status.batch_count),
    "rows_read": ("Rows read.", lambda status: status.input_row_count),
    "rows_written": ("Rows written.", lambda status: status.output_row_count),
    "late_rows": (
        "Rows that came after the watermark.",
        lambda status: status.late_row_count,
    ),
    "restarts": (
        "Restarts by the supervisor since somebody started it.",
        lambda status: status.restart_count,
    ),
    "resumes": (
        "Starts of the query alone by its driver, after a failure that passes.",
        lambda status: status.resume_count,
    ),
}
GAUGES: Final[dict[str, tuple[str, Value]]] = {
    "running_since_timestamp_seconds": (
        "When it began to process rows.",
        lambda status: None if status.running_since is None else status.running_since.timestamp(),
    ),
    "updated_timestamp_seconds": (
        "When the driver last wrote its status.",
        lambda status: status.updated_at.timestamp(),
    ),
    "rows_per_second": ("Rows read, over the last 10 seconds.", lambda status: status.input_rows_per_s),
    "batch_duration_seconds": (
        "How long the last batch took.",
        lambda status: None if status.batch_ms is None else status.batch_ms / 1000,
    ),
    "watermark_timestamp_seconds": (
        "Up to when events are taken to be complete.",
        lambda status: None if (lag_s := status.watermark_lag_s(_EPOCH)) is None else -lag_s,
    ),
    "watermark_lag_seconds": (
        "How far that is behind the clock.",
        lambda status: status.watermark_lag_s(datetime.now(UTC)),
    ),
    "state_rows": ("Rows that Spark keeps as state.", lambda status: status.state_row_count),
    "state_bytes": ("Memory that state takes.", lambda status: status.state_bytes),
}


class PipelineMetrics:
    """The numbers of some pipelines. Safe to use from several threads."""

    def __init__(self, statuses: Statuses, lags: Lags) -> None:
        self._statuses = statuses
        self._lags = lags
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def render(self, accept: str) -> tuple[str, bytes]:
        """The content type, as the client would have it, and all numbers."""
        encode, content_type = choose_encoder(accept)
        return content_type, encode(self._registry)

    def unready(self) -> str | None:
        """Why not all pipelines process rows; None if they do."""
        statuses = self._statuses()
        waiting = [f"{status.name} is {status.state}" for status in statuses if status.state != "running"]
        return ", ".join(waiting) or (None if statuses else "no pipeline has been started yet")

    def describe(self) -> Iterable[Metric]:
        """Nothing before it is asked for: registering must not collect."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """All numbers."""
        statuses = self._statuses()
        yield _states(statuses)
        for name, (documentation, value) in COUNTERS.items():
            counter = CounterMetricFamily(f"headrace_pipeline_{name}", documentation, labels=("pipeline",))
            yield _filled(counter, statuses, value)
        for name, (documentation, value) in GAUGES.items():
            gauge = GaugeMetricFamily(f"headrace_pipeline_{name}", documentation, labels=("pipeline",))
            yield _filled(gauge, statuses, value)
        yield _phases(statuses)
        yield _operators(statuses)
        lags = self._lags(statuses)
        lag = GaugeMetricFamily(
            "headrace_pipeline_lag_records",
            "Records that the broker has beyond the last finished batch.",
            labels=("pipeline",),
        )
        yield _filled(lag, statuses, lambda status: lags.get(status.name))


def _filled(
    family: CounterMetricFamily | GaugeMetricFamily, statuses: Iterable[Status], value: Value
) -> Metric:
    for status in statuses:
        number = value(status)
        if number is not None:
            family.add_metric((status.name,), number)
    return family


def _states(statuses: Iterable[Status]) -> Metric:
    family = GaugeMetricFamily(
        "headrace_pipeline_state", "1 for the state that it is in.", labels=("pipeline", "state")
    )
    for status in statuses:
        for state in get_args(State):
            family.add_metric((status.name, state), status.state == state)
    return family


def _operators(statuses: Iterable[Status]) -> Metric:
    family = CounterMetricFamily(
        "headrace_pipeline_operator_rows",
        "What operators have counted: rows that were late, dropped, had no event time, ...",
        labels=("pipeline", "operator", "count"),
    )
    for status in statuses:
        for operator, counts in status.operator_counts.items():
            for name, count in counts.items():
                family.add_metric((status.name, operator, name), count)
    return family


def _phases(statuses: Iterable[Status]) -> Metric:
    family = GaugeMetricFamily(
        "headrace_pipeline_batch_phase_seconds",
        "What the last batch spent its time on.",
        labels=("pipeline", "phase"),
    )
    for status in statuses:
        for phase, ms in status.phases_ms.items():
            family.add_metric((status.name, phase), ms / 1000)
    return family
