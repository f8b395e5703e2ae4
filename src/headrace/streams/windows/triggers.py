"""When a window gives results.

| trigger | fires |
|---|---|
| `on_time()` | once, when the watermark passes the window's end |
| `early(every=...)`, `early(rows=...)` | also before that, while it changes: "early" |
| `each(rows=...)`, `each(every=...)`, `each(where=...)` | a global window, which has no end |

`every` is measured in the log's own time, by the records' timestamps, so that a replay fires as the stream
did. Early firings happen at the end of a micro-batch: at most one in each.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.errors import PipelineError
from headrace.streams.time.durations import Duration, duration_us


@dataclass(frozen=True, slots=True, kw_only=True)
class OnTime:
    """Once, when the watermark passes the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Early:
    """On time, and before that whenever so much has come since the last firing. One of the two is given."""

    every_us: int | None = None
    rows: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Each:
    """For global windows. One of the three is given."""

    rows: int | None = None
    every_us: int | None = None
    where: str | None = None
    """A boolean column: a row in which it is true closes its group."""
    accumulate: bool = False
    """Whether a firing keeps what earlier ones had; else each begins anew."""


Trigger = OnTime | Early | Each


def on_time() -> OnTime:
    """Fire once, when the watermark passes the window's end."""
    return OnTime()


def early(*, every: Duration | None = None, rows: int | None = None) -> Early:
    """Fire also before the end: each time so much log time has passed, or so many rows have come."""
    if (every is None) == (rows is None):
        raise PipelineError("early() takes one of every= and rows=, such as early(every='10 seconds')")
    return Early(every_us=_optional_us(every), rows=_row_count(rows))


def each(
    *,
    rows: int | None = None,
    every: Duration | None = None,
    where: str | None = None,
    accumulate: bool = False,
) -> Each:
    """Fire a global window: for each so many rows, so much log time, or after a row where `where` is true."""
    if sum(given is not None for given in (rows, every, where)) != 1:
        raise PipelineError("each() takes one of rows=, every= and where=, such as each(rows=100)")
    if where is not None and not _is_name(where):
        raise PipelineError(f"each(where={where!r}): give the name of a boolean column")
    return Each(rows=_row_count(rows), every_us=_optional_us(every), where=where, accumulate=accumulate)


def _optional_us(every: Duration | None) -> int | None:
    return None if every is None else duration_us(every, "every")


def _is_name(value: object) -> bool:
    return isinstance(value, str) and value != ""


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _row_count(rows: int | None) -> int | None:
    if rows is not None and not _is_count(rows):
        raise PipelineError(f"rows is {rows!r}, but must be a whole number from 1 on")
    return rows
