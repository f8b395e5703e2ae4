"""A picture of time for a terminal.

     10:02:00 ┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄●┄┄┄┄┄     a window's end, and where it fired
              ·     ·    ·  ┌──────     rows, and the watermark
     10:01:00 ┄┄┄┄┄┄┄┄●┄┄┄┄┄┘┄┄┄┄┄┄
              ·  · ┌─────┘    x         a late row
              └────────────────────
                   10:00:30   10:01:30

What matters more is drawn over what matters less: late rows over firings, these over the watermark, this over
rows in time, and all over the ends of windows. Where windows are so many that their ends would cover all,
they and their firings are left out.
"""

from __future__ import annotations

from typing import Final

from headrace.streams.timeline.picture import Picture
from headrace.streams.timeline.scales import tick_texts

WIDTH_MIN: Final = 50
WIDTH_MAX: Final = 160
HEIGHT: Final = 24
SIGNS: Final = {"in_time": "·", "correction": "+", "late": "x"}
MARKS: Final = {"early": "○", "on_time": "●", "late": "◆"}
LEGEND: Final = (
    "· row   + row that corrects a window   x late row   ─ watermark   ┄ end of a window   "
    "○ fired early   ● on time   ◆ late"
)


def draw(picture: Picture, *, width: int, height: int = HEIGHT) -> list[str]:
    """The picture in lines of at most so many characters."""
    canvas = _Canvas(picture, min(max(width, WIDTH_MIN), WIDTH_MAX), height)
    canvas.draw_windows()
    canvas.draw_points("in_time")
    canvas.draw_watermark()
    canvas.draw_marks()
    canvas.draw_points("correction")
    canvas.draw_points("late")
    return canvas.lines()


class _Canvas:
    """Characters on a grid; the lower line is the lesser time."""

    def __init__(self, picture: Picture, width: int, height: int) -> None:
        self.picture = picture
        self.height = height
        self.ends = {band.end for band in picture.bands if picture.y.holds(band.end)}
        self.is_dense = len(self.ends) > height * 2 // 3
        self.ticks = self._vertical_ticks()
        self.margin = max((len(text) for text in self.ticks.values()), default=0) + 1
        self.width = width - self.margin - 1
        self.cells = [[" "] * self.width for _ in range(height)]

    def draw_windows(self) -> None:
        """The ends of windows, where there are not so many that they would cover all."""
        for end in () if self.is_dense else self.ends:
            self.cells[self._line(end)] = ["┄"] * self.width

    def draw_points(self, fate: str) -> None:
        for point in self.picture.points:
            if point.fate == fate:
                self.cells[self._line(point.y)][self._column(point.x)] = SIGNS[fate]

    def draw_watermark(self) -> None:
        steps = self.picture.steps
        if not steps:
            return
        corners = [(self._column(x), self._line(y)) for x, y in steps]
        for (column, line), (next_column, next_line) in zip(
            corners, [*corners[1:], (self.width - 1, corners[-1][1])], strict=True
        ):
            if line == next_line:
                for each in range(column, next_column + 1):
                    self._join(each, line, "─")
            else:
                self._rise(column, line, next_line)

    def draw_marks(self) -> None:
        if self.is_dense:
            return
        for kind in ("early", "late", "on_time"):
            for mark in self.picture.marks:
                if mark.kind == kind and self.picture.y.holds(mark.y):
                    self.cells[self._line(mark.y)][self._column(mark.x)] = MARKS[kind]

    def lines(self) -> list[str]:
        """All lines, with both axes."""
        drawn = [
            f"{self.ticks.get(line, ''):>{self.margin - 1}} │{''.join(cells)}".rstrip()
            for line, cells in enumerate(self.cells)
        ]
        return [*drawn, f"{'':>{self.margin}}└{'─' * self.width}", *self._horizontal()]

    def _join(self, column: int, line: int, sign: str) -> None:
        if self.cells[line][column] not in "┘┌":
            self.cells[line][column] = sign

    def _rise(self, column: int, line: int, to: int) -> None:
        upper, lower = min(line, to), max(line, to)
        for each in range(upper + 1, lower):
            self.cells[each][column] = "│"
        self.cells[lower][column], self.cells[upper][column] = "┘", "┌"

    def _line(self, value: int) -> int:
        return self.height - 1 - round(self.picture.y.place(value) * (self.height - 1))

    def _column(self, value: int) -> int:
        return round(self.picture.x.place(value) * (self.width - 1))

    def _vertical_ticks(self) -> dict[int, str]:
        ticks = self.picture.y.ticks(self.height // 3)
        texts = tick_texts(ticks)
        return {self._line(tick): text for tick, text in zip(ticks, texts, strict=True)}

    def _horizontal(self) -> list[str]:
        if self.picture.across == "order":
            words = "rows in the order in which they came: too close together for the log's time"
            return [f"{'':>{self.margin}} {words}"]
        ticks = self.picture.x.ticks(max(self.width // 14, 1))
        line = [" "] * (self.width + 12)
        for tick, text in zip(ticks, tick_texts(ticks), strict=True):
            place = self._column(tick)
            if (
                all(sign == " " for sign in line[max(place - 1, 0) : place + len(text) + 1])
                and place + len(text) <= self.width + 1
            ):
                line[place : place + len(text)] = text
        return [f"{'':>{self.margin}} {''.join(line).rstrip()}", f"{'':>{self.margin}} the log's time"]
