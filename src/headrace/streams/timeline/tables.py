"""Timelines as rows of tables, and as JSON. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Final

from headrace.driver.event_time import moment
from headrace.streams.timeline.scales import clock_text, span_days, time_text
from headrace.streams.timeline.timeline import Key, Row, Timeline, Window
from headrace.streams.timeline.words import driver_of, key_words, length, values_words

BATCHES_TOLD: Final = 3
"""How many firings of a kind are told by their batches."""
WINDOW_COLUMNS = ("key", "window", "rows", "fired_in_batch", "last_result", "closed")
LATE_COLUMNS = (
    "record",
    "key",
    "happened",
    "written",
    "watermark",
    "window_end",
    "late_by",
    "went_to",
    "why",
)


def window_rows(timeline: Timeline, key: Key | None = None) -> Iterator[dict[str, Any]]:
    """A row for each window: in which batches it fired, and what it gave last."""
    windows = [window for window in timeline.windows if key is None or window.key == key]
    with_date = span_days(
        [bound for each in windows for bound in (each.start_us, each.end_us) if bound is not None]
    )
    for window in windows:
        yield {
            "key": key_words(window.key),
            "window": _bounds(window, with_date=with_date),
            "rows": window.row_count,
            "fired_in_batch": _fired(timeline, window),
            "last_result": values_words(window.firings[-1]) if window.firings else "-",
            "closed": _state(timeline, window),
        }


def late_rows(timeline: Timeline, key: Key | None = None) -> Iterator[dict[str, Any]]:
    """A row for each late row: what made it late, and where it went."""
    for row in timeline.late_rows():
        if key is not None and row.key != key:
            continue
        lateness = row.lateness
        yield {
            "record": row.place,
            "key": key_words(row.key),
            "happened": time_text(row.event_us),
            "written": time_text(row.record_us),
            "watermark": time_text(timeline.moments[row.moment].before_us),
            "window_end": "-" if lateness is None else time_text(lateness.end_us),
            "late_by": "-" if lateness is None else length(lateness.late_by_us),
            "went_to": timeline.late_topic or "dropped",
            "why": "no event time" if lateness is None else driver_of(timeline, row),
        }


def timeline_json(timeline: Timeline, key: Key | None = None) -> dict[str, Any]:
    """All of a timeline, or what is a key's of it, with times as text."""
    return {
        "operator": timeline.operator,
        "by": list(timeline.by),
        "late_topic": timeline.late_topic,
        "notes": list(timeline.notes),
        "batches": [_plain(asdict(each)) for each in timeline.moments],
        "rows": [row_json(timeline, row) for row in timeline.rows if key is None or row.key == key],
        "windows": [
            _window_json(timeline, window) for window in timeline.windows if key is None or window.key == key
        ],
    }


def row_json(timeline: Timeline, row: Row) -> dict[str, Any]:
    """What became of a row."""
    told = _plain(asdict(row))
    told["batch"] = timeline.moments[told.pop("moment")].batch
    if row.lateness is not None:
        told["why"] = driver_of(timeline, row)
    return told


def _window_json(timeline: Timeline, window: Window) -> dict[str, Any]:
    return {
        "key": list(window.key),
        "start": _iso(window.start_us),
        "end": _iso(window.end_us),
        "row_count": window.row_count,
        "is_open": window.is_open,
        "closed_in_batch": None if window.closed is None else timeline.moments[window.closed].batch,
        "firings": [
            {
                "firing": firing.kind,
                "batch": timeline.moments[firing.moment].batch,
                "retracted": firing.retracted,
                "values": _json(firing.values),
            }
            for firing in window.firings
        ],
    }


def _bounds(window: Window, *, with_date: bool) -> str:
    if window.start_us is None:
        return "global"
    return " to ".join(clock_text(bound, with_date=with_date) for bound in (window.start_us, window.end_us))


def _fired(timeline: Timeline, window: Window) -> str:
    """`early 1, 2; on time 4`: each with its batches."""
    told = []
    for kind in ("early", "on_time", "late"):
        batches = [timeline.moments[firing.moment].batch for firing in window.fired(kind)]
        first = f"{len(batches) - BATCHES_TOLD} times, " if len(batches) > BATCHES_TOLD else ""
        if batches:
            last = ", ".join(map(str, batches[-BATCHES_TOLD:]))
            told.append(f"{kind.replace('_', ' ')} {first}{last}")
    return "; ".join(told) or "-"


def _state(timeline: Timeline, window: Window) -> str:
    if window.closed is not None:
        return f"batch {timeline.moments[window.closed].batch}"
    return "open" if window.is_open else "takes corrections"


def _plain(fields: dict[str, Any]) -> dict[str, Any]:
    """With times as text, under names without their unit."""
    told: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(value, dict):
            told[name] = _plain(value)
        elif name in {"late_by_us", "delay_us"}:
            told[name.replace("_us", "_ms")] = None if value is None else value // 1_000
        elif name.endswith("_us"):
            told[name.removesuffix("_us")] = _iso(value)
        else:
            told[name] = _json(value)
    return told


def _iso(time_us: int | None) -> str | None:
    return None if time_us is None else moment(time_us).isoformat().replace("+00:00", "Z")


def _json(value: Any) -> Any:
    """With what JSON has."""
    return json.loads(json.dumps(value, default=str))
