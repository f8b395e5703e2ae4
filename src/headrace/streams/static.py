"""Rows as a static DataFrame with the columns that a live pipeline sees, for unit tests and notebooks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from headrace.streams import formats
from headrace.streams.sinks.records import DELETE_COLUMN
from headrace.streams.topic import OF_CHANGES, Topic

_RECORD: Final = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "headers array<struct<key: string, value: binary>>"
)
_FIRST_TIMESTAMP: Final = datetime(2000, 1, 1, tzinfo=UTC)


def static(session: SparkSession, topic: Topic, rows: Iterable[Mapping[str, Any] | str | bytes]) -> DataFrame:
    """What a pipeline would be given if the topic held these rows, in one partition and in this order.

    A mapping is written as JSON; text and bytes are the record's value as it is. They are read by the topic's
    schema or format, exactly as live ones are: a row that would be a dead letter is missing here too. Of a
    topic of changes, a mapping with `_delete` true is a record without a value, which deletes its key. All
    records have the same timestamp, so that none is ahead of the moment at which it was written.
    """
    records: list[tuple[Any, ...]] = [
        (*_record(topic, row), topic.name, 0, offset, _FIRST_TIMESTAMP, []) for offset, row in enumerate(rows)
    ]
    return formats.rows(session.createDataFrame(records, _RECORD), replace(topic, max_ahead=None))


def _record(topic: Topic, row: Mapping[str, Any] | str | bytes) -> tuple[bytearray | None, bytearray | None]:
    """Key and value. Only what deletes needs a key."""
    if is_deletion(topic, row):
        assert isinstance(row, Mapping)
        if len(topic.key) == 1:
            return bytearray(str(row[topic.key[0]]).encode()), None
        return bytearray(_encode({name: row[name] for name in topic.key if name in row})), None
    return None, bytearray(_encode(row))


def is_deletion(topic: Topic, row: object) -> bool:
    """Whether the row stands for a record without a value."""
    return topic.format in OF_CHANGES and isinstance(row, Mapping) and row.get(DELETE_COLUMN) is True


def _encode(row: Mapping[str, Any] | str | bytes) -> bytes:
    if isinstance(row, bytes):
        return row
    return row.encode() if isinstance(row, str) else json.dumps(dict(row), default=_as_text).encode()


def _as_text(value: object) -> str:
    if isinstance(value, datetime | date):
        return value.isoformat()
    raise TypeError(f"{value!r} has no form in JSON: give text, numbers, dates, lists or mappings")
