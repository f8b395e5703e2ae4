"""What is peculiar to a table of DuckDB: its types, who else may open the file, what a swap would lose."""

from __future__ import annotations

import errno
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

import headrace.streams as hr
from headrace.errors import PipelineError, PipelineReplaced, StoreUnavailable
from headrace.streams.sinks.context import BatchWriter
from headrace.streams.sinks.duck import connection as opening
from headrace.streams.sinks.stores import store_of
from headrace.testing.failpoints import failpoint

pytestmark = pytest.mark.spark

MakeWriter = Callable[..., BatchWriter]


def numbered(spark: SparkSession, rows: range) -> DataFrame:
    return spark.range(rows.start, rows.stop, 1, 2).select(
        F.col("id").cast("string").alias("k"), F.col("id").alias("v")
    )


def ask(path: Path, question: str) -> list[tuple[object, ...]]:
    with duckdb.connect(str(path), read_only=True) as connection:
        return connection.execute(question).fetchall()


def test_nested_values_are_asked_for_with_sql_between_two_batches(
    spark: SparkSession, tmp_path: Path, writer: MakeWriter
) -> None:
    table = hr.duckdb_table(tmp_path / "shop.duckdb", "orders", key="id")
    orders = writer(table)
    schema = "id int, lines array<struct<item: string, price: decimal(8,2)>>, tags map<string, int>"
    for batch_id, price in enumerate((Decimal("2.50"), Decimal("3.00"))):
        rows = [(1, [("tea", price), ("milk", Decimal("1.00"))], {"a": 1})]
        orders.write(spark.createDataFrame(rows, schema), batch_id)
        lines = "SELECT unnest(lines) AS line, tags FROM orders"
        total = f"SELECT sum(line.price), any_value(tags['a']) FROM ({lines})"  # noqa: S608 - our own
        assert ask(table.path, total) == [(price + 1, 1)]
    assert not list(tmp_path.rglob("*.parquet")), "staged rows are gone"


def test_a_directory_that_is_named_like_a_column_does_not_decide_its_value(
    spark: SparkSession, tmp_path: Path, writer: MakeWriter
) -> None:
    table = hr.duckdb_table(tmp_path / "v=9" / "shop.duckdb", "orders", key="k")
    writer(table).write(numbered(spark, range(2)), 0)
    assert ask(table.path, "SELECT v FROM orders ORDER BY v") == [(0,), (1,)]


def test_rows_that_do_not_fit_the_table_are_refused_with_all_reasons(
    spark: SparkSession, tmp_path: Path, writer: MakeWriter
) -> None:
    path = tmp_path / "shop.duckdb"
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE fixed (k VARCHAR, v INTEGER, owner VARCHAR NOT NULL, since DATE)")
        connection.execute("CREATE TABLE wider (v HUGEINT, k VARCHAR PRIMARY KEY, note VARCHAR DEFAULT 'x')")
    with pytest.raises(PipelineError) as refused:
        writer(hr.duckdb_table(path, "fixed", key="k")).write(
            numbered(spark, range(3)).withColumn("more", F.lit(1.5)), 0
        )
    for reason in (
        "the table has no column more, which would be DOUBLE",
        "column v is INTEGER, and the pipeline returns BIGINT",
        "column owner takes no null and has no default",
    ):
        assert reason in str(refused.value)
    # One that takes all values is written, and what else it has stays.
    wider = writer(hr.duckdb_table(path, "wider", key="k"))
    wider.write(numbered(spark, range(4)).withColumn("_delete", F.lit(False)), 0)
    with duckdb.connect(str(path)) as connection:
        connection.execute("UPDATE wider SET note = 'kept' WHERE k = '1'")
    changed = numbered(spark, range(1, 5)).withColumns(
        {"v": F.col("v") * 10, "_delete": F.col("k").isin("3", "9")}
    )
    wider.write(changed, 1)
    assert ask(path, "SELECT k, v, note FROM wider ORDER BY k") == [
        *(("0", 0, "x"), ("1", 10, "kept"), ("2", 20, "x"), ("4", 40, "x"))
    ]


def test_a_file_that_somebody_has_open_can_be_written_when_he_closes_it(
    spark: SparkSession, tmp_path: Path, writer: MakeWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "OPEN_S_MAX", 0.1)
    table = hr.duckdb_table(tmp_path / "shop.duckdb", "orders", key="k")
    orders = writer(table)
    orders.write(numbered(spark, range(3)), 0)
    # In this process, another way to have it open is in the way just the same.
    with (
        duckdb.connect(str(table.path), read_only=True),
        pytest.raises(StoreUnavailable, match="the file is open elsewhere"),
    ):
        orders.write(numbered(spark, range(6)), 1)
    assert orders.write(numbered(spark, range(6)), 1) == 6


