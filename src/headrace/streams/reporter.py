"""Writes down what queries do, for `headrace pipelines` and for metrics: see headrace.driver.status.

Each batch is counted; what is known is written once a second, and at once when a query's state changes.
A rate is that of the last RATE_OVER_S.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from headrace.config import StreamsConfig
from headrace.driver.process import ProcessId
from headrace.driver.status import (
    LAST_ERROR_LENGTH_MAX,
    OperatorCounts,
    Status,
    read_status,
    write_status,
)
from headrace.errors import HeadraceError
from headrace.logs import fields
from headrace.streams.progress import Progress
from headrace.streams.resumes import Resume

WRITE_EVERY_S: Final = 1.0
RATE_OVER_S: Final = 10.0

logger: Final = logging.getLogger("headrace.streams.batches")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryDescription:
    """What a query reads and writes."""

    name: str
    reads: tuple[str, ...]
    writes: str
    writes_kind: str = "topic"


class Reporter:
    """Knows the statuses of queries that run together. Not safe to share between threads."""

    def __init__(self, config: StreamsConfig, statuses: Mapping[str, Status]) -> None:
        self._data_dir = config.data_dir
        self._statuses = dict(statuses)
        self._rates = {name: Rate() for name in statuses}
        self._written_s = 0.0
        self._write()

    def running(self) -> None:
        """All queries process rows."""
        now = datetime.now(UTC)
        for name, status in self._statuses.items():
            self._statuses[name] = replace(status, state="running", running_since=now)
        self._write()

    def report(self, finished: Iterable[Progress]) -> None:
        """Count what has been finished since the last call, and write it down if it is time to."""
        for progress in finished:
            self._statuses[progress.query] = counted(self._statuses[progress.query], progress)
            if progress.is_batch:
                _log(progress)
        now_s = time.monotonic()
        if now_s - self._written_s < WRITE_EVERY_S:
            return
        for name, status in self._statuses.items():
            rate = self._rates[name].of(status.input_row_count, now_s)
            self._statuses[name] = replace(status, input_rows_per_s=rate)
        self._write()

    def resumed(self, resumes: Iterable[Resume]) -> None:
        """Queries have been started again by this driver: written down at once."""
        resumes = list(resumes)
        for resume in resumes:
            status = self._statuses[resume.query]
            self._statuses[resume.query] = replace(
                status,
                resume_count=status.resume_count + 1,
                resume_reason=resume.reason[:LAST_ERROR_LENGTH_MAX],
                resumed_at=datetime.now(UTC),
            )
            _log_resume(resume)
        if resumes:
            self._write()

    def ended(self, error: BaseException | None) -> None:
        """All queries have ended; on an error, or because somebody asked them to."""
        now = datetime.now(UTC)
        for name, status in self._statuses.items():
            ended = replace(status, state="stopped", input_rows_per_s=None)
            if error is not None:
                ended = replace(ended, state="failed", last_error=_sentence(error), last_error_at=now)
            self._statuses[name] = ended
        self._write()

    def _write(self) -> None:
        self._written_s = time.monotonic()
        now = datetime.now(UTC)
        for status in self._statuses.values():
            write_status(self._data_dir, replace(status, updated_at=now))


@contextmanager
def reporting(
    config: StreamsConfig, queries: Iterable[QueryDescription], *, realtime: bool
) -> Iterator[Reporter]:
    """Write down what the queries do, for as long as the context is open. Their locks must be held."""
    mode = "real-time" if realtime else "micro-batch"
    statuses = {query.name: first_status(config, query, mode) for query in queries}
    reporter = Reporter(config, statuses)
    try:
        yield reporter
    except BaseException as error:
        reporter.ended(error)
        raise
    reporter.ended(None)


def first_status(config: StreamsConfig, query: QueryDescription, mode: str) -> Status:
    """The status of a query that is about to start. What was counted before is counted on."""
    now = datetime.now(UTC)
    first = Status(
        name=query.name,
        state="starting",
        process=ProcessId.own(),
        started_at=now,
        updated_at=now,
        mode=mode,
        bootstrap=config.bootstrap,
        reads=query.reads,
        writes=query.writes,
        writes_kind=query.writes_kind,
    )
    former = read_status(config.data_dir, query.name)
    if former is None:
        return first
    return replace(
        first,
        # A supervisor that goes on says so; else somebody has started it anew.
        restart_count=former.restart_count if former.state == "restarting" else 0,
        resume_count=former.resume_count,
        resume_reason=former.resume_reason,
        resumed_at=former.resumed_at,
        last_error=former.last_error,
        last_error_at=former.last_error_at,
        batch_count=former.batch_count,
        input_row_count=former.input_row_count,
        output_row_count=former.output_row_count,
        late_row_count=former.late_row_count,
        operator_counts=former.operator_counts,
        next_offsets=former.next_offsets,
    )


def counted(status: Status, progress: Progress) -> Status:
    """The status after a batch, or after a while in which there was nothing to do."""
    if not progress.is_batch:
        return replace(status, lag=0 if progress.lag is None else progress.lag)
    output_row_count = status.output_row_count
    if progress.output_row_count is not None:
        output_row_count = (output_row_count or 0) + progress.output_row_count
    return replace(
        status,
        batch_count=status.batch_count + 1,
        input_row_count=status.input_row_count + progress.input_row_count,
        output_row_count=output_row_count,
        late_row_count=status.late_row_count + progress.late_row_count,
        operator_counts=_added(status.operator_counts, progress.operator_counts),
        batch_id=progress.batch_id,
        batch_ms=progress.duration_ms,
        phases_ms=progress.phases_ms,
        state_row_count=progress.state_row_count,
        state_bytes=progress.state_bytes,
        watermark=progress.watermark,
        # An operator that had no rows in the batch tells nothing: it is where it was.
        time_reports={**status.time_reports, **progress.time_reports},
        next_offsets=progress.next_offsets or status.next_offsets,
        lag=progress.lag,
    )


def _added(counts: OperatorCounts, more: OperatorCounts) -> OperatorCounts:
    return {
        operator: dict(Counter(counts.get(operator, {})) + Counter(more.get(operator, {})))
        for operator in {**counts, **more}
    }


class Rate:
    """How fast a count grows."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque()

    def of(self, count: int, now_s: float) -> float | None:
        """Per second, over the last RATE_OVER_S; None as long as there is only one sample."""
        self._samples.append((now_s, count))
        while len(self._samples) > 2 and now_s - self._samples[1][0] >= RATE_OVER_S:
            self._samples.popleft()
        began_s, count_before = self._samples[0]
        return (count - count_before) / (now_s - began_s) if now_s > began_s else None


def _log(progress: Progress) -> None:
    logger.info(
        "%s: batch %d read %d rows in %d ms",
        progress.query,
        progress.batch_id,
        progress.input_row_count,
        progress.duration_ms,
        extra=fields(
            query=progress.query,
            batch_id=progress.batch_id,
            input_row_count=progress.input_row_count,
            output_row_count=progress.output_row_count,
            duration_ms=progress.duration_ms,
            phases_ms=dict(progress.phases_ms),
            lag=progress.lag,
        ),
    )


def _log_resume(resume: Resume) -> None:
    logger.warning(
        "%s was started again: %s",
        resume.query,
        resume.reason,
        extra=fields(query=resume.query, reason=resume.reason),
    )


def _sentence(error: BaseException) -> str:
    text = str(error) if isinstance(error, HeadraceError) else f"{type(error).__name__}: {error}"
    return " ".join(text.split())[:LAST_ERROR_LENGTH_MAX]
