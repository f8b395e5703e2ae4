"""What `headrace sql` prints: a table for people, lines of JSON or CSV for programs."""

from __future__ import annotations

import csv
import json
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from headrace.cli.output import out, say

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

SqlFormat = Literal["table", "json", "csv"]
TABLE_ROWS_MAX: Final = 1_000
"""How many rows a table on a terminal has at most where no limit is given."""
LIVE_ROWS_MAX: Final = 20
"""The same for a table that changes."""
KEYS_MAX: Final = 100_000
"""Of how many keys a live table remembers the rows."""


class _Number(str):
    """A number that is not whole, as it is written: a decimal has more digits than a float."""

    __slots__ = ()


def cell(value: Any) -> str:
    """A value as text: nested ones as JSON, nothing for null."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    return str(value)


def make_table(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> Table:
    """A table, numbers to the right."""
    from rich.table import Table as RichTable  # noqa: PLC0415  # only who shows one needs it
    from rich.text import Text  # noqa: PLC0415  # likewise

    shown = list(rows)
    table = RichTable(box=None, header_style="bold", pad_edge=False)
    for name in columns:
        values = [row.get(name) for row in shown]
        is_number = bool(shown) and all(_is_number(value) for value in values)
        table.add_column(Text(name), justify="right" if is_number else "left", overflow="fold")
    for row in shown:
        table.add_row(*(Text(cell(row.get(name))) for name in columns))
    return table


def _is_number(value: object) -> bool:
    return isinstance(value, int | _Number | None) and not isinstance(value, bool)


@dataclass(slots=True, kw_only=True)
class Lines:
    """Rows as lines on standard output, as they come."""

    format: SqlFormat
    columns: Sequence[str]
    limit: int | None = None
    count: int = 0
    is_cut: bool = False
    """Whether there was a row behind the limit."""
    _has_header: bool = False

    @property
    def is_full(self) -> bool:
        """Whether there are as many rows as are wanted."""
        return self.limit is not None and self.count >= self.limit

    def write(self, rows: Iterable[str]) -> None:
        """Print rows that are JSON, up to the limit."""
        for row in rows:
            if self.is_full:
                self.is_cut = True
                break
            self._write_row(row)
            self.count += 1
        sys.stdout.flush()

    def _write_row(self, row: str) -> None:
        if self.format == "json":
            sys.stdout.write(row + "\n")
            return
        writer = csv.writer(sys.stdout, lineterminator="\n")
        if not self._has_header:
            writer.writerow(self.columns)
            self._has_header = True
        found = _parsed(row)
        writer.writerow([cell(found.get(name)) for name in self.columns])

    def end(self) -> None:
        """Say what was left out."""
        if self.format == "csv" and not self._has_header:
            csv.writer(sys.stdout, lineterminator="\n").writerow(self.columns)
            sys.stdout.flush()
        if self.is_cut:
            say(f"note: there are more rows; --limit {self.limit} has cut them off")


def print_table(columns: Sequence[str], rows: Iterable[str], most: int) -> None:
    """Print all rows at once, as a table; at most so many."""
    shown: list[Mapping[str, Any]] = []
    for row in rows:
        if len(shown) == most:
            say(f"note: there are more rows; the first {most:,} are shown: use --limit, or --format json")
            break
        shown.append(_parsed(row))
    out.print(make_table(columns, shown))
    out.print(f"{len(shown):,} row{'' if len(shown) == 1 else 's'}", style="dim")


@dataclass(slots=True, kw_only=True)
class LiveTable:
    """A table on a terminal that follows a query."""

    columns: Sequence[str]
    key: tuple[str, ...] = ()
    """Of rows that replace each other."""
    is_whole: bool = False
    """Whether each batch is all that there is."""
    limit: int = LIVE_ROWS_MAX
    keys_max: int = KEYS_MAX
    count: int = 0
    is_forgetful: bool = False
    """Whether there were more keys than are remembered."""
    _last: deque[Mapping[str, Any]] = field(default_factory=deque)
    _by_key: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    _live: Live | None = None

    @contextmanager
    def shown(self) -> Iterator[LiveTable]:
        """Show it for as long as the block lasts, and leave it there."""
        from rich.live import Live as RichLive  # noqa: PLC0415  # only who shows one needs it

        with RichLive(self._render(), console=out, auto_refresh=False) as live:
            self._live = live
            yield self

    def take(self, rows: Iterable[str]) -> None:
        """Show a batch."""
        if self.is_whole:
            self._last.clear()
            self.count = 0
        for row in map(_parsed, rows):
            self._take_row(row)
        if self._live is not None:
            self._live.update(self._render(), refresh=True)

    def _take_row(self, row: Mapping[str, Any]) -> None:
        self.count += 1
        if self.key:
            key = json.dumps([row.get(name) for name in self.key])
            self._by_key.pop(key, None)
            if not row.get("_delete"):
                self._by_key[key] = row
            if len(self._by_key) > self.keys_max:
                self._by_key.pop(next(iter(self._by_key)))
                self.is_forgetful = True
            return
        if self.is_whole and len(self._last) == self.limit:
            return
        self._last.append(row)
        if len(self._last) > self.limit:
            self._last.popleft()

    @property
    def rows(self) -> list[Mapping[str, Any]]:
        """Those that are shown."""
        return list(self._by_key.values())[-self.limit :] if self.key else list(self._last)

    @property
    def caption(self) -> str:
        """What is said below them."""
        total, shown = len(self._by_key) if self.key else self.count, len(self.rows)
        which = "first" if self.is_whole else "last"
        cut = f", the {which} {shown:,} are shown" if total > shown else ""
        at_least = "more than " if self.is_forgetful else ""
        return f"{at_least}{total:,} row{'' if total == 1 else 's'}{cut}; Ctrl-C ends"

    def _render(self) -> Table:
        table = make_table([name for name in self.columns if name != "_delete"], self.rows)
        table.caption, table.caption_justify = self.caption, "left"
        return table


def _parsed(row: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json.loads(row, parse_float=_Number)
    return found
