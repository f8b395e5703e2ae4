"""Columns of Spark as a search index has them."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VarcharType,
    VariantType,
)

from headrace.errors import PipelineError
from headrace.search.fields import Columns
from headrace.streams.sinks.index_rows import index_columns

TEXTS = ArrayType(StringType())


def columns(kind: DataType, *, text: tuple[str, ...] = (), name: str = "c") -> Columns:
    fields = [StructField("id", LongType()), StructField(name, kind), StructField("_delete", BooleanType())]
    return index_columns(StructType(fields), key=("id",), text=text, pipeline="products")


@pytest.mark.parametrize(
    ("kind", "expected", "is_many"),
    [
        (StringType(), "words", False),
        (VarcharType(9), "words", False),
        (TEXTS, "words", True),
        (IntegerType(), "integer", False),
        (ArrayType(DoubleType()), "float", True),
        (DecimalType(38, 18), "float", False),
        (BooleanType(), "boolean", False),
        (DateType(), "moment", False),
        (TimestampType(), "moment", False),
        (TimestampNTZType(), "moment", False),
        (MapType(StringType(), TEXTS), "json", False),
        (ArrayType(StructType().add("a", IntegerType())), "json", True),
        (VariantType(), "json", False),
        (BinaryType(), "none", False),
        (ArrayType(TEXTS), "none", True),
    ],
)
def test_a_column_is_searched_by_its_type(kind: DataType, expected: str, is_many: bool) -> None:
    found = columns(kind)
    assert [column.name for column in found.columns] == ["id", "c"]
    assert (found.columns[1].kind, found.columns[1].is_many) == (expected, is_many)
    assert found.columns[1].type == kind.simpleString()


def test_text_that_is_not_named_is_found_by_whole_values() -> None:
    schema = StructType().add("id", StringType()).add("name", StringType()).add("tags", TEXTS)
    found = index_columns(schema, key=("id",), text=("name", "tags"), pipeline="products")
    assert [column.kind for column in found.columns] == ["whole", "words", "words"]


@pytest.mark.parametrize("text", ["missing", "c"])
def test_text_has_to_be_a_column_of_text(text: str) -> None:
    with pytest.raises(PipelineError, match=f"{text} is no column of text"):
        columns(IntegerType(), text=(text,))


@pytest.mark.parametrize("name", ["_key", "_row", "_part", "_ledger"])
def test_names_that_an_index_has_for_itself_are_refused(name: str) -> None:
    with pytest.raises(PipelineError, match=f"the column {name}, which a search index has for itself"):
        columns(StringType(), name=name)


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (NullType(), "c as void, which a search index does not take"),
        (DayTimeIntervalType(), "does not take: cast it"),
        (MapType(IntegerType(), StringType()), "have to be text; cast them"),
        (StructType().add("a", ArrayType(MapType(DateType(), StringType()))), "c.a as map<date,string>"),
    ],
)
def test_types_that_would_not_come_back_are_refused(kind: DataType, told: str) -> None:
    with pytest.raises(PipelineError, match=told):
        columns(kind)
