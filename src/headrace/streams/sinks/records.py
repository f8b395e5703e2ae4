"""From a pipeline's rows to records: topic, key, value and headers.

All columns become one JSON object, the value, but for `_kafka` and these, which say how the row is written:

| column | type | |
|---|---|---|
| `_topic` | string | the topic for this row, a side output; null for the one that the pipeline writes |
| `_headers` | map<string,string>, map<string,binary> or array<struct<key:string,value:binary>> | |
| `_delete` | boolean | true writes a tombstone: the key, and no value |

The key is the column that the row's topic is described with, as text, or the JSON object of several. A topic
or headers that all records have in common are marked so, and need not travel with each of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    MapType,
    StringType,
    StructType,
)

from headrace.errors import PipelineError
from headrace.streams.sinks.identity import check_identity
from headrace.streams.topic import METADATA_COLUMN, Topic

TOPIC_COLUMN: Final = "_topic"
HEADERS_COLUMN: Final = "_headers"
DELETE_COLUMN: Final = "_delete"
RESERVED_COLUMNS: Final = (METADATA_COLUMN, TOPIC_COLUMN, HEADERS_COLUMN, DELETE_COLUMN)

_HEADERS: Final = "array<struct<key: string, value: binary>>"
_SAME_FOR_ALL: Final = "headrace.same_for_all"
"""In a column's metadata: the text that all records have there, empty for a null."""
JSON_OPTIONS: Final = {
    # A null is written, so that each record has the same fields.
    "ignoreNullFields": "false",
    # Spark's own default cuts microseconds off.
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


def to_records(
    rows: DataFrame, topic: Topic, *, pipeline: str, side_outputs: Sequence[Topic] = ()
) -> DataFrame:
    """The rows as `topic`, `key`, `value` and `headers` of records."""
    names = [name for name in rows.columns if name not in RESERVED_COLUMNS]
    if not names:
        raise PipelineError(f"pipeline {pipeline} returns no columns: there is nothing to write")
    targets = (topic, *side_outputs)
    for target in targets:
        _check_key(target, names, pipeline)
        check_identity(notes_of(rows), target.key, place=f"topic {target.name}", pipeline=pipeline)
    if side_outputs and TOPIC_COLUMN not in rows.columns:
        raise PipelineError(
            f"pipeline {pipeline} has side outputs and returns no column {TOPIC_COLUMN}: return it, with the "
            "topic's name for each row, or null for the topic that it writes"
        )
    return rows.select(
        _topic(rows, targets, pipeline),
        _key(rows, targets).alias("key"),
        _value(rows, names, targets, pipeline).alias("value"),
        _headers(rows, pipeline),
    )


def notes_of(rows: DataFrame) -> dict[str, dict[str, Any]]:
    """What is noted with the columns."""
    return {field.name: field.metadata for field in rows.schema.fields}


def same_for_all(column: Column, name: str, value: str) -> Column:
    """The column by this name, marked: all records have this value, empty for a null."""
    return column.alias(name, metadata={_SAME_FOR_ALL: value})


def varying_columns(records: DataFrame, topic: str) -> list[str]:
    """The columns without which a record, known to be without headers and for this topic, is not whole."""
    usual = {"topic": topic, "headers": ""}
    return [
        field.name
        for field in records.schema.fields
        if field.name not in usual or field.metadata.get(_SAME_FOR_ALL) != usual[field.name]
    ]


def _check_key(topic: Topic, names: Sequence[str], pipeline: str) -> None:
    for key in topic.key:
        if key not in names:
            raise PipelineError(
                f"pipeline {pipeline} writes topic {topic.name} with the key {key!r}, which is none of the "
                f"columns that it returns ({', '.join(names)}): return the column, or name another key"
            )


def _topic(rows: DataFrame, targets: Sequence[Topic], pipeline: str) -> Column:
    main = F.lit(targets[0].name)
    if TOPIC_COLUMN not in rows.columns:
        return same_for_all(main, "topic", targets[0].name)
    _check_type(rows, TOPIC_COLUMN, StringType, "string", pipeline)
    named = rows[TOPIC_COLUMN]
    known = [target.name for target in targets]
    refused = F.concat(
        F.lit(f"pipeline {pipeline} returns a row with {TOPIC_COLUMN} '"),
        named,
        F.lit(f"', and may write {', '.join(known)}: name the topic in side_outputs, or correct the row"),
    )
    return (
        F.when(named.isNull(), main)
        .when(named.isin(known), named)
        .otherwise(F.raise_error(refused).cast("string"))
        .alias("topic")
    )


def _key(rows: DataFrame, targets: Sequence[Topic]) -> Column:
    keys = [_key_column(rows, target) for target in targets]
    if TOPIC_COLUMN not in rows.columns or len({target.key for target in targets}) == 1:
        return keys[0]
    others = zip(targets[1:], keys[1:], strict=True)
    return reduce(
        lambda chosen, other: F.when(rows[TOPIC_COLUMN] == other[0].name, other[1]).otherwise(chosen),
        others,
        keys[0],
    )


def _key_column(rows: DataFrame, topic: Topic) -> Column:
    if not topic.key:
        return F.lit(None).cast("binary")
    columns = [rows[f"`{name}`"] for name in topic.key]
    if len(columns) > 1:
        return F.to_json(F.struct(*columns), JSON_OPTIONS).cast("binary")
    (column,) = columns
    is_binary = isinstance(rows.schema[topic.key[0]].dataType, BinaryType)
    return column if is_binary else column.cast("string").cast("binary")


def _value(rows: DataFrame, names: Sequence[str], targets: Sequence[Topic], pipeline: str) -> Column:
    value = F.to_json(F.struct(*(rows[f"`{name}`"] for name in names)), JSON_OPTIONS).cast("binary")
    if DELETE_COLUMN not in rows.columns:
        return value
    _check_type(rows, DELETE_COLUMN, BooleanType, "boolean", pipeline)
    for target in targets:
        if not target.key:
            raise PipelineError(
                f"pipeline {pipeline} returns {DELETE_COLUMN}, and topic {target.name} has no key by which a "
                f'record could be deleted: describe it as hr.topic("{target.name}", key="column")'
            )
    return F.when(~F.coalesce(rows[DELETE_COLUMN], F.lit(False)), value)


def _headers(rows: DataFrame, pipeline: str) -> Column:
    if HEADERS_COLUMN not in rows.columns:
        return same_for_all(F.lit(None).cast(_HEADERS), "headers", "")
    column, kind = rows[HEADERS_COLUMN], rows.schema[HEADERS_COLUMN].dataType
    if isinstance(kind, MapType) and _is_pair(kind.keyType, kind.valueType):
        return F.map_entries(column).cast(_HEADERS).alias("headers")
    if isinstance(kind, ArrayType) and isinstance(kind.elementType, StructType):
        fields = kind.elementType.fields
        if [field.name for field in fields] == ["key", "value"] and _is_pair(
            fields[0].dataType, fields[1].dataType
        ):
            return column.cast(_HEADERS).alias("headers")
    raise PipelineError(
        f"pipeline {pipeline} returns {HEADERS_COLUMN} as {kind.simpleString()}: make it map<string,string>, "
        "map<string,binary> or array<struct<key:string,value:binary>>"
    )


def _is_pair(key: DataType, value: DataType) -> bool:
    return isinstance(key, StringType) and isinstance(value, StringType | BinaryType)


def _check_type(rows: DataFrame, name: str, kind: type[DataType], told: str, pipeline: str) -> None:
    found = rows.schema[name].dataType
    if not isinstance(found, kind):
        raise PipelineError(f"pipeline {pipeline} returns {name} as {found.simpleString()}: make it {told}")
