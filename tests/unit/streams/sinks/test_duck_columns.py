"""Which type a column gets in DuckDB, and which columns take its values."""

from __future__ import annotations

import duckdb
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
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
    VariantType,
)

from headrace.errors import PipelineError
from headrace.streams.sinks.duck import statements
from headrace.streams.sinks.duck.columns import Found, duckdb_type, misfits
from headrace.streams.sinks.duck.table import types_of

TYPES: list[tuple[DataType, str]] = [
    (BooleanType(), "BOOLEAN"),
    (ByteType(), "TINYINT"),
    (ShortType(), "SMALLINT"),
    (IntegerType(), "INTEGER"),
    (LongType(), "BIGINT"),
    (FloatType(), "FLOAT"),
    (DoubleType(), "DOUBLE"),
    (DecimalType(38, 18), "DECIMAL(38,18)"),
    (StringType(), "VARCHAR"),
    (BinaryType(), "BLOB"),
    (DateType(), "DATE"),
    (TimestampType(), "TIMESTAMP WITH TIME ZONE"),
    (TimestampNTZType(), "TIMESTAMP"),
]


def typeof(kind: str) -> object:
    """A type in DuckDB's own words."""
    with duckdb.connect() as connection:
        (told,) = connection.execute(f"SELECT typeof(CAST(NULL AS {kind}))").fetchone() or ()
        return told


@pytest.mark.parametrize(("kind", "expected"), TYPES, ids=str)
def test_plain_types_have_a_type_of_their_own(kind: DataType, expected: str) -> None:
    assert duckdb_type("c", kind, pipeline="p") == expected
    assert typeof(expected) == expected


def test_nested_types_stay_what_they_are() -> None:
    inner = StructType().add("d", DecimalType(5, 2))
    kind = StructType().add('a "b', ArrayType(IntegerType())).add("m", MapType(StringType(), inner))
    text = duckdb_type("c", kind, pipeline="p")
    assert text == 'STRUCT("a ""b" INTEGER[], "m" MAP(VARCHAR, STRUCT("d" DECIMAL(5,2))))'
    assert str(typeof(text)).startswith("STRUCT(")


@pytest.mark.parametrize("kind", [VariantType(), StructType([])], ids=str)
def test_what_duckdb_has_no_type_for_is_refused_with_the_column(kind: DataType) -> None:
    with pytest.raises(PipelineError, match=r"returns the column odd with .*: cast it, to string"):
        duckdb_type("odd", kind, pipeline="p")


def test_a_wider_column_takes_all_values_and_the_reasons_are_all_told() -> None:
    found = [
        Found(name="k", type="BIGINT", is_required=False),
        Found(name="v", type="SMALLINT", is_required=False),
        Found(name="owner", type="VARCHAR", is_required=True),
        Found(name="note", type="VARCHAR", is_required=False),
    ]
    assert misfits({"k": "INTEGER", "v": "TINYINT", "owner": "VARCHAR"}, found) == []
    assert misfits({"k": "VARCHAR", "v": "BIGINT", "more": "DATE"}, found) == [
        "the table has no column more, which would be DATE",
        "column k is BIGINT, and the pipeline returns VARCHAR",
        "column v is SMALLINT, and the pipeline returns BIGINT",
        "column owner takes no null and has no default, and the pipeline does not return it",
    ]


def test_a_table_is_made_with_any_names() -> None:
    with duckdb.connect() as connection:
        schema = StructType().add('odd "name', IntegerType()).add("a.b", "string")
        connection.execute(statements.create_table('t "1"', types_of(schema, pipeline="p")))
        columns = "SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = ?"
        found = connection.execute(columns, ['t "1"']).fetchall()
    assert found == [('odd "name', "INTEGER"), ("a.b", "VARCHAR")]
