"""Columns of Spark and of PostgreSQL: which type a column gets, and which it fits. No I/O.

Values travel as CSV, which PostgreSQL reads by the type of the column. Structs, arrays, maps and variants
become JSON, and binary values PostgreSQL's own hexadecimal form, before they leave Spark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows
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
from headrace.streams.sinks.records import JSON_OPTIONS

_SMALL: Final = ("smallint", "integer", "bigint", "numeric")
_INTEGER: Final = _SMALL[1:]
_BIG: Final = _SMALL[2:]

_TYPES: Final[Mapping[type[DataType], tuple[str, tuple[str, ...]]]] = {
    BooleanType: ("boolean", ()),
    ByteType: ("smallint", _SMALL),
    ShortType: ("smallint", _SMALL),
    IntegerType: ("integer", _INTEGER),
    LongType: ("bigint", _BIG),
    FloatType: ("real", ("double precision",)),
    DoubleType: ("double precision", ()),
    DecimalType: ("numeric", ()),
    BinaryType: ("bytea", ()),
    DateType: ("date", ()),
    TimestampType: ("timestamp with time zone", ()),
    TimestampNTZType: ("timestamp without time zone", ()),
    ArrayType: ("jsonb", ("json",)),
    MapType: ("jsonb", ("json",)),
    StructType: ("jsonb", ("json",)),
    VariantType: ("jsonb", ("json",)),
}
"""The type that a column gets, and others that take all its values."""
_TEXTS: Final = (StringType, CharType, VarcharType)
_AS_JSON: Final = (ArrayType, MapType, StructType, VariantType)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A column of a table that is there."""

    name: str
    type: str
    """As `format_type` tells it, without its length or precision."""
    is_required: bool
    """Whether it takes no null and has no default."""


def postgres_type(name: str, kind: DataType, *, pipeline: str) -> str:
    """The type that a column gets in a table that has to be created."""
    if isinstance(kind, _TEXTS):
        return "text"
    if isinstance(kind, DecimalType):
        return f"numeric({kind.precision},{kind.scale})"
    if type(kind) not in _TYPES:
        raise PipelineError(
            f"pipeline {pipeline} returns the column {name} as {kind.simpleString()}, for which PostgreSQL "
            "has no type that it could be written to: cast it, to string for example"
        )
    return _TYPES[type(kind)][0]


def misfits(schema: StructType, found: Sequence[Found], *, pipeline: str) -> list[str]:
    """Why rows of this schema don't fit the table's columns, in sentences."""
    wanted = {field.name: postgres_type(field.name, field.dataType, pipeline=pipeline) for field in schema}
    there = {column.name: column for column in found}
    given = {field.name: field.dataType for field in schema.fields}
    reasons = [
        f"the table has no column {name}, which would be {kind}"
        for name, kind in wanted.items()
        if name not in there
    ]
    reasons += [
        f"column {name} is {there[name].type}, and the pipeline returns {kind.simpleString()}"
        for name, kind in given.items()
        if name in there and not _fits(kind, there[name].type)
    ]
    reasons += [
        f"column {column.name} takes no null and has no default, and the pipeline does not return it"
        for column in found
        if column.is_required and column.name not in given
    ]
    return reasons


def as_text(rows: DataFrame) -> DataFrame:
    """The rows with columns that CSV can hold."""
    return rows.select(
        *(_as_text(rows[f"`{field.name}`"], field.dataType).alias(field.name) for field in rows.schema.fields)
    )


def _fits(kind: DataType, there: str) -> bool:
    if isinstance(kind, _TEXTS):
        # Whatever PostgreSQL reads from text: uuid, an enumeration, inet. A value that it can't read fails.
        return True
    own, others = _TYPES[type(kind)]
    return there == own or there in others


def _as_text(column: Column, kind: DataType) -> Column:
    if isinstance(kind, _AS_JSON):
        return F.to_json(column, JSON_OPTIONS)
    if isinstance(kind, BinaryType):
        return F.concat(F.lit("\\x"), F.hex(column))
    return column
