"""Run a query on what the log has: from one bound up to another, or up to now."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

from headrace.errors import FaultError, SqlError
from headrace.streams.failure import first_line
from headrace.streams.log_offsets import find_span
from headrace.streams.spans import OPEN, Bound, Span
from headrace.streams.sql.analysis import analyse, without_hidden
from headrace.streams.sql.catalog import Catalog
from headrace.streams.sql.definitions import Table
from headrace.streams.sql.frames import batch_frame, refused_records
from headrace.streams.sql.results import iterate
from headrace.streams.topic import Topic


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Records that are no rows of a table."""

    table: str
    count: int
    cause: str
    """Of one of them."""

    def __str__(self) -> str:
        records = "1 record is no row" if self.count == 1 else f"{self.count:,} records are no rows"
        return f"{records} of {self.table}, and not in the result: {self.cause}"


@dataclass(slots=True, kw_only=True)
class Bounded:
    """A query on a part of the log."""

    session: SparkSession
    catalog: Catalog
    sql: str
    begin: Bound = OPEN
    finish: Bound = OPEN
    _read: dict[str, tuple[Table, Span]] = field(default_factory=dict)

    def rows(self) -> DataFrame:
        """What it gives."""
        return without_hidden(analyse(self.session, self.sql, self._find), self.sql)

    def refused(self) -> Iterator[Refused]:
        """Of each table that was read, the records that are no rows of it, if there are some."""
        for table, span in self._read.values():
            if not table.is_dead_letters:
                yield from self._refused(table, span)

    def _refused(self, table: Table, span: Span) -> Iterator[Refused]:
        letters = refused_records(self.session, table, span, self.catalog.config)
        (found,) = letters.agg(F.count("*").alias("count"), F.min("cause").alias("cause")).collect()
        if found["count"]:
            yield Refused(table=table.name, count=found["count"], cause=found["cause"])

    def _find(self, name: str) -> DataFrame:
        table = self.catalog.find(name)
        topic: Topic = table.topic
        span = find_span(self.catalog.config, topic.names, begin=self.begin, finish=self.finish)
        self._read[table.name] = (table, span)
        return batch_frame(self.session, table, span, self.catalog.config)


def rows_of(rows: DataFrame, limit: int | None) -> Iterator[str]:
    """The result as JSON, row by row; one more than the limit, where there are more."""
    try:
        yield from iterate(rows, limit)
    except PySparkException as error:
        raise FaultError(f"the query failed: {first_line(error)}") from error


@contextmanager
def errors_told() -> Iterator[None]:
    """What Spark raises meanwhile is raised as an error of ours."""
    try:
        yield
    except PySparkException as error:
        raise SqlError(f"the query failed: {first_line(error)}") from error
