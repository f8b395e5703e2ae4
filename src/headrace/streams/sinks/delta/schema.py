"""Columns of Spark and of a Delta table, both as Arrow knows them. No I/O."""

from __future__ import annotations

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from headrace.errors import PipelineError
from headrace.streams.failure import first_line


def arrow_schema(schema: StructType, *, pipeline: str) -> pa.Schema:
    """The columns that a table gets that has to be created. Each may be null, as Spark makes it for files."""
    try:
        arrow = to_arrow_schema(schema, timezone="UTC")
    except PySparkException as error:
        raise PipelineError(
            f"pipeline {pipeline} returns columns that can't be written to a Delta table: {first_line(error)}"
        ) from error
    return pa.schema([_nullable(field) for field in arrow])


def misfits(given: pa.Schema, found: pa.Schema) -> list[str]:
    """Why rows of this schema don't fit the table's columns, in sentences."""
    there = {field.name: field for field in found}
    reasons = [
        f"the table has no column {field.name}, which would be {field.type}"
        for field in given
        if field.name not in there
    ]
    reasons += [
        f"column {field.name} is {there[field.name].type}, and the pipeline returns {field.type}"
        for field in given
        if field.name in there and _nullable(there[field.name]).type != field.type
    ]
    names = set(given.names)
    reasons += [
        f"column {field.name} takes no null, and the pipeline does not return it"
        for field in found
        if not field.nullable and field.name not in names
    ]
    return reasons


def _nullable(field: pa.Field) -> pa.Field:
    """The same field, and all within it, with nulls allowed and inner fields named as Delta does."""
    return pa.field(field.name, _inner_nullable(field.type))


def _inner_nullable(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([_nullable(field) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _inner_nullable(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(_inner_nullable(kind.key_type), _inner_nullable(kind.item_type))
    return kind
