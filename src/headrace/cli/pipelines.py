"""`headrace pipelines`: what the pipelines of a data directory do, and how they do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

from rich.markup import escape

from headrace.cli.client import client_options
from headrace.cli.options import AsJson, DataDir
from headrace.cli.output import print_rows, say
from headrace.config import MIB
from headrace.driver.event_time import moment
from headrace.driver.lag import LagReader
from headrace.driver.status import Status, read_statuses, status_dir
from headrace.driver.waiting import waiting

COLUMNS: Final = ("pipeline", "state", "since", "rows_in", "rows_out", "per_s", "lag", "batch", "state_size")
PHASES_SHOWN: Final = 2
LAG_IS_ASKED_OF: Final = frozenset({"running", "starting", "restarting"})


def pipelines(data: DataDir, as_json: AsJson = False) -> None:
    """Show the pipelines of a data directory: what runs, since when, how fast, how far behind, and errors.

    Pipelines that have stopped, failed or crashed are shown with how they ended. Lag is what the broker has
    beyond the last finished batch.
    """
    statuses = [status.seen_now() for status in read_statuses(data)]
    lags = _lags(statuses)
    rows = [row_of(status, lags[status.name]) for status in statuses]
    if not rows and not as_json:
        say(f"no pipeline has run with {status_dir(data)}: `headrace run FILE` runs one, --data says where")
        return
    print_rows(rows, columns=COLUMNS, as_json=as_json)
    if not as_json:
        _say_errors(statuses)


def row_of(status: Status, lag: int | None) -> dict[str, object]:
    """A row of the table, and all that is known in JSON."""
    now = datetime.now(UTC)
    return {
        "pipeline": status.name,
        "state": status.state,
        "since": _time(status.running_since or status.updated_at),
        "rows_in": status.input_row_count,
        "rows_out": status.output_row_count,
        "per_s": None if status.input_rows_per_s is None else round(status.input_rows_per_s),
        "lag": lag,
        "batch": _batch(status),
        "state_size": _state_size(status),
        "reads": list(status.reads),
        "writes": status.writes,
        "mode": status.mode,
        "bootstrap": status.bootstrap,
        "pid": status.process.pid,
        "started_at": _time(status.started_at),
        "updated_at": _time(status.updated_at),
        "restarts": status.restart_count,
        "resumes": status.resume_count,
        "resume_reason": status.resume_reason,
        "resumed_at": None if status.resumed_at is None else _time(status.resumed_at),
        "last_error": status.last_error,
        "last_error_at": None if status.last_error_at is None else _time(status.last_error_at),
        "batch_id": status.batch_id,
        "batches": status.batch_count,
        "batch_ms": status.batch_ms,
        "phases_ms": dict(status.phases_ms),
        "late_rows": status.late_row_count,
        "state_rows": status.state_row_count,
        "state_bytes": status.state_bytes,
        "operators": status.operator_counts,
        "watermark": status.watermark,
        "watermark_lag_s": status.watermark_lag_s(now),
        "waiting": [
            {"operator": each.operator, "found": each.found, "advice": each.advice}
            for each in waiting(status, now)
        ],
        "sources": list(_sources(status)),
        "next_offsets": status.next_offsets,
    }


def _sources(status: Status) -> Iterator[dict[str, object]]:
    """How far each source is, those first that hold an operator's watermark back."""
    for operator, report in sorted(status.time_reports.items()):
        for source in report.sources:
            yield {
                "operator": operator,
                "source": source.source,
                "newest_event": _moment(source.event_us),
                "newest_record": _moment(source.record_us),
                "is_idle": source.is_idle,
            }


def _moment(time_us: int | None) -> str | None:
    return None if time_us is None else _time(moment(time_us))


def _lags(statuses: Sequence[Status]) -> dict[str, int | None]:
    """What the broker has beyond the last batch now; where it does not say, what the driver last knew."""
    lags: dict[str, int | None] = {status.name: status.lag for status in statuses}
    alive = [status for status in statuses if status.state in LAG_IS_ASKED_OF]
    for bootstrap in {status.bootstrap for status in alive}:
        here = [status for status in alive if status.bootstrap == bootstrap]
        lags.update(LagReader(bootstrap, client_options()).lags(here))
    return lags


def _batch(status: Status) -> str | None:
    """`12: 350 ms (addBatch 280, walCommit 40)`: the last batch and what took longest."""
    if status.batch_id is None:
        return None
    longest = sorted(status.phases_ms.items(), key=_duration, reverse=True)[:PHASES_SHOWN]
    phases = ", ".join(f"{name} {ms}" for name, ms in longest)
    return f"{status.batch_id}: {status.batch_ms} ms ({phases})"


def _duration(phase: tuple[str, int]) -> int:
    return phase[1]


def _state_size(status: Status) -> str | None:
    if status.state_row_count is None:
        return None
    return f"{status.state_row_count} rows, {(status.state_bytes or 0) / MIB:.1f} MiB"


def _time(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _say_errors(statuses: Sequence[Status]) -> None:
    for status in statuses:
        if status.restart_count:
            say(f"{status.name} was started again {_times(status.restart_count)} by its supervisor")
        if status.resume_reason is not None:
            at = "" if status.resumed_at is None else f" at {_time(status.resumed_at)}"
            say(
                f"{status.name} was started again {_times(status.resume_count)} by its driver, last{at}: "
                f"{escape(status.resume_reason)}"
            )
        if status.last_error is not None:
            at = "" if status.last_error_at is None else f" at {_time(status.last_error_at)}"
            say(f"{status.name} last failed{at}: {escape(status.last_error)}")
