"""What Spark reports of a query's batches, in our words. Pure.

Spark reports each batch that it has finished, and every 10 seconds that there was nothing to do: then with no
rows, and with the number that the next batch will have. A report is therefore known by its number and its
time together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.driver.event_time import TimeReport

Offsets = dict[str, dict[int, int]]
"""By topic and partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What a query did in a batch, or that it had nothing to do."""

    query: str
    batch_id: int
    timestamp: str
    """When the batch began."""
    input_row_count: int
    output_row_count: int | None
    """None where Spark does not know."""
    duration_ms: int
    phases_ms: Mapping[str, int] = field(default_factory=dict)
    """What the time was spent on, in Spark's words: `addBatch`, `walCommit`, `commitOffsets`, ..."""
    next_offsets: Offsets = field(default_factory=dict)
    """Where the next batch begins."""
    lag: int | None = None
    """How many records there were beyond the batch when it was begun."""
    late_row_count: int = 0
    """Rows that came after the watermark: Spark's own operators leave them out, ours say what becomes of
    them."""
    operator_counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """What our operators have counted in the batch: `late`, `dropped`, ..., by operator."""
    state_row_count: int | None = None
    state_bytes: int | None = None
    """None where the query keeps no state."""
    watermark: str | None = None
    time_reports: Mapping[str, TimeReport] = field(default_factory=dict)
    """How far event time has come in our operators, by operator."""

    @property
    def is_batch(self) -> bool:
        """Whether there was a batch at all. One without rows may still have moved state on."""
        return "addBatch" in self.phases_ms


def parse_progress(query: str, report: Mapping[str, Any]) -> Progress:
    """Read a report, as Spark writes it in JSON."""
    output_row_count = report["sink"]["numOutputRows"]
    phases: dict[str, int] = dict(report["durationMs"])
    operators: list[Mapping[str, Any]] = report.get("stateOperators") or []
    sources: list[Mapping[str, Any]] = report["sources"]
    next_offsets = _merged(source.get("endOffset") for source in sources)
    return Progress(
        query=query,
        batch_id=report["batchId"],
        timestamp=report["timestamp"],
        input_row_count=report["numInputRows"],
        output_row_count=output_row_count if output_row_count >= 0 else None,
        duration_ms=report["batchDuration"],
        phases_ms={name: ms for name, ms in phases.items() if name != "triggerExecution"},
        next_offsets=next_offsets,
        lag=_lag(next_offsets, _merged(source.get("latestOffset") for source in sources)),
        late_row_count=sum(operator.get("numRowsDroppedByWatermark", 0) for operator in operators),
        state_row_count=_sum(operators, "numRowsTotal"),
        state_bytes=_sum(operators, "memoryUsedBytes"),
        watermark=(report.get("eventTime") or {}).get("watermark"),
    )


def _merged(offsets: Iterable[object]) -> Offsets:
    """The offsets of all sources. One topic may be read by two of them: the one that is behind counts."""
    merged: Offsets = {}
    for topics in offsets:
        if not isinstance(topics, Mapping):
            continue
        for topic, partitions in topics.items():
            if isinstance(partitions, Mapping):
                known = merged.setdefault(topic, {})
                for partition, offset in partitions.items():
                    known[int(partition)] = min(int(offset), known.get(int(partition), int(offset)))
    return merged


def _lag(reached: Offsets, latest: Offsets) -> int | None:
    if not latest:
        return None
    return sum(
        max(0, end - reached.get(topic, {}).get(partition, 0))
        for topic, partitions in latest.items()
        for partition, end in partitions.items()
    )


def _sum(operators: Iterable[Mapping[str, Any]], name: str) -> int | None:
    found = [int(operator[name]) for operator in operators if name in operator]
    return sum(found) if found else None
