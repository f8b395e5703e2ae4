"""A picture of time as SVG: a file of its own that loads nothing, readable on light and on dark pages: it has
a ground of its own, because what a reader's system likes is not always how a page looks.

All that comes from data is escaped. Colours also differ in shape, so that a picture does not depend on them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final
from xml.sax.saxutils import escape, quoteattr

from headrace.streams.timeline.picture import Band, Mark, Picture, Point
from headrace.streams.timeline.scales import tick_texts, time_text

WIDTH: Final = 960
HEIGHT: Final = 520
_LEFT, _RIGHT, _TOP, _BOTTOM = 92, 16, 74, 48
_STYLE: Final = """
  .page { fill: #ffffff }
  text { font: 12px system-ui, sans-serif; fill: #1f2328 }
  .title { font-size: 15px; font-weight: 600 }
  .quiet { fill: #59636e }
  .grid { stroke: #d1d9e0; stroke-width: 1 }
  .axis { stroke: #59636e; stroke-width: 1 }
  .open { fill: #0969da; fill-opacity: .10; stroke: #0969da; stroke-opacity: .45 }
  .kept { fill: none; stroke: #0969da; stroke-opacity: .45; stroke-dasharray: 4 3 }
  .watermark { fill: none; stroke: #1a7f37; stroke-width: 2.5 }
  .in_time { fill: #59636e; fill-opacity: .75 }
  .correction { stroke: #9a6700; stroke-width: 2.5 }
  .late { stroke: #cf222e; stroke-width: 2.5 }
  .early-mark { fill: #ffffff; stroke: #0969da; stroke-width: 1.5 }
  .on_time-mark { fill: #0969da }
  .late-mark { fill: #9a6700 }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0d1117 } text { fill: #f0f6fc } .quiet { fill: #9198a1 }
    .grid { stroke: #3d444d } .axis { stroke: #9198a1 }
    .open { fill: #4493f8; stroke: #4493f8 } .kept { stroke: #4493f8 } .watermark { stroke: #3fb950 }
    .in_time { fill: #9198a1 } .correction { stroke: #d29922 } .late { stroke: #f85149 }
    .early-mark { fill: #0d1117; stroke: #4493f8 } .on_time-mark { fill: #4493f8 }
    .late-mark { fill: #d29922 }
  }
"""


def draw_svg(picture: Picture) -> str:
    """The picture as one SVG file."""
    described = f"{picture.title}: event time against the log's time, the watermark, and windows"
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label={quoteattr(described)}>',
        f"<style>{_STYLE}</style>",
        f'<rect class="page" width="{WIDTH}" height="{HEIGHT}"/>',
        f'<text class="title" x="{_LEFT}" y="20">{escape(picture.title)}</text>',
        *_legend(picture),
        *_grid(picture),
        *(line for band in picture.bands for line in _band(picture, band)),
        *_watermark(picture),
        *(_point(picture, point) for point in picture.points if point.fate == "in_time"),
        *(_mark(picture, mark) for mark in picture.marks if picture.y.holds(mark.y)),
        *(_point(picture, point) for point in picture.points if point.fate != "in_time"),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _x(picture: Picture, value: int) -> float:
    return round(_LEFT + picture.x.place(value) * (WIDTH - _LEFT - _RIGHT), 1)


def _y(picture: Picture, value: int) -> float:
    return round(HEIGHT - _BOTTOM - picture.y.place(value) * (HEIGHT - _TOP - _BOTTOM), 1)


def _grid(picture: Picture) -> Iterator[str]:
    ticks = picture.y.ticks(8)
    for tick, text in zip(ticks, tick_texts(ticks), strict=True):
        y = _y(picture, tick)
        yield f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>'
        yield f'<text class="quiet" x="{_LEFT - 8}" y="{y + 4}" text-anchor="end">{escape(text)}</text>'
    bottom = HEIGHT - _BOTTOM
    yield f'<line class="axis" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{bottom}" y2="{bottom}"/>'
    yield f'<line class="axis" x1="{_LEFT}" x2="{_LEFT}" y1="{_TOP}" y2="{bottom}"/>'
    yield f'<text class="quiet" x="{_LEFT - 8}" y="{_TOP - 10}" text-anchor="end">event time</text>'
    if picture.across == "order":
        yield _right(
            bottom + 36, "rows in the order in which they came: too close together for the log's time"
        )
        return
    ticks = picture.x.ticks(9)
    for tick, text in zip(ticks, tick_texts(ticks), strict=True):
        x = _x(picture, tick)
        yield f'<line class="axis" x1="{x}" x2="{x}" y1="{bottom}" y2="{bottom + 4}"/>'
        yield f'<text class="quiet" x="{x}" y="{bottom + 18}" text-anchor="middle">{escape(text)}</text>'
    yield _right(bottom + 36, "the log's time (processing time)")


def _right(y: int, words: str) -> str:
    return f'<text class="quiet" x="{WIDTH - _RIGHT}" y="{y}" text-anchor="end">{escape(words)}</text>'


def _band(picture: Picture, band: Band) -> Iterator[str]:
    top, bottom = _y(picture, band.end), _y(picture, band.start)
    begin = _x(picture, band.begin)
    edge = WIDTH - _RIGHT
    ended = edge if band.ended is None else _x(picture, band.ended)
    words = f"{time_text(band.start)} to {time_text(band.end)}: {band.label}"
    yield _rect("open", (begin, ended), (top, bottom), words)
    closed = edge if band.closed is None else _x(picture, band.closed)
    if band.ended is not None and closed > ended:
        yield _rect("kept", (ended, closed), (top, bottom), f"{words}, kept for corrections")


def _rect(kind: str, x: tuple[float, float], y: tuple[float, float], words: str) -> str:
    """From one corner to the other, and never too thin to be seen."""
    size = f'width="{round(max(x[1] - x[0], 1.0), 1)}" height="{round(max(y[1] - y[0], 1.0), 1)}"'
    return f'<rect class="{kind}" x="{x[0]}" y="{y[0]}" {size}><title>{escape(words)}</title></rect>'


def _watermark(picture: Picture) -> Iterator[str]:
    if picture.steps:
        corners = [f"{_x(picture, x)},{_y(picture, y)}" for x, y in picture.steps]
        last = f"{WIDTH - _RIGHT},{_y(picture, picture.steps[-1][1])}"
        yield f'<polyline class="watermark" points="{" ".join([*corners, last])}"/>'


def _point(picture: Picture, point: Point) -> str:
    x, y = _x(picture, point.x), _y(picture, point.y)
    words = f"<title>{escape(f'{point.label}, happened {time_text(point.y)}')}</title>"
    return _sign(point.fate, x, y, words)


def _sign(fate: str, x: float, y: float, words: str = "") -> str:
    if fate == "in_time":
        return f'<circle class="in_time" cx="{x}" cy="{y}" r="3">{words}</circle>'
    if fate == "correction":
        path = f"M{x - 5} {y}h10M{x} {y - 5}v10"
    else:
        path = f"M{x - 5} {y - 5}l10 10M{x - 5} {y + 5}l10 -10"
    return f'<path class="{fate}" d="{path}">{words}</path>'


def _mark(picture: Picture, mark: Mark) -> str:
    words = f"<title>{escape(f'{mark.label}, window until {time_text(mark.y)}')}</title>"
    return _mark_sign(mark.kind, _x(picture, mark.x), _y(picture, mark.y), words)


def _mark_sign(kind: str, x: float, y: float, words: str = "") -> str:
    if kind == "late":
        return f'<path class="late-mark" d="M{x} {y - 6}l6 6l-6 6l-6 -6z">{words}</path>'
    return f'<circle class="{kind}-mark" cx="{x}" cy="{y}" r="5">{words}</circle>'


def _legend(picture: Picture) -> Iterator[str]:
    """Only what is in the picture."""
    fates = {point.fate for point in picture.points}
    kinds = {mark.kind for mark in picture.marks}
    is_kept = any(band.ended is not None and band.closed != band.ended for band in picture.bands)
    y = 42
    entries = [
        (_sign("in_time", 0, y), "row", "in_time" in fates),
        (_sign("correction", 0, y), "correction", "correction" in fates),
        (_sign("late", 0, y), "late row", "late" in fates),
        (f'<path class="watermark" d="M-8 {y}h16"/>', "watermark", bool(picture.steps)),
        (f'<rect class="open" x="-8" y="{y - 6}" width="16" height="12"/>', "window", bool(picture.bands)),
        (f'<rect class="kept" x="-8" y="{y - 6}" width="16" height="12"/>', "kept for corrections", is_kept),
        (_mark_sign("early", 0, y), "fired early", "early" in kinds),
        (_mark_sign("on_time", 0, y), "fired on time", "on_time" in kinds),
        (_mark_sign("late", 0, y), "fired late", "late" in kinds),
    ]
    x = _LEFT + 8.0
    for sign, words, is_there in entries:
        if is_there:
            yield f'<g transform="translate({x:.0f} 0)">{sign}<text x="14" y="{y + 4}">{words}</text></g>'
            x += 34 + 6.2 * len(words)
