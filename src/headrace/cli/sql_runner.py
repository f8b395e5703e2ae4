"""Runs the statements of `headrace sql` and prints what they give."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from headrace.cli.output import out, print_json, print_rows, say
from headrace.cli.sql_output import LIVE_ROWS_MAX, TABLE_ROWS_MAX, Lines, LiveTable, SqlFormat, print_table
from headrace.config import StreamsConfig
from headrace.driver.restarts import RestartPolicy
from headrace.driver.supervise import Supervised
from headrace.streams.checkpoint import try_lock_checkpoint
from headrace.streams.sql.bounded import errors_told, rows_of
from headrace.streams.sql.shapes import shape_of
from headrace.streams.sql.statements import CreateTable, CreateView, Describe, Drop, Query, Show, Statement
from headrace.streams.sql.store import Store

if TYPE_CHECKING:
    from headrace.streams.spans import Bound
    from headrace.streams.sql.bounded import Refused
    from headrace.streams.sql.definitions import View
    from headrace.streams.sql.engine import Engine


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """How results are wanted."""

    format: SqlFormat
    limit: int | None
    is_live: bool
    begin: Bound
    finish: Bound


class Runner:
    """Runs statements, one after the other."""

    def __init__(self, engine: Engine, asked: Asked) -> None:
        self.engine = engine
        self.asked = asked

    def run(self, statement: Statement) -> View | None:
        """Run one and print its result. Returns the view that it made, which is not running yet."""
        if isinstance(statement, Query):
            self._query(statement)
        elif isinstance(statement, CreateView):
            return self._create_view(statement)
        elif isinstance(statement, CreateTable):
            say(self.engine.create_table(statement))
        elif isinstance(statement, Drop):
            say(self.engine.drop(statement))
        elif isinstance(statement, Show):
            shown = self.engine.show(statement)
            self._list(shown, ("name", "reads", "query") if statement.kind == "views" else None)
        elif isinstance(statement, Describe):
            self._list(self.engine.describe(statement), ("column", "type"))
        return None

    def _create_view(self, statement: CreateView) -> View:
        view = self.engine.create_view(statement)
        shape = shape_of(view)
        holds = "the current row of each " + ", ".join(shape.key) if shape.is_keyed else "its rows"
        say(f"view {view.name} is kept; its topic {view.name} holds {holds}")
        return view

    def _list(self, rows: Sequence[dict[str, Any]], columns: tuple[str, ...] | None) -> None:
        if self.asked.format == "json":
            for row in rows:
                print_json(row)
            return
        print_rows(rows, columns=columns or ("name", "kind", "topic", "described_by"), as_json=False)

    def _query(self, query: Query) -> None:
        with errors_told():
            if query.is_live or self.asked.is_live:
                self._live(query.sql)
            else:
                self._bounded(query.sql)

    def _bounded(self, sql: str) -> None:
        bounded = self.engine.bounded(sql, begin=self.asked.begin, finish=self.asked.finish)
        rows = bounded.rows()
        if self.asked.format == "table":
            limit = self.asked.limit or TABLE_ROWS_MAX
            print_table(rows.columns, rows_of(rows, limit), limit)
        else:
            lines = self._lines(rows.columns)
            lines.write(rows_of(rows, self.asked.limit))
            lines.end()
        for refused in bounded.refused():
            _note(refused)

    def _live(self, sql: str) -> None:
        on_terminal = self.asked.format == "table" and out.is_terminal
        live = self.engine.live(sql, all_groups=on_terminal, begin=self.asked.begin)
        rows, gives = live.plan()
        with _stopped_by_signals() as stop:
            if on_terminal:
                table = LiveTable(
                    columns=rows.columns,
                    key=live.key if gives == "keys" else (),
                    is_whole=gives == "groups",
                    limit=self.asked.limit or LIVE_ROWS_MAX,
                )
                with table.shown():
                    live.run(rows, gives, table.take, stop, _note)
                return
            lines = self._lines(rows.columns)

            def write(batch: Iterable[str]) -> None:
                lines.write(batch)
                if lines.is_full:
                    stop.set()

            live.run(rows, gives, write, stop, _note)
            lines.end()

    def _lines(self, columns: Sequence[str]) -> Lines:
        # A table can't be drawn before its last row is known, and a live one has none.
        lines: SqlFormat = "json" if self.asked.format == "table" else self.asked.format
        return Lines(format=lines, columns=columns, limit=self.asked.limit)


def _note(refused: Refused) -> None:
    say(f"note: {refused}")


@contextmanager
def _stopped_by_signals() -> Iterator[threading.Event]:
    stop = threading.Event()

    def handle(_signal: int, _frame: FrameType | None) -> None:
        stop.set()

    former = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


@dataclass(slots=True, kw_only=True)
class ViewDriver:
    """Runs views by `headrace run`: in the foreground, or beside a shell."""

    config: StreamsConfig
    options: Sequence[str]
    restarts: int

    def run(self, view: View) -> int:
        """Run it until Ctrl-C; its exit code."""
        say(
            f"running it until Ctrl-C; later, `headrace run --views` runs all views of {self.config.data_dir}"
        )
        return Supervised(
            ("-m", "headrace", *self._arguments(view), "--restarts", "0"),
            data_dir=self.config.data_dir,
            policy=RestartPolicy(count_max=self.restarts),
            say=say,
        ).run()

    def start(self, view: View) -> subprocess.Popen[bytes]:
        """Run it beside this process, which it does not outlive. What it says goes to its log."""
        log = self.log_path(view.name)
        log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with log.open("wb") as file:
            return subprocess.Popen(
                [sys.executable, "-m", "headrace.child", "-m", "headrace", *self._arguments(view)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=file,
                start_new_session=True,
            )

    def is_running(self, name: str) -> bool:
        """Whether the view runs, in whatever process."""
        with ExitStack() as held:
            return not try_lock_checkpoint(self.config, name, held)

    def log_path(self, name: str) -> Path:
        """Where a view that runs beside this process says what it does."""
        return Store(data_dir=self.config.data_dir).log_path(name)

    def _arguments(self, view: View) -> list[str]:
        path = Store(data_dir=self.config.data_dir).view_path(view.name)
        # What stands before the command is for all commands, such as --client-config.
        before = sys.argv[1 : sys.argv.index("sql")] if "sql" in sys.argv else []
        return [*before, "run", str(path), *self.options]
