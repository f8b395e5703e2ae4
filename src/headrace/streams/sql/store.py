"""Where tables and views are kept: in the data directory, one file of SQL for each.

DATA/sql/tables/<name>.sql
DATA/sql/views/<name>.sql
DATA/sql/history            of the shell
DATA/sql/logs/<name>.log    what a view said that ran beside the shell, the last time
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from headrace.config import TOPIC_NAME
from headrace.errors import SqlError
from headrace.streams.sql.clauses import mentions
from headrace.streams.sql.definitions import Table, View, parse_definitions, table_text, view_text


def views_dir(data_dir: Path) -> Path:
    """Where the views of a data directory are."""
    return data_dir / "sql" / "views"


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """The tables and views of a data directory."""

    data_dir: Path

    @property
    def history(self) -> Path:
        """What was typed in the shell."""
        return self.data_dir / "sql" / "history"

    def view_path(self, name: str) -> Path:
        """Where a view of that name is kept."""
        return views_dir(self.data_dir) / f"{_checked(name)}.sql"

    def table_path(self, name: str) -> Path:
        """Where a table of that name is kept."""
        return self.data_dir / "sql" / "tables" / f"{_checked(name)}.sql"

    def log_path(self, name: str) -> Path:
        """What a view of that name says that runs beside the shell."""
        return self.data_dir / "sql" / "logs" / f"{_checked(name)}.log"

    def tables(self) -> dict[str, Table]:
        """All tables, by name."""
        return {table.name: table for path in _files(self.table_path("x").parent) for table in _read(path)[0]}

    def views(self) -> dict[str, View]:
        """All views, by name."""
        return {view.name: view for path in _files(views_dir(self.data_dir)) for view in load_views(path)}

    def keep_table(self, table: Table) -> None:
        """Keep it, in place of one of the same name."""
        _write(self.table_path(table.name), f"{table_text(table)}\n;\n")

    def keep_view(self, view: View) -> None:
        """Keep it, in place of one of the same name."""
        _write(self.view_path(view.name), view_text(view))

    def forget_table(self, name: str) -> bool:
        """Whether there was one."""
        return _removed(self.table_path(name))

    def forget_view(self, name: str) -> bool:
        """Whether there was one."""
        return _removed(self.view_path(name))


def load_tables(path: Path) -> list[Table]:
    """The tables of a file of SQL."""
    return _read(path)[0]


def load_views(path: Path) -> list[View]:
    """The views of a file of SQL, each with the tables of the file that it names."""
    tables, views = _read(path)
    return [
        replace(view, tables=tuple(table for table in tables if mentions(view.query, table.name.lower())))
        for view in views
    ]


def _read(path: Path) -> tuple[list[Table], list[View]]:
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise SqlError(f"{path} can't be read: {error}") from error
    return parse_definitions(text, str(path))


def _files(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.sql"))


def _checked(name: str) -> str:
    if not TOPIC_NAME.fullmatch(name) or name in {".", ".."}:
        raise SqlError(
            f"{name!r} can't name a table or view: use 1 to 249 of the characters a-z A-Z 0-9 . _ -"
        )
    return name


def _write(path: Path, text: str) -> None:
    """Whole, or not at all; it outlives a crash of the machine."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    new = path.with_name(f"{path.name}~")
    with new.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _removed(path: Path) -> bool:
    if not path.exists():
        return False
    path.unlink()
    return True
