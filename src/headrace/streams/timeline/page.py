"""A page with the pictures of a pipeline's time: one file of HTML that loads nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Any, Final

from headrace.streams.timeline.picture import picture_of
from headrace.streams.timeline.svg import draw_svg
from headrace.streams.timeline.tables import LATE_COLUMNS, WINDOW_COLUMNS, late_rows, window_rows
from headrace.streams.timeline.timeline import Key, Timeline

ROWS_MAX: Final = 500
"""How many rows a table has at most."""
_STYLE: Final = """
:root { color-scheme: light dark }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1100px; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; font-size: 13px; margin: 1rem 0; display: block; overflow-x: auto }
th, td { text-align: left; padding: .25rem .6rem; border-bottom: 1px solid #8884; white-space: nowrap }
figure { margin: 1.5rem 0; overflow-x: auto } svg { width: 100%; min-width: 640px; height: auto }
"""


def draw_page(
    name: str, words: Sequence[str], timelines: Sequence[Timeline], *, key: Key | None = None
) -> str:
    """The description of a pipeline, and for each operator its picture, windows and late rows."""
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(name)}: event time</title>",
        f"<style>{_STYLE}</style></head><body>",
        f"<h1>{escape(name)}</h1>",
        *_list(words),
        *(part for timeline in timelines for part in _section(timeline, key)),
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def _section(timeline: Timeline, key: Key | None) -> Iterator[str]:
    yield f"<h2>{escape(timeline.operator)}</h2>"
    picture = picture_of(timeline, key=key)
    if picture is not None:
        yield f"<figure>{draw_svg(picture)}</figure>"
    yield from _list((*timeline.notes, *(picture.notes if picture else ())))
    if timeline.has_windows:
        yield from _table("Windows", WINDOW_COLUMNS, list(window_rows(timeline, key)))
    yield from _table("Late rows", LATE_COLUMNS, list(late_rows(timeline, key)))


def _list(lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield "<ul>" + "".join(f"<li>{escape(line)}</li>" for line in lines) + "</ul>"


def _table(title: str, columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    if not rows:
        return
    more = f", the last {ROWS_MAX} of {len(rows):,}" if len(rows) > ROWS_MAX else ""
    head = "".join(f"<th>{escape(column.replace('_', ' '))}</th>" for column in columns)
    yield f"<h3>{title}{more}</h3><table><thead><tr>{head}</tr></thead><tbody>"
    for row in rows[-ROWS_MAX:]:
        yield "<tr>" + "".join(f"<td>{escape(str(row[column]))}</td>" for column in columns) + "</tr>"
    yield "</tbody></table>"
