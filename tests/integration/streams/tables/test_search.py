"""What a search index in a directory has for itself: files, locks, and rows that are read in pieces."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

import headrace.streams as hr
from headrace.errors import PipelineError, PipelineFailed, StoreUnavailable
from headrace.search import Index, layout, open_index
from headrace.streams.sinks.context import BatchWriter, WriteContext
from headrace.streams.sinks.search import generation as generations
from headrace.streams.sinks.search.generation import Generation
from headrace.streams.sinks.search.read import read
from headrace.streams.sinks.writers import batch_writer

pytestmark = pytest.mark.spark

MakeWriter = Callable[..., BatchWriter]


def numbered(spark: SparkSession, rows: range, partitions: int = 2) -> DataFrame:
    return spark.range(rows.start, rows.stop, 1, partitions).select(
        F.concat(F.lit("k"), F.col("id")).alias("k"), F.col("id").alias("v")
    )


def values(index: Index) -> dict[str, int]:
    return {hit.row["k"]: hit.row["v"] for hit in index.search("*", limit=1000)}


@pytest.fixture
def index(tmp_path: Path) -> Index:
    return open_index(tmp_path, "index")


@pytest.fixture
def table(tmp_path: Path) -> Any:
    return hr.search_index(tmp_path, "index", key="k", writers=2)


@pytest.fixture
def live(tmp_path: Path) -> MakeWriter:
    """A writer of a query that has a checkpoint, as each start of it makes one."""

    def make_writer(target: Any, *, query_id: str = "query-1") -> BatchWriter:
        checkpoint = tmp_path / f"checkpoint-{query_id}"
        (checkpoint / "offsets").mkdir(parents=True, exist_ok=True)
        for batch_id in range(10):
            (checkpoint / "offsets" / str(batch_id)).write_text(f"input {batch_id}")
        context = WriteContext(
            pipeline="orders",
            query_id=query_id,
            bootstrap="127.0.0.1:1",
            guarantee="exactly-once",
            checkpoint=checkpoint,
        )
        return batch_writer(target, context)

    return make_writer


def test_rows_are_read_in_pieces_where_they_are_many(
    spark: SparkSession, table: Any, writer: MakeWriter
) -> None:
    given = numbered(spark, range(20))
    writer(table).write(given, 0)
    for at_once in (2, 1000):
        assert sorted(read(spark, table, given.schema, at_once=at_once).collect()) == sorted(given.collect())


def test_a_pipeline_that_crashes_leaves_an_index_that_it_goes_on_with(
    headrace_pipeline: Any, tmp_path: Path, index: Index
) -> None:
    products = hr.topic("products", schema="id bigint not null, name string, _delete boolean", partitions=1)

    @hr.pipeline(writes=hr.search_index(tmp_path, "index", key="id"), reads={"rows": products}, name="names")
    def names(rows: DataFrame) -> DataFrame:
        return rows

    script = headrace_pipeline(names)
    script.add(products, {"id": 1, "name": "green tea"}, {"id": 2, "name": "coffee"}).process()
    assert [hit.row for hit in index.search("tea")] == [{"id": 1, "name": "green tea"}]
    script.add(products, {"id": 1, "_delete": True}, {"id": 2, "name": "black coffee"})
    script.crash("pipeline.task.committed")
    script.process()
    assert [hit.row for hit in index.search("*")] == [{"id": 2, "name": "black coffee"}]


def test_an_index_that_has_lost_rows_is_noticed_when_it_is_written(
    spark: SparkSession, table: Any, live: MakeWriter, tmp_path: Path
) -> None:
    orders = live(table)
    orders.write(numbered(spark, range(5)), 0)
    backup = tmp_path / "backup"
    shutil.copytree(table.path, backup)
    # Batches without rows leave their entry, too.
    orders.write(numbered(spark, range(0)), 1)
    orders.write(numbered(spark, range(0)), 2)
    live(table).write(numbered(spark, range(5, 9)), 3)

    shutil.rmtree(table.path)
    shutil.copytree(backup, table.path)
    with pytest.raises(PipelineError, match=r"has lost rows .* the last batch that is there is 0.*--swap"):
        live(table).write(numbered(spark, range(9, 12)), 4)
    shutil.rmtree(table.path)
    with pytest.raises(PipelineError, match=r"has lost rows .*: nothing is there"):
        live(table).write(numbered(spark, range(9, 12)), 4)
    # Who runs meanwhile notices as well.
    other: Any = hr.search_index(tmp_path, "other", key="k")
    running = live(other, query_id="query-2")
    running.write(numbered(spark, range(3)), 0)
    shutil.rmtree(other.path)
    with pytest.raises(PipelineError, match=r"has lost rows"):
        running.write(numbered(spark, range(3, 6)), 1)


def test_rows_that_do_not_fit_are_refused_before_anything_is_written(
    spark: SparkSession, table: Any, writer: MakeWriter, tmp_path: Path
) -> None:
    rows = numbered(spark, range(3))
    writer(table).write(rows, 0)
    with pytest.raises(PipelineError, match=r"more is new.*--swap"):
        writer(table).write(rows.withColumn("more", F.lit(1)), 1)
    other: Any = hr.search_index(tmp_path, "other", key="k")
    with pytest.raises(PipelineError, match="'-v', which can't be the name of a field"):
        writer(other).write(rows.withColumnRenamed("v", "-v"), 0)
    with pytest.raises(PipelineFailed, match="key column k is null"):
        writer(table).write(rows.withColumn("k", F.lit(None).cast("string")), 1)
    assert not other.path.exists()


def test_who_finds_the_index_locked_says_so_and_a_writer_that_was_killed_leaves_no_lock(
    spark: SparkSession, table: Any, index: Index, writer: MakeWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = writer(table)
    orders.write(numbered(spark, range(3)), 0)
    generation = layout.place(table.path)
    assert generation is not None
    monkeypatch.setattr(generations, "LOCK_PAUSE_S", 0.001)
    with (
        Generation(path=generation).writing(),
        pytest.raises(StoreUnavailable, match="another process writes"),
        Generation(path=generation).writing(lock_s_max=0.01),
    ):
        pass
    program = f"""
import os, signal
from pathlib import Path
from headrace.streams.sinks.search.generation import Generation
with Generation(path=Path({str(generation)!r})).writing() as changes:
    changes.delete('["k1"]')
    changes.put('["k9"]', changes.document({{"_key": '["k9"]', "_row": b'{{"k": "k9", "v": 9}}'}}))
    os.kill(os.getpid(), signal.SIGKILL)
"""
    killed = subprocess.run([sys.executable, "-c", program], check=False)
    assert killed.returncode == -signal.SIGKILL
    orders.write(numbered(spark, range(3, 5)), 1)
    assert sorted(values(index).values()) == list(range(5))
