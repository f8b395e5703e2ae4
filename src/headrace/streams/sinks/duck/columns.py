"""Columns of Spark and of DuckDB: which type a column gets, and which it fits. No I/O.

Values travel in Parquet files, which both read and write: nested ones too, as what they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

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
)

from headrace.errors import PipelineError

_TYPES: Final[Mapping[type[DataType], str]] = {
    BooleanType: "BOOLEAN",
    ByteType: "TINYINT",
    ShortType: "SMALLINT",
    IntegerType: "INTEGER",
    LongType: "BIGINT",
    FloatType: "FLOAT",
    DoubleType: "DOUBLE",
    BinaryType: "BLOB",
    DateType: "DATE",
    TimestampType: "TIMESTAMP WITH TIME ZONE",
    TimestampNTZType: "TIMESTAMP",
    StringType: "VARCHAR",
    CharType: "VARCHAR",
    VarcharType: "VARCHAR",
}
_INTEGERS: Final = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")
_FLOATS: Final = ("FLOAT", "DOUBLE")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A column of a table that is there."""

    name: str
    type: str
    """As DuckDB writes it."""
    is_required: bool
    """Whether it takes no null and has no default."""


def duckdb_type(name: str, kind: DataType, *, pipeline: str) -> str:
    """The type that a column gets in a table that has to be created."""

    def inner(kind: DataType) -> str:
        return duckdb_type(name, kind, pipeline=pipeline)

    if isinstance(kind, DecimalType):
        return f"DECIMAL({kind.precision},{kind.scale})"
    if isinstance(kind, ArrayType):
        return f"{inner(kind.elementType)}[]"
    if isinstance(kind, MapType):
        return f"MAP({inner(kind.keyType)}, {inner(kind.valueType)})"
    if isinstance(kind, StructType) and kind.fields:
        fields = (f"{quoted(field.name)} {inner(field.dataType)}" for field in kind.fields)
        return f"STRUCT({', '.join(fields)})"
    if type(kind) not in _TYPES:
        raise PipelineError(
            f"pipeline {pipeline} returns the column {name} with {kind.simpleString()}, for which DuckDB has "
            "no type that it could be written to: cast it, to string for example"
        )
    return _TYPES[type(kind)]


def misfits(wanted: Mapping[str, str], found: Sequence[Found]) -> list[str]:
    """Why columns of these types, as DuckDB writes them, don't fit the table's, in sentences."""
    there = {column.name: column for column in found}
    reasons = [
        f"the table has no column {name}, which would be {kind}"
        for name, kind in wanted.items()
        if name not in there
    ]
    reasons += [
        f"column {name} is {there[name].type}, and the pipeline returns {kind}"
        for name, kind in wanted.items()
        if name in there and not _fits(kind, there[name].type)
    ]
    reasons += [
        f"column {column.name} takes no null and has no default, and the pipeline does not return it"
        for column in found
        if column.is_required and column.name not in wanted
    ]
    return reasons


def quoted(name: str) -> str:
    """A name as SQL has it: in double quotes, whatever it is."""
    return '"' + name.replace('"', '""') + '"'


def _fits(kind: str, there: str) -> bool:
    """Whether a column takes all values of a type: the same one, or a wider one."""
    return kind == there or any(
        kind in family and there in family[family.index(kind) :] for family in (_INTEGERS, _FLOATS)
    )
