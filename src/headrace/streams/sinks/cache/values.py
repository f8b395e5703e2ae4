"""Rows as JSON objects, and back: what a field of the hash holds. No I/O.

All columns are in the object, the key's too, and nulls as well. Spark writes and reads it: times in UTC with
microseconds, decimals with all their digits, binary values in base64. JSON's objects have texts for keys, so
the keys of a map become texts on the way out and what they were on the way back.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    CharType,
    DataType,
    DateType,
    DecimalType,
    FractionalType,
    IntegralType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VarcharType,
    VariantType,
)

from headrace.errors import PipelineError
from headrace.streams.sinks.records import DELETE_COLUMN, JSON_OPTIONS

_KEYS: Final = (
    *(BooleanType, IntegralType, FractionalType, DecimalType, StringType, CharType, VarcharType),
    *(DateType, TimestampType, TimestampNTZType),
)
"""What the keys of a map may be: types with a text of their own for each value."""
_PLAIN: Final = (*_KEYS, BinaryType, VariantType)
# What is no row of ours is an error, rather than a row of nulls.
_READING: Final = {**JSON_OPTIONS, "mode": "FAILFAST"}


def check_types(schema: StructType, *, pipeline: str) -> None:
    """Raise where values would not come back as they were."""
    for field in schema.fields:
        for kind in _refused(field.dataType):
            raise PipelineError(
                f"pipeline {pipeline} returns the column {field.name} as {field.dataType.simpleString()}, "
                f"and a cache can't hold {kind}: cast it, to string for example"
            )


def value_column(rows: DataFrame) -> Column:
    """The rows as JSON; null for one that is to go."""
    columns = [
        rows[f"`{field.name}`"].cast(_text_keyed(field.dataType)).alias(field.name)
        if _has_other_keys(field.dataType)
        else rows[f"`{field.name}`"]
        for field in rows.schema.fields
        if field.name != DELETE_COLUMN
    ]
    value = F.to_json(F.struct(*columns), JSON_OPTIONS)
    return F.when(~rows[DELETE_COLUMN], value) if DELETE_COLUMN in rows.columns else value


def columns_of(value: Column, schema: StructType) -> list[Column]:
    """The columns that were written as this JSON."""
    row = F.from_json(value, _struct(schema, text_keyed=True), _READING)
    return [_column(row, field).alias(field.name) for field in schema.fields]


def _column(row: Column, field: StructField) -> Column:
    column = row.getField(field.name)
    if not _has_other_keys(field.dataType):
        return column
    return column.cast(_changed(field.dataType, text_keyed=False))


def _refused(kind: DataType) -> list[str]:
    """What in a type can't be held, in words."""
    if isinstance(kind, ArrayType):
        return _refused(kind.elementType)
    if isinstance(kind, StructType):
        return [words for field in kind.fields for words in _refused(field.dataType)]
    if isinstance(kind, MapType):
        keys = [] if isinstance(kind.keyType, _KEYS) else [f"a map by {kind.keyType.simpleString()}"]
        return keys + _refused(kind.valueType)
    return [] if isinstance(kind, _PLAIN) else [kind.simpleString()]


def _has_other_keys(kind: DataType) -> bool:
    return _text_keyed(kind) != _changed(kind, text_keyed=False)


def _text_keyed(kind: DataType) -> DataType:
    return _changed(kind, text_keyed=True)


def _changed(kind: DataType, *, text_keyed: bool) -> DataType:
    """The type with nulls allowed everywhere, as JSON has it; and with texts for the keys of maps."""
    if isinstance(kind, ArrayType):
        return ArrayType(_changed(kind.elementType, text_keyed=text_keyed))
    if isinstance(kind, MapType):
        key = StringType() if text_keyed else kind.keyType
        return MapType(key, _changed(kind.valueType, text_keyed=text_keyed))
    if isinstance(kind, StructType):
        return _struct(kind, text_keyed=text_keyed)
    return kind


def _struct(kind: StructType, *, text_keyed: bool) -> StructType:
    return StructType(
        [StructField(field.name, _changed(field.dataType, text_keyed=text_keyed)) for field in kind.fields]
    )
