"""Rows of a result as JSON that Spark writes, so that each value looks as it does in a topic."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

from headrace.streams.sinks.records import JSON_OPTIONS
from headrace.streams.sql.tokens import name_text


def as_json(rows: DataFrame) -> DataFrame:
    """The rows as one column of JSON objects."""
    columns = [F.col(name_text(name)) for name in rows.columns]
    return rows.select(F.to_json(F.struct(*columns), JSON_OPTIONS).alias("row"))


def iterate(rows: DataFrame, limit: int | None) -> Iterator[str]:
    """The rows as JSON, one after the other; one more than the limit, where there are more."""
    written = as_json(rows if limit is None else rows.limit(limit + 1))
    return (row["row"] for row in written.toLocalIterator())
