"""What each query does, written down by its driver for whoever wants to know.

    DATA/pipelines/<query>.json     one JSON object: the fields of Status

A pipeline is a query, and so is what takes a topic's dead letters. The file is replaced as a whole, so that
a reader never sees half of it; the driver that holds the query's lock writes it, and once that driver is
dead, its supervisor. It stays when the query has ended: rows are counted on from it by the next run.

    starting     Spark is being started
    running      rows are processed as they come
    restarting   the driver died, and its supervisor is about to start it again
    stopped      somebody asked it to stop
    failed       it ended on an error, which `last_error` tells
    crashed      never written: the file says that it runs, and its process is gone
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Literal

from headrace.driver.event_time import TimeReport, time_report
from headrace.driver.process import ProcessId, parse_process

State = Literal["starting", "running", "restarting", "stopped", "failed", "crashed"]
Offsets = dict[str, dict[int, int]]
"""The next offset to read, by topic and partition."""
OperatorCounts = Mapping[str, Mapping[str, int]]

LAST_ERROR_LENGTH_MAX: Final = 2000
_ENDED: Final = frozenset({"stopped", "failed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """What a query does and has done. Counts are those of all its runs."""

    name: str
    state: State
    process: ProcessId
    """The driver; while it is restarting, the supervisor."""
    started_at: datetime
    """When the present run of the driver began."""
    updated_at: datetime
    running_since: datetime | None = None
    """When the present run began to process rows."""
    mode: str
    """`micro-batch` or `real-time`."""
    bootstrap: str
    reads: tuple[str, ...]
    writes: str
    writes_kind: str = "topic"
    """`topic`, or what else it writes: `table`, `search index`, ..."""
    restart_count: int = 0
    """How often its supervisor has started the driver again since somebody started it."""
    resume_count: int = 0
    """How often the driver has started the query again by itself, after a failure that passes."""
    resume_reason: str | None = None
    """Why it did so the last time."""
    resumed_at: datetime | None = None
    last_error: str | None = None
    last_error_at: datetime | None = None
    batch_count: int = 0
    input_row_count: int = 0
    output_row_count: int | None = None
    """None as long as Spark has not told."""
    late_row_count: int = 0
    """Rows that came after the watermark: left out by Spark's own operators, or treated as ours are told."""
    operator_counts: OperatorCounts = field(default_factory=dict)
    """What operators of ours have counted, by operator: `late`, `dropped`, ..."""
    input_rows_per_s: float | None = None
    batch_id: int | None = None
    batch_ms: int | None = None
    phases_ms: Mapping[str, int] = field(default_factory=dict)
    """What the last batch spent its time on, in Spark's words."""
    state_row_count: int | None = None
    state_bytes: int | None = None
    watermark: str | None = None
    time_reports: Mapping[str, TimeReport] = field(default_factory=dict)
    """How far event time has come in operators of ours, and what it waits for, by operator."""
    next_offsets: Offsets = field(default_factory=dict)
    """Where the next batch begins."""
    lag: int | None = None
    """How many records there were beyond the last batch when it was begun."""

    def watermark_lag_s(self, now: datetime) -> float | None:
        """How far event time is behind; None where no operator has a watermark."""
        if self.watermark is None:
            return None
        try:
            moment = datetime.fromisoformat(self.watermark)
        except ValueError:
            # A year that has more than four digits.
            return None
        # Spark says 1970 as long as it has seen no event.
        return None if moment.timestamp() == 0 else (now - moment).total_seconds()

    def seen_now(self) -> Status:
        """The same, with a state that holds although nobody was left to write it down."""
        if self.state in _ENDED or self.process.is_alive():
            return self
        told = self.last_error if self.state == "restarting" else None
        return replace(
            self,
            state="crashed",
            running_since=None,
            input_rows_per_s=None,
            last_error=told or f"its driver, process {self.process.pid}, was killed or crashed",
        )


def status_dir(data_dir: Path) -> Path:
    """Where statuses are kept."""
    return data_dir / "pipelines"


def write_status(data_dir: Path, status: Status) -> None:
    """Replace what is known of a query."""
    directory = status_dir(data_dir)
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    new = directory / f"{status.name}.json~"
    new.write_text(json.dumps(asdict(status), default=_as_text))
    new.replace(directory / f"{status.name}.json")


def read_status(data_dir: Path, name: str) -> Status | None:
    """What is known of a query; None if nothing is, or nothing that can be read."""
    try:
        return _parse((status_dir(data_dir) / f"{name}.json").read_text())
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        # It is a view, and never needed to go on: the next status replaces what can't be read.
        return None


def read_statuses(data_dir: Path) -> Iterator[Status]:
    """What is known of all queries, by name."""
    for path in sorted(status_dir(data_dir).glob("*.json")):
        status = read_status(data_dir, path.stem)
        if status is not None:
            yield status


def broken_statuses(data_dir: Path) -> list[Path]:
    """The files that should hold a status, and hold none that can be read."""
    found = sorted(status_dir(data_dir).glob("*.json"))
    return [path for path in found if read_status(data_dir, path.stem) is None]


def _parse(text: str) -> Status:
    content: dict[str, Any] = json.loads(text)
    content["process"] = parse_process(content["process"])
    content["reads"] = tuple(content["reads"])
    content["next_offsets"] = {
        topic: {int(partition): offset for partition, offset in offsets.items()}
        for topic, offsets in content["next_offsets"].items()
    }
    reports: Mapping[str, Any] = content.get("time_reports", {})
    content["time_reports"] = {operator: time_report(report) for operator, report in reports.items()}
    for name in ("started_at", "updated_at", "running_since", "last_error_at", "resumed_at"):
        if content.get(name) is not None:
            content[name] = datetime.fromisoformat(content[name])
    return Status(**content)


def _as_text(value: object) -> str:
    assert isinstance(value, datetime)
    return value.isoformat()
