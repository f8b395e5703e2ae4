"""The kinds of stores that a pipeline can write, and what each can do.

A store has rows. Each kind is a package of its own beside this file, whose module `store` has a `STORE` that
does what this says. It is loaded when it is needed, because what it needs is an extra.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from headrace.errors import SetupError
from headrace.streams.pipeline import Target
from headrace.streams.sinks.context import BatchWriter, WriteContext
from headrace.streams.sinks.swaps import TableSwap
from headrace.streams.stores import Cache, DuckdbTable, EmbeddedIndex, ServedIndex, Table
from headrace.streams.table import DeltaTable, PostgresTable
from headrace.streams.topic import Topic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


class Store(Protocol):
    """What can be done with a table, or with another store, of one kind."""

    def writer(self, table: Any, context: WriteContext) -> BatchWriter:
        """A writer of batches, exactly once, whatever less is asked for. It makes what is missing."""

    def swap(self, table: Any, *, pipeline: str, swap_id: str) -> TableSwap:
        """A swap of the rows that the pipeline has written."""

    def has_rows(self, table: Any) -> bool:
        """Whether it is there and has a row."""

    def refuse_missing(self, table: Any, *, pipeline: str) -> None:
        """Raise where there is nothing that could be verified."""

    def read(self, session: SparkSession, table: Any, schema: StructType) -> DataFrame:
        """These columns of its rows, as they are when they are read."""

    def written_count(self, table: Any, rows: DataFrame) -> int:
        """How many rows a writer that writes all of these says that it has written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """Where a kind is, and what it needs."""

    package: str
    """Beside this file."""
    needs: str
    """A module of the extra."""
    told: str
    """Stores of the kind, in words."""
    extra: str


_KINDS: Final[Mapping[type, _Kind]] = MappingProxyType(
    {
        PostgresTable: _Kind(
            package="postgres", needs="psycopg", told="tables of PostgreSQL", extra="postgres"
        ),
        DeltaTable: _Kind(package="delta", needs="deltalake", told="Delta tables", extra="stores"),
        DuckdbTable: _Kind(package="duck", needs="duckdb", told="tables of DuckDB", extra="stores"),
        EmbeddedIndex: _Kind(
            package="search", needs="tantivy", told="search indexes in a directory", extra="stores"
        ),
        ServedIndex: _Kind(package="opensearch", needs="httpx", told="indexes of a server", extra="stores"),
        Cache: _Kind(package="cache", needs="redis", told="caches", extra="stores"),
    }
)


def store_of(table: Table) -> Store:
    """What can be done with it; raises where a package is not installed."""
    kind = _KINDS[type(table)]
    _check(kind)
    return cast("Store", import_module(f"headrace.streams.sinks.{kind.package}.store").STORE)


def check_installed(target: Target) -> None:
    """Raise where the target needs a package that is not installed."""
    if not isinstance(target, Topic):
        _check(_KINDS[type(target)])


def read_delta(session: SparkSession, path: Path | str) -> DataFrame:
    """The rows of a Delta table as it is now; Delta's own connector does not run on this release of Spark."""
    _check(_KINDS[DeltaTable])
    from headrace.streams.sinks.delta.read import read  # noqa: PLC0415 - what it needs is an extra

    return read(session, path)


def _check(kind: _Kind) -> None:
    if find_spec(kind.needs) is None:
        raise SetupError(f"{kind.told} need {kind.needs}: pip install 'headrace[{kind.extra}]'")
