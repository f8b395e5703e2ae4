"""The pipelines of a data directory, as the page shows them. Pure but for `look`, which reads their files."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from headrace.config import TOPIC_NAME
from headrace.driver.event_time import moment
from headrace.driver.lag import Place, behind, places_of
from headrace.driver.status import Status, read_statuses
from headrace.driver.waiting import waiting

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """What a pipeline does now."""

    name: str
    state: str
    mode: str
    reads: tuple[str, ...]
    writes: str
    pid: int
    is_alive: bool
    """Whether its driver runs, whatever it does."""
    since_ms: int
    """Since when it has been running, or when it last said something."""
    per_s: float | None
    lag: int | None
    """What the broker has beyond its last finished batch."""
    input_row_count: int
    output_row_count: int | None
    late_row_count: int
    batch_id: int | None
    batch_ms: int | None
    state_row_count: int | None
    state_bytes: int | None
    watermark_ms: int | None
    restart_count: int
    resume_count: int
    resume_reason: str | None
    last_error: str | None
    advice: tuple[str, ...]
    """What it waits for, and what to do about it."""


def look(data_dir: Path) -> list[Status]:
    """The statuses of all pipelines of a directory, as they are now."""
    return [status.seen_now() for status in read_statuses(data_dir)]


def topics_of(statuses: list[Status]) -> tuple[str, ...]:
    """The topics that pipelines read and write, each once. Other names are those of tables, or patterns."""
    named = dict.fromkeys(name for each in statuses for name in (*each.reads, each.writes))
    return tuple(name for name in named if TOPIC_NAME.fullmatch(name) and name not in {".", ".."})


def pipelines_of(statuses: list[Status], ends: Mapping[Place, int]) -> tuple[Pipeline, ...]:
    """Statuses as the page shows them, now."""
    now = datetime.now(UTC)
    return tuple(pipeline_of(status, ends, now) for status in statuses)


def pipeline_of(status: Status, ends: Mapping[Place, int], now: datetime) -> Pipeline:
    """A status as the page shows it. `ends` are the end offsets of partitions that are known."""
    is_known = bool(status.next_offsets) and ends.keys() >= set(places_of(status.next_offsets))
    return Pipeline(
        name=status.name,
        state=status.state,
        mode=status.mode,
        reads=status.reads,
        writes=status.writes,
        pid=status.process.pid,
        is_alive=status.state in {"starting", "running"} and status.process.is_alive(),
        since_ms=epoch_ms(status.running_since or status.updated_at),
        per_s=status.input_rows_per_s,
        lag=behind(status.next_offsets, ends) if is_known else status.lag,
        input_row_count=status.input_row_count,
        output_row_count=status.output_row_count,
        late_row_count=status.late_row_count,
        batch_id=status.batch_id,
        batch_ms=status.batch_ms,
        state_row_count=status.state_row_count,
        state_bytes=status.state_bytes,
        watermark_ms=watermark_ms(status, now),
        restart_count=status.restart_count,
        resume_count=status.resume_count,
        resume_reason=status.resume_reason,
        last_error=status.last_error,
        advice=tuple(f"{each.found}: {each.advice}" for each in waiting(status, now) if each.is_held_back),
    )


def watermark_ms(status: Status, now: datetime) -> int | None:
    """How far event time has come: where the slowest operator stands; None where there is no watermark."""
    told = [report.watermark_us for report in status.time_reports.values()]
    known = [watermark_us for watermark_us in told if watermark_us is not None]
    if known:
        return epoch_ms(moment(min(known)))
    lag_s = status.watermark_lag_s(now)
    return None if lag_s is None else epoch_ms(now) - round(lag_s * 1000)


def epoch_ms(time: datetime) -> int:
    """Milliseconds since 1970."""
    return round(time.timestamp() * 1000)
