"""Rows on their way into tables: types that fit, CSV that PostgreSQL reads back, the last row of a key."""

from __future__ import annotations

import csv
import io
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types
from pyspark.sql.types import DayTimeIntervalType, StructField, StructType

from headrace.errors import PipelineError
from headrace.streams.sinks.delta.schema import arrow_schema
from headrace.streams.sinks.delta.schema import misfits as delta_misfits
from headrace.streams.sinks.postgres.columns import Found, misfits, postgres_type
from headrace.streams.sinks.postgres.statements import delete_rows, upsert_rows
from headrace.streams.sinks.postgres.task import as_csv
from headrace.streams.sinks.staged_files import last_of_each_key
from headrace.streams.table import PostgresTable, postgres_table

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))


def table() -> PostgresTable:
    return postgres_table("dbname=x", 'shop.odd"name', key=["k"])


def found(**types: str) -> list[Found]:
    return [Found(name=name, type=kind, is_required=False) for name, kind in types.items()]


@given(st.lists(st.tuples(st.none() | TEXT, st.none() | st.integers(-(2**63), 2**63 - 1)), min_size=1))
def test_texts_nulls_and_numbers_can_be_told_apart_in_csv(rows: list[tuple[str | None, int | None]]) -> None:
    texts, numbers = zip(*rows, strict=True)
    share = pa.RecordBatch.from_pydict(
        {"t": pa.array(texts, pa.string()), "n": pa.array(numbers, pa.int64())}
    )
    written = as_csv(share).decode()
    # The standard library does not tell an empty text from a null, so each text gets a mark in front.
    marked = pa.RecordBatch.from_pydict(
        {"t": pa.array([None if t is None else "+" + t for t in texts], pa.string()), "n": share["n"]}
    )
    read = list(csv.reader(io.StringIO(as_csv(marked).decode(), newline="")))
    assert [(t[1:] if t else None, int(n) if n else None) for t, n in read] == rows
    assert written.count('""') >= sum(text == "" for text in texts)


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["a", "b"]), st.integers())))
def test_the_last_row_of_each_key_is_what_a_dictionary_would_keep(rows: list[tuple[int, str, int]]) -> None:
    columns: Any = list(zip(*rows, strict=True)) or [(), (), ()]
    kinds = (pa.int64(), pa.string(), pa.string())
    values = [columns[0], columns[1], [str(value) for value in columns[2]]]
    share = pa.table(
        [pa.array(column, kind) for column, kind in zip(values, kinds, strict=True)], names=["k", "l", "v"]
    )
    kept = {(k, name): str(value) for k, name, value in rows}
    result = last_of_each_key(share, ("k", "l")).to_pylist()
    assert {(row["k"], row["l"]): row["v"] for row in result} == kept
    assert len(result) == len(kept)


@pytest.mark.parametrize(
    ("kind", "there", "fits"),
    [
        (types.IntegerType(), "bigint", True),
        (types.LongType(), "integer", False),
        (types.ShortType(), "numeric", True),
        (types.FloatType(), "double precision", True),
        (types.DoubleType(), "real", False),
        (types.StringType(), "uuid", True),
        (types.TimestampType(), "timestamp without time zone", False),
        (types.ArrayType(types.IntegerType()), "json", True),
        (types.MapType(types.StringType(), types.IntegerType()), "text", False),
        (types.DecimalType(10, 2), "numeric", True),
    ],
)
def test_a_column_fits_where_all_its_values_do(kind: types.DataType, there: str, *, fits: bool) -> None:
    schema = StructType([StructField("c", kind)])
    assert (misfits(schema, found(c=there), pipeline="p") == []) == fits


def test_a_type_that_postgresql_does_not_have_is_refused_whether_the_column_is_there_or_not() -> None:
    schema = StructType([StructField("c", DayTimeIntervalType())])
    for there in (found(), found(c="interval")):
        with pytest.raises(PipelineError, match="cast it, to string for example"):
            misfits(schema, there, pipeline="p")
    assert postgres_type("c", types.DecimalType(10, 2), pipeline="p") == "numeric(10,2)"


def test_names_are_quoted_in_statements() -> None:
    assert '"shop"."odd""name"' in upsert_rows(table(), ["k", "v"]).as_string(None)
    assert 'last."_delete"' in delete_rows(table()).as_string(None)


def test_a_table_of_nothing_but_its_key_changes_nothing_on_conflict() -> None:
    assert upsert_rows(table(), ["k"]).as_string(None).endswith('ON CONFLICT ("k") DO NOTHING')


def test_columns_of_delta_may_be_null_at_any_depth_and_differ_by_type_only() -> None:
    inner = StructType().add("a", types.ArrayType(types.IntegerType(), containsNull=False))
    inner = inner.add("m", types.MapType(types.StringType(), types.LongType()), nullable=False)
    schema = StructType().add("s", inner, nullable=False)
    made = arrow_schema(schema, pipeline="p")
    assert made.field("s").nullable
    assert delta_misfits(made, made) == []
    there = pa.schema([pa.field("s", pa.int64()), pa.field("must", pa.int64(), nullable=False)])
    reasons = delta_misfits(made, there)
    assert "column s is int64" in reasons[0]
    assert reasons[1] == "column must takes no null, and the pipeline does not return it"
