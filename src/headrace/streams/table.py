"""What a pipeline knows of a table that it writes: a frozen description that opens nothing.

A table with a key is upserted: a row takes the place of the one with the same key, and one whose column
`_delete` is true removes it. Without a key, rows are appended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from headrace.errors import ConfigError

DEFAULT_WRITERS: Final = 4
_IDENTIFIER_BYTES_MAX: Final = 63
"""PostgreSQL cuts longer names off in silence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresTable:
    """A table of a PostgreSQL database. Make one with `postgres_table(...)`."""

    dsn: str = field(repr=False)
    """How to connect. It may hold a password, so it is never shown."""
    schema_name: str
    table_name: str
    key: tuple[str, ...] = ()
    writers: int = DEFAULT_WRITERS
    """How many connections write a batch at once."""

    def __post_init__(self) -> None:
        for part in (self.schema_name, self.table_name):
            if not part or len(part.encode()) > _IDENTIFIER_BYTES_MAX or "\0" in part:
                raise ConfigError(
                    f"{self.name!r} can't name a table of PostgreSQL: write table or schema.table, each of 1 "
                    f"to {_IDENTIFIER_BYTES_MAX} bytes"
                )
        check_key(f"table {self.name}", self.key)
        if not self.dsn:
            raise ConfigError(
                f"table {self.name} has an empty dsn: write postgresql://user@host:5432/database"
            )
        if self.writers < 1:
            raise ConfigError(f"table {self.name}: writers is {self.writers}; use at least 1")

    @property
    def noun(self) -> str:
        """What it is."""
        return "table"

    @property
    def refuses_rows(self) -> bool:
        """All rows that fit its columns are taken."""
        return False

    @property
    def name(self) -> str:
        """Schema and table."""
        return f"{self.schema_name}.{self.table_name}"

    def elsewhere(self, table: str) -> PostgresTable:
        """Another table of the same database, for the same rows."""
        return postgres_table(self.dsn, table, key=self.key, writers=self.writers)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaTable:
    """A Delta table in a directory. Make one with `delta_table(...)`."""

    path: Path
    """Where the driver and all executors find it."""
    key: tuple[str, ...] = ()
    writers: int = DEFAULT_WRITERS
    """How many files a batch is written to, at most."""

    def __post_init__(self) -> None:
        check_key(f"table {self.name}", self.key)
        if self.writers < 1:
            raise ConfigError(f"table {self.name}: writers is {self.writers}; use at least 1")

    @property
    def noun(self) -> str:
        """What it is."""
        return "Delta table"

    @property
    def refuses_rows(self) -> bool:
        """All rows that fit its columns are taken."""
        return False

    @property
    def name(self) -> str:
        """The directory."""
        return str(self.path)

    def elsewhere(self, path: str) -> DeltaTable:
        """A table in another directory, for the same rows."""
        return delta_table(path, key=self.key, writers=self.writers)


def postgres_table(
    dsn: str, table: str, *, key: Sequence[str] = (), writers: int = DEFAULT_WRITERS
) -> PostgresTable:
    """Describe a table of PostgreSQL: `schema.table`, or a table of the schema `public`.

    It is created from the rows' columns if it is missing.
    """
    schema_name, dot, table_name = table.partition(".")
    if not dot:
        schema_name, table_name = "public", table
    return PostgresTable(
        dsn=dsn, schema_name=schema_name, table_name=table_name, key=as_key(key), writers=writers
    )


def delta_table(path: Path | str, *, key: Sequence[str] = (), writers: int = DEFAULT_WRITERS) -> DeltaTable:
    """Describe a Delta table by its directory, which is created from the rows' columns if it is missing."""
    if "://" in str(path):
        raise ConfigError(
            f"the Delta table {path} is not a directory: give a path that the driver and all executors can "
            "write to"
        )
    return DeltaTable(path=Path(path).absolute(), key=as_key(key), writers=writers)


def as_key(key: str | Sequence[str]) -> tuple[str, ...]:
    """The columns, of which one may be given by itself."""
    return (key,) if isinstance(key, str) else tuple(key)


def check_key(table: str, key: tuple[str, ...]) -> None:
    """Refuse a key that has a column twice. `table` is what it is and its name."""
    if len(set(key)) < len(key):
        raise ConfigError(f"{table} has a column twice in its key: {', '.join(key)}")
