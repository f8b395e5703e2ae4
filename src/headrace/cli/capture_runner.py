"""What the commands of `headrace capture` do: imports what is an extra."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Final

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)

from headrace.cli.client import client_options
from headrace.cli.output import announce, err, say
from headrace.config import CaptureConfig, failpoints_to_arm
from headrace.errors import ConfigError, HeadraceError, SetupError
from headrace.failpoints import arm_all

try:
    from headrace.cdc.capture import Capture
    from headrace.cdc.captures import delete_files, load_capture, names_of, save_capture
    from headrace.cdc.connection import connect, explained
    from headrace.cdc.database_catalog import DatabaseCatalog
    from headrace.cdc.events import is_captured, selection_of
    from headrace.cdc.pause import Pause
    from headrace.cdc.removal import LeftBehind, begin_anew, forget_database
    from headrace.cdc.removal import remove as remove_capture
    from headrace.cdc.requests import Requests, check_condition
    from headrace.cdc.slots import check_settings, read_slot
    from headrace.cdc.state import CaptureState, TableSnapshot
    from headrace.cdc.status import CaptureStatus, StatusFile, read_status
except ModuleNotFoundError as error:
    if error.name != "psycopg":
        raise
    raise SetupError(
        "capturing needs PostgreSQL's client: install `headrace[postgres]` (pip install 'headrace[postgres]')"
    ) from error

NOT_LOOKING: Final = frozenset({"paused", "stopped", "failed", "crashed"})
"""States in which nobody measures how much the database keeps for a capture."""
ENDED: Final = frozenset({"new", "stopped", "done", "failed", "crashed"})
"""States in which no process of a capture is there."""
LOOK_S_MAX: Final = 3
"""How long a person who wants to know waits for a database that does not answer."""
LINE_EVERY_ROWS: Final = 100_000
"""How often a snapshot says how far it is where there is no terminal."""


def check(config: CaptureConfig) -> list[str]:
    """Look at the database, and return the tables that would be captured now."""
    selection = selection_of(config)
    with closing(connect(config.dsn, within_s=0)) as connection:
        with explained(config.dsn, "looking at the database"):
            check_settings(connection)
        catalog = DatabaseCatalog(connection, config.dsn)
        names, columns = catalog.all_tables(), catalog.all_columns()
    unmatched = selection.unmatched(names, columns)
    if config.outbox_table and config.outbox_table not in {".".join(each) for each in names}:
        unmatched.append(config.outbox_table)
    if unmatched:
        raise ConfigError(
            f"the database has nothing like {', '.join(unmatched)}: is it mistyped? Tables are named as "
            "schema.table, columns as schema.table.column"
        )
    tables = [f"{schema}.{table}" for schema, table in names if selection.takes_table(schema, table)]
    if not tables:
        raise ConfigError(
            f"the database has no table that capture {config.name} would take in: it has "
            f"{', '.join(f'{schema}.{table}' for schema, table in names) or 'none at all'}"
        )
    return tables


def save(config: CaptureConfig) -> None:
    """Write a new capture down."""
    save_capture(config)


def load(data: Path, name: str) -> CaptureConfig:
    """A capture that was written down."""
    return load_capture(data, name, client_options())


def run(config: CaptureConfig, *, new_snapshot: bool) -> None:
    """Run a capture until a signal comes."""
    arm_all(failpoints_to_arm())
    if new_snapshot:
        begin_anew(config)
    status = Shown(config)
    capture = Capture(config, status)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: capture.stop())
    try:
        capture.keep_running()
    except HeadraceError as error:
        status.ended("failed", error)
        raise
    status.ended("stopped" if capture.is_stopping else "done")


def statuses(data: Path, name: str | None) -> list[CaptureStatus]:
    """What captures do; all, or one."""
    names = names_of(data) if name is None else [load(data, name).name]
    return [_looked_at(data, read_status(data / "captures" / each).seen_now()) for each in names]


def _looked_at(data: Path, status: CaptureStatus) -> CaptureStatus:
    """With what the database keeps for a capture by now, where no process of it asks."""
    if status.state not in NOT_LOOKING:
        return status
    try:
        config = load(data, status.name)
        connection = connect(config.dsn, within_s=0, attempt_s_max=LOOK_S_MAX)
        with closing(connection), explained(config.dsn, "looking at the slot"):
            return status.with_slot(config.slot, read_slot(connection, config.slot))
    except HeadraceError:
        # What was known last is out of date, and what holds now can't be told.
        return replace(status, lag_bytes=None, kept_bytes=None)


def ask_snapshot(config: CaptureConfig, tables: Sequence[str], where: str | None) -> str:
    """Ask a capture for snapshots of tables."""
    asked = []
    with closing(connect(config.dsn, within_s=0)) as connection:
        published = DatabaseCatalog(connection, config.dsn).published(config.publication)
        known = {
            each.name: each
            for each in published
            if is_captured(config, each.relation.schema, each.relation.name)
        }
        for name in tables:
            if name not in known:
                raise ConfigError(
                    f"{name} is not captured by {config.name}: it captures "
                    f"{', '.join(known) or 'nothing yet'}"
                )
            table, relation = known[name], known[name].relation
            if not table.key:
                raise ConfigError(
                    f"{name} has no primary key, so its rows can't be read beside changes: add one"
                )
            if where is not None:
                check_condition(connection, config.dsn, table, where)
            asked.append(
                TableSnapshot(
                    schema=relation.schema, table=relation.name, where=where, estimate=table.estimate
                )
            )
    return Requests(config.directory).add(asked)


def set_paused(config: CaptureConfig, *, paused: bool) -> bool:
    """Have a capture pause or go on; say whether that is new."""
    pause = Pause(config.directory)
    return pause.set() if paused else pause.clear()


def remove(config: CaptureConfig) -> list[str]:
    """Drop what a capture has made, and forget it; return what is left that it has not made."""
    left = remove_capture(config)
    delete_files(config)
    return left


def forget(config: CaptureConfig) -> LeftBehind:
    """Forget a capture without its database; return what may be there."""
    status = read_status(config.directory).seen_now()
    if status.state not in ENDED and status.process is not None:
        raise ConfigError(f"capture {config.name} runs, in process {status.process.pid}: stop it first")
    left = forget_database(config)
    delete_files(config)
    return left


class Shown(StatusFile):
    """Writes the status down, and shows snapshots: a bar on a terminal, lines elsewhere."""

    def __init__(self, config: CaptureConfig) -> None:
        super().__init__(config.name, config.directory)
        self._config = config
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._said_rows = self._rows = 0

    def snapshot_begun(self, state: CaptureState) -> None:
        """Show the bar."""
        super().snapshot_begun(state)
        announce(f"capture {self._config.name}: publishing the rows of {len(state.tables)} tables")
        if sys.stderr.isatty():
            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                TaskProgressColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
            )
            self._bar = Progress(*columns, console=err, transient=True)
            row_count = sum(each.estimate for each in state.tables)
            self._task = self._bar.add_task("snapshot", total=row_count or None)
            self._bar.start()

    def chunk_published(self, state: CaptureState, table: str, row_count: int) -> None:
        """Move the bar."""
        super().chunk_published(state, table, row_count)
        self._rows += row_count
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, description=table, advance=row_count)
        elif self._rows - self._said_rows >= LINE_EVERY_ROWS:
            self._said_rows = self._rows
            say(f"snapshot: {self._rows} rows, now of {table}")

    def streaming(self, state: CaptureState) -> None:
        """Say that changes follow."""
        super().streaming(state)
        if self._bar is not None and self._task is not None and not state.tables:
            # How many there would be was a guess.
            self._bar.update(self._task, total=self._rows, completed=self._rows)
        self._end_bar()
        rows = f", after {self._rows} rows" if self._rows else ""
        announce(f"capture {self._config.name}: publishing changes to {self._config.prefix}.*{rows}")

    def ended(self, state: str, error: BaseException | None = None) -> None:
        """Leave the terminal as it was."""
        self._end_bar()
        super().ended(state, error)
        if error is None:
            announce(f"capture {self._config.name}: {state}")

    def _end_bar(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
