"""Rows of a result as JSON that Spark writes, so that each value looks as it does in a topic."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

from headrace.streams.sinks.records import JSON_OPTIONS
from headrace.streams.sql.tokens import name_text

Row = Mapping[str, Any]
"""A row's values by column: what JSON has, and numbers that are not whole as their text."""


class Number(str):
    """A number that is not whole, as it is written: a decimal has more digits than a float."""

    __slots__ = ()


def as_json(rows: DataFrame) -> DataFrame:
    """The rows as one column of JSON objects."""
    columns = [F.col(name_text(name)) for name in rows.columns]
    return rows.select(F.to_json(F.struct(*columns), JSON_OPTIONS).alias("row"))


def iterate(rows: DataFrame, limit: int | None) -> Iterator[str]:
    """The rows as JSON, one after the other; one more than the limit, where there are more."""
    written = as_json(rows if limit is None else rows.limit(limit + 1))
    return (row["row"] for row in written.toLocalIterator())


def parsed(text: str) -> Row:
    """A row that Spark has written."""
    row: Row = json.loads(text, parse_float=Number)
    return row