def test_a_run_that_was_replaced_does_not_touch_the_staged_rows_of_the_other(
    spark: SparkSession, tmp_path: Path, writer: MakeWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = hr.duckdb_table(tmp_path / "shop.duckdb", "orders", key="k")
    old: Any = writer(table)
    with (
        failpoint("pipeline.task.produced", error=errno.EIO),
        pytest.raises(Exception, match=r"failpoint|EIO"),
    ):
        old.write(numbered(spark, range(3)), 0)
    old.write(numbered(spark, range(3)), 0)
    newer: Any = writer(table, query_id="query-2")
    newer.write(numbered(spark, range(3)), 0)
    # It was stopped after it had looked who may write, and goes on while the other writes a batch.
    monkeypatch.setattr(old._applier, "is_written", lambda _batch: False)
    apply = newer._applier.apply

    def interrupted(batch: Any, files: Any) -> None:
        with pytest.raises(PipelineReplaced):
            old.write(numbered(spark, range(9)), 1)
        apply(batch, files)

    with monkeypatch.context() as patched:
        patched.setattr(newer._applier, "apply", interrupted)
        assert newer.write(numbered(spark, range(3, 6)), 1) == 3
    assert ask(table.path, "SELECT count(*) FROM orders") == [(6,)]
    # What it has left is removed by the next run.
    assert list(tmp_path.rglob("*.parquet"))
    writer(table, query_id="query-2").write(numbered(spark, range(6, 7)), 2)
    assert not list(tmp_path.rglob("*.parquet"))


def test_columns_that_somebody_adds_between_two_batches_keep_their_values_and_a_dropped_table_is_missed(
    spark: SparkSession, tmp_path: Path, writer: MakeWriter
) -> None:
    table = hr.duckdb_table(tmp_path / "shop.duckdb", "orders", key="k")
    orders = writer(table)
    orders.write(numbered(spark, range(3)), 0)
    with duckdb.connect(str(table.path)) as connection:
        connection.execute("ALTER TABLE orders ADD COLUMN note VARCHAR")
        connection.execute("UPDATE orders SET note = 'kept' WHERE k = '1'")
    orders.write(numbered(spark, range(1, 3)).withColumn("v", F.col("v") * 10), 1)
    assert ask(table.path, "SELECT k, v, note FROM orders ORDER BY k") == [
        *(("0", 0, None), ("1", 10, "kept"), ("2", 20, None))
    ]
    with duckdb.connect(str(table.path)) as connection:
        connection.execute("DROP TABLE orders")
    with pytest.raises(PipelineError, match="has lost rows of pipeline orders: there is no such table"):
        orders.write(numbered(spark, range(3)), 2)


def test_a_swap_that_would_lose_what_belongs_to_the_table_is_refused(
    spark: SparkSession, tmp_path: Path, writer: MakeWriter
) -> None:
    table = hr.duckdb_table(tmp_path / "shop.duckdb", "orders", key="k")
    writer(table).write(numbered(spark, range(3)), 0)
    swap = store_of(table).swap(table, pipeline="orders", swap_id="0123456789abcdef")
    with duckdb.connect(str(table.path)) as connection:
        connection.execute("CREATE INDEX by_v ON orders (v)")
    with pytest.raises(PipelineError, match=r"the index by_v would be lost; drop .* --into"):
        swap.check(numbered(spark, range(0)).schema)
    with duckdb.connect(str(table.path)) as connection:
        connection.execute("DROP INDEX by_v")
        connection.execute("ALTER TABLE orders ALTER COLUMN v SET DEFAULT 7")
    with pytest.raises(PipelineError, match="the default of v would be lost"):
        swap.check(numbered(spark, range(0)).schema)
    with duckdb.connect(str(table.path)) as connection:
        connection.execute("ALTER TABLE orders ALTER COLUMN v DROP DEFAULT")
        connection.execute("CREATE VIEW dear AS SELECT * FROM orders WHERE v > 1")
    swap.check(numbered(spark, range(0)).schema)
    swap.make()
    swap.commit("query-2")
    assert ask(table.path, "SELECT count(*) FROM dear") == [(0,)]


def test_a_table_that_is_missing_can_not_be_verified(spark: SparkSession, tmp_path: Path) -> None:
    table = hr.duckdb_table(tmp_path / "none.duckdb", "orders", key="k")
    with pytest.raises(PipelineError, match="there is no file"):
        store_of(table).refuse_missing(table, pipeline="orders")
    assert not table.path.exists()
