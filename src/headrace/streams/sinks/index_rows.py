"""Columns of Spark as a search index has them, and rows on their way to it. No I/O.

A row travels as the JSON by which it can be read again with all its values as they were, beside the columns
of its key. Whatever is searched is taken from that JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    CharType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    VarcharType,
    VariantType,
)

from headrace.errors import PipelineError
from headrace.search.fields import RESERVED, ROW, Column, Columns, Kind
from headrace.streams.sinks.records import DELETE_COLUMN, JSON_OPTIONS

ROW_OPTIONS: Final = {**JSON_OPTIONS, "timeZone": "UTC"}
"""How a row becomes JSON and comes back. In UTC, because zones of old are off by odd seconds."""
_TEXTS: Final = (StringType, CharType, VarcharType)
_KINDS: Final[Mapping[type[DataType], Kind]] = {
    BooleanType: "boolean",
    ByteType: "integer",
    ShortType: "integer",
    IntegerType: "integer",
    LongType: "integer",
    FloatType: "float",
    DoubleType: "float",
    DecimalType: "float",
    DateType: "moment",
    TimestampType: "moment",
    TimestampNTZType: "moment",
    StructType: "json",
    MapType: "json",
    VariantType: "json",
    BinaryType: "none",
}


def index_columns(
    schema: StructType, *, key: tuple[str, ...], text: tuple[str, ...], pipeline: str
) -> Columns:
    """What an index for rows of this schema knows of its columns; `text` is searched word by word."""
    fields = {field.name: field.dataType for field in schema.fields if field.name != DELETE_COLUMN}
    for name, kind in fields.items():
        if name in RESERVED:
            raise PipelineError(
                f"pipeline {pipeline} returns the column {name}, which a search index has for itself: name "
                "it otherwise"
            )
        _check_type(name, kind, pipeline)
    for name in text:
        if name not in fields or not isinstance(_element(fields[name])[0], _TEXTS):
            raise PipelineError(
                f"pipeline {pipeline} writes a search index with text={list(text)}, and {name} is no column "
                f"of text that it returns ({', '.join(fields)})"
            )
    columns = tuple(_column(name, kind, text) for name, kind in fields.items())
    return Columns(key=key, columns=columns)


def as_documents(rows: DataFrame, columns: Columns) -> DataFrame:
    """The key's columns, the whole row as JSON, and `_delete` if there is one."""
    names = [column.name for column in columns.columns]
    row = F.to_json(F.struct(*(rows[f"`{name}`"] for name in names)), ROW_OPTIONS)
    chosen = [rows[f"`{name}`"] for name in columns.key]
    if DELETE_COLUMN not in rows.columns:
        return rows.select(*chosen, row.alias(ROW))
    return rows.select(*chosen, F.when(~rows[DELETE_COLUMN], row).alias(ROW), rows[DELETE_COLUMN])


def from_documents(texts: DataFrame, schema: StructType) -> DataFrame:
    """These columns of rows, from their JSON in the only column of `texts`."""
    (name,) = texts.columns
    parsed = F.from_json(texts[name], schema, {**ROW_OPTIONS, "mode": "FAILFAST"})
    return texts.select(parsed.alias("row")).select("row.*")


def file_schema(schema: StructType) -> pa.Schema:
    """The schema of files with such rows."""
    return to_arrow_schema(schema, timezone="UTC")


def _column(name: str, kind: DataType, text: tuple[str, ...]) -> Column:
    element, is_many = _element(kind)
    if isinstance(element, _TEXTS):
        found: Kind = "words" if not text or name in text else "whole"
    else:
        found = _KINDS.get(type(element), "none")
    return Column(name=name, type=kind.simpleString(), kind=found, is_many=is_many)


def _element(kind: DataType) -> tuple[DataType, bool]:
    return (kind.elementType, True) if isinstance(kind, ArrayType) else (kind, False)


def _check_type(name: str, kind: DataType, pipeline: str) -> None:
    """Refuse what does not come back from JSON as it was."""
    match kind:
        case ArrayType():
            _check_type(name, kind.elementType, pipeline)
        case StructType():
            for field in kind.fields:
                _check_type(f"{name}.{field.name}", field.dataType, pipeline)
        case MapType():
            if not isinstance(kind.keyType, _TEXTS):
                raise PipelineError(
                    f"pipeline {pipeline} returns the column {name} as {kind.simpleString()}: the keys of a "
                    "map that goes into a search index have to be text; cast them"
                )
            _check_type(name, kind.valueType, pipeline)
        case _ if not isinstance(kind, _TEXTS) and type(kind) not in _KINDS:
            raise PipelineError(
                f"pipeline {pipeline} returns the column {name} as {kind.simpleString()}, which a search "
                "index does not take: cast it, to string for example"
            )
