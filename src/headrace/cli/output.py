"""What commands print: tables for people, JSON for programs, errors as one sentence.

Results go to standard output and everything else to standard error, so that a pipe sees results only.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    out: Console
    err: Console


def __getattr__(name: str) -> Console:
    """Make the consoles when they are first asked for: a server that prints one line starts without them."""
    if name not in {"out", "err"}:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from rich.console import Console  # noqa: PLC0415  # see above

    console = globals()[name] = Console(stderr=name == "err", highlight=False)
    return console


def _console(name: str) -> Console:
    console: Console = getattr(sys.modules[__name__], name)
    return console


def print_rows(rows: Sequence[Mapping[str, object]], *, columns: Sequence[str], as_json: bool) -> None:
    """Print rows as a table, or as one JSON array. JSON has every field; the table has the columns."""
    if as_json:
        print_json(list(rows))
        return
    from rich.table import Table  # noqa: PLC0415  # see above

    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        is_number = bool(rows) and all(isinstance(row[column], int | None) for row in rows)
        table.add_column(column.replace("_", " "), justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        table.add_row(*("-" if row[column] is None else str(row[column]) for column in columns))
    _console("out").print(table)


def print_json(value: object) -> None:
    """Print one JSON value on one line, never wrapped or coloured."""
    sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def announce(line: str) -> None:
    """One line on standard output, never wrapped, because programs read it too."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def say(line: str) -> None:
    """Tell a person what is going on, without getting into the results."""
    _console("err").print(line, soft_wrap=True)


def report(line: str, result: Mapping[str, object], *, as_json: bool) -> None:
    """Say what was done: a sentence for people, or a JSON value for programs."""
    if as_json:
        print_json(result)
    else:
        say(line)
