"""Batches in a search index: each once, after any failure, and refused where they don't fit; in a directory
and on a server."""

from __future__ import annotations

import errno
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows
from pyspark.sql.types import StructType

import headrace.streams as hr
from headrace.config import StreamsConfig
from headrace.errors import PipelineError, PipelineFailed, PipelineReplaced
from headrace.search import Index
from headrace.streams.go_live import GoLive
from headrace.streams.repair import repair_in
from headrace.streams.sinks.context import BatchWriter
from headrace.streams.sinks.refused import refused_files
from headrace.streams.sinks.stores import store_of
from headrace.streams.verify import verify_in
from headrace.testing.failpoints import failpoint, kill_at

pytestmark = pytest.mark.spark

MakeWriter = Callable[..., BatchWriter]
PLACES = (
    "pipeline.batch",
    "pipeline.task.begun",
    "pipeline.task.produced",
    "pipeline.task.committed",
    "pipeline.written",
)
LONG_KEY = 70_000
COMMIT = """
import sys
import headrace.streams as hr
from headrace.config import failpoints_to_arm
from headrace.failpoints import arm_all
from headrace.streams.sinks.stores import store_of

arm_all(failpoints_to_arm())
table = hr.search_index(sys.argv[1], sys.argv[2], key="k")
store_of(table).swap(table, pipeline="orders", swap_id="abc").commit("replay")
"""


def numbered(spark: SparkSession, rows: range, partitions: int = 2) -> DataFrame:
    return spark.range(rows.start, rows.stop, 1, partitions).select(
        F.concat(F.lit("k"), F.col("id")).alias("k"), F.col("id").alias("v")
    )


@pytest.fixture
def values(backend: Any, index: Index) -> Callable[[], dict[str, int]]:
    """What the index holds, by key."""

    def found() -> dict[str, int]:
        backend.settle()
        return {hit.row["k"]: hit.row["v"] for hit in index.search("*", limit=1000)}

    return found


def test_rows_come_out_as_they_went_in_by_their_types(
    spark: SparkSession, backend: Any, index: Index, writer: MakeWriter
) -> None:
    schema = (
        "t string, b boolean, y tinyint, i smallint, l bigint, f float, d double, m decimal(38,18), "
        "x binary, day date, at timestamp, local timestamp_ntz, "
        "s struct<a: int, b: array<string>, at: timestamp>, "
        "g map<string, decimal(20,2)>, many array<timestamp>, `a.b` int, `ödd name` array<array<int>>"
    )
    moment = datetime(1890, 1, 1, 0, 0, 0, 1, UTC)
    local = datetime(2026, 1, 2, 3, 4, 5, 6)  # noqa: DTZ001 - it has no zone
    row = (
        *("", True, 1, -2, 2**63 - 1, 0.1, float("nan"), Decimal("-12345678901234567890.123456789012345678")),
        *(b"\x00\xff\\", date(9999, 12, 31), moment, local),
        *((1, ["x", None, '\n"\\ \0'], moment), {"k": Decimal("1.50"), "n": None}, [moment, None], 8, [[1]]),
    )
    texts = ["", " ", "ümläut 🦆", "line\nbreak", '"', "\\", "long " * 20_000, "long" * 20_000]
    rows = [(number, text, *row[1:]) for number, text in enumerate(texts)] + [(99, *(None,) * len(row))]
    given = spark.createDataFrame(rows, f"n int, {schema}")
    table: Any = hr.search_index(backend.address, backend.name, key=["n"])
    assert writer(table).write(given, 0) == len(rows)
    whole = F.to_json(F.struct(*(f"`{name}`" for name in given.columns)))
    found = store_of(table).read(spark, table, given.schema)
    assert found.schema == given.schema
    assert sorted(found.select(whole).collect()) == sorted(given.select(whole).collect())
    some = store_of(table).read(spark, table, StructType([given.schema["x"], given.schema["n"]]))
    assert some.where("n = 0").collect() == [(b"\x00\xff\\", 0)]
    for query in (
        *("b:true", "y:1", "i:<0", f"l:{2**63 - 1}", "m:<-1000", "day:>2200-01-01T00:00:00Z", "s.a:1"),
        *("at:[1889-12-31T23:59:59Z TO 1890-01-01T00:00:01Z]", "local:>2026-01-02T03:04:04Z", "a.b:8"),
    ):
        assert index.count(query) == len(texts), query


def test_the_last_row_of_a_key_stays_and_deletes_remove(
    spark: SparkSession, backend: Any, writer: MakeWriter, index: Index
) -> None:
    table = hr.search_index(backend.address, backend.name, key=["shop", "item"])
    orders = writer(table)
    schema = "shop int, item string, price double, _delete boolean"
    first = [(1, "a", 1.0, False), (1, "b", 2.0, None), (2, "a", 3.0, False), (1, "a", 4.0, False)]
    assert not store_of(table).has_rows(table)
    orders.write(spark.createDataFrame(first, schema).coalesce(1), 0)
    assert index.get(1, "a") == {"shop": 1, "item": "a", "price": 4.0}
    assert store_of(table).has_rows(table)
    assert index.count() == 3
    second = [
        *((1, "a", None, True), (9, "none", None, True)),
        *((1, "b", None, True), (1, "b", 5.0, False), (2, "a", 6.0, False), (2, "a", None, True)),
    ]
    orders.write(spark.createDataFrame(second, schema).coalesce(1), 1)
    backend.settle()
    assert [hit.row for hit in index.search("*")] == [{"shop": 1, "item": "b", "price": 5.0}]
    orders.write(spark.createDataFrame([(1, "b", None, True)], schema), 2)
    assert not store_of(table).has_rows(table)


def test_a_batch_that_fails_anywhere_and_is_cut_differently_afterwards_is_written_once(
    spark: SparkSession, table: Any, values: Callable[[], dict[str, int]], writer: MakeWriter
) -> None:
    for batch_id, place in enumerate(PLACES):
        rows = range(batch_id * 10, batch_id * 10 + 10)
        with failpoint(place, error=errno.EIO), pytest.raises(Exception, match=r"failpoint|EIO"):
            writer(table).write(numbered(spark, rows, partitions=2), batch_id)
        writer(table).write(numbered(spark, rows, partitions=5), batch_id)
        assert sorted(values().values()) == list(range(rows.stop))
    assert writer(table).write(numbered(spark, range(999, 1000)), len(PLACES) - 1) == 0
    assert sorted(values().values()) == list(range(rows.stop))


def test_random_crashes_and_retries_leave_each_key_at_its_last_value(
    spark: SparkSession, table: Any, values: Callable[[], dict[str, int]], writer: MakeWriter
) -> None:
    chance = random.Random(7)
    expected: dict[str, int] = {}
    for batch_id in range(3):
        changes = [
            (f"k{chance.randrange(9)}", chance.randrange(99), chance.random() < 0.3) for _ in range(20)
        ]
        for key, value, is_deleted in changes:
            expected.pop(key, None)
            if not is_deleted:
                expected[key] = value
        frame = spark.createDataFrame(changes, "k string, v int, _delete boolean").coalesce(1)
        place = chance.choice(PLACES)
        with failpoint(place, error=errno.EIO), pytest.raises(Exception, match=r"failpoint|EIO"):
            writer(table).write(frame, batch_id)
        writer(table).write(frame, batch_id)
        # A batch that is there changes nothing, whatever it is.
        assert writer(table).write(frame.limit(3), batch_id) == 0
        assert values() == expected


def test_a_new_checkpoint_begins_afresh_and_one_that_was_put_back_or_replaced_is_refused(
    spark: SparkSession, table: Any, values: Callable[[], dict[str, int]], writer: MakeWriter
) -> None:
    old = writer(table)
    assert old.write(numbered(spark, range(10)), 4) == 10
    with pytest.raises(PipelineError, match="checkpoint was put back"):
        writer(table).write(numbered(spark, range(10)), 3)
    newer = writer(table, query_id="query-2")
    assert newer.write(numbered(spark, range(0)), 0) == 0
    with pytest.raises(PipelineReplaced, match="another run of pipeline orders has taken over"):
        old.write(numbered(spark, range(10, 20)), 5)
    assert newer.write(numbered(spark, range(5, 15)), 1) == 10
    assert sorted(values().values()) == list(range(15))


def test_a_key_that_is_too_long_is_kept_aside_and_the_rest_is_written(
    spark: SparkSession,
    table: Any,
    values: Callable[[], dict[str, int]],
    writer: MakeWriter,
    tmp_path: Path,
) -> None:
    rows = numbered(spark, range(6)).withColumn("k", F.expr(f"if(v = 3, repeat('x', {LONG_KEY}), k)"))
    writer(table).write(rows, 0)
    assert sorted(values().values()) == [0, 1, 2, 4, 5]
    files = refused_files(tmp_path / "checkpoint-query-1")
    assert files is not None
    (part,) = files.parts(0)
    (refused,) = pq.read_table(part).to_pylist()
    assert json.loads(refused["key"]) == ["x" * LONG_KEY]
    assert json.loads(refused["row"])["v"] == 3
    assert "bytes" in refused["cause"]
    with pytest.raises(PipelineFailed, match="a row is refused"):
        writer(table, query_id="query-2", has_checkpoint=False).write(rows, 0)


def test_rows_that_do_not_fit_are_refused_before_anything_is_written(
    spark: SparkSession, backend: Any, table: Any, values: Callable[[], dict[str, int]], writer: MakeWriter
) -> None:
    rows = numbered(spark, range(3))
    writer(table).write(rows, 0)
    with pytest.raises(PipelineError, match=r"more is new.*--swap"):
        writer(table).write(rows.withColumn("more", F.lit(1)), 1)
    other: Any = hr.search_index(backend.address, f"{backend.name}-other", key="k")
    with pytest.raises(PipelineError, match="the column _key, which a search index has for itself"):
        writer(other, query_id="other").write(rows.withColumnRenamed("v", "_key"), 0)
    with pytest.raises(PipelineFailed, match="key column k is null"):
        writer(table).write(rows.withColumn("k", F.lit(None).cast("string")), 1)
    assert not store_of(other).has_rows(other)
    assert sorted(values().values()) == [0, 1, 2]


def test_an_index_that_is_gone_is_noticed_and_built_anew_from_a_new_checkpoint(
    spark: SparkSession,
    backend: Any,
    table: Any,
    values: Callable[[], dict[str, int]],
    writer: MakeWriter,
) -> None:
    running = writer(table)
    running.write(numbered(spark, range(3)), 0)
    backend.lose()
    for whoever in (running, writer(table)):
        with pytest.raises(PipelineError, match=r"has lost rows of pipeline orders"):
            whoever.write(numbered(spark, range(3, 6)), 1)
    assert writer(table, query_id="query-2").write(numbered(spark, range(6)), 0) == 6
    assert sorted(values().values()) == list(range(6))


def test_a_swap_is_seen_at_once_shuts_out_who_wrote_and_can_be_repeated(
    spark: SparkSession,
    backend: Any,
    table: Any,
    index: Index,
    values: Callable[[], dict[str, int]],
    writer: MakeWriter,
) -> None:
    old = writer(table)
    old.write(numbered(spark, range(5)), 0)
    swap = store_of(table).swap(table, pipeline="orders", swap_id="abc")
    wider = numbered(spark, range(3, 8)).withColumn("more", F.lit("text"))
    assert not swap.is_made()
    swap.check(wider.schema)
    swap.make()
    assert swap.is_made()
    writer(swap.staging, query_id="replay").write(wider, 0)
    assert writer(swap.staging, query_id="replay").write(wider, 0) == 0
    assert sorted(values().values()) == list(range(5)), "nobody sees what is staged"
    for place, expected in (("replay.swap", range(5)), ("replay.swapped", range(3, 8))):
        killed = subprocess.run(
            [sys.executable, "-c", COMMIT, backend.address, backend.name],
            env={**os.environ, **kill_at(place)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        assert sorted(values().values()) == list(expected)
    swap.commit("replay")
    assert not swap.is_made()
    with pytest.raises(PipelineReplaced, match="another run of pipeline orders has taken over"):
        old.write(numbered(spark, range(5, 9)), 1)
    assert writer(table, query_id="replay").write(wider, 0) == 0, "the replay's ledger goes on"
    next_rows = numbered(spark, range(8, 9)).withColumn("more", F.lit("other"))
    assert writer(table, query_id="replay").write(next_rows, 1) == 1
    assert sorted(values().values()) == list(range(3, 9))
    assert [hit.row["v"] for hit in index.search("more:other")] == [8], "it knows the new column"


def test_a_swap_whose_staged_rows_are_gone_is_refused_and_one_of_nothing_empties_the_index(
    spark: SparkSession, table: Any, values: Callable[[], dict[str, int]], writer: MakeWriter
) -> None:
    old = writer(table)
    old.write(numbered(spark, range(5)), 0)
    gone = store_of(table).swap(table, pipeline="orders", swap_id="gone")
    with pytest.raises(PipelineError, match="are gone"):
        gone.commit("replay")
    swap = store_of(table).swap(table, pipeline="orders", swap_id="empty")
    swap.check(numbered(spark, range(0)).schema)
    swap.make()
    swap.commit("replay")
    assert values() == {}
    with pytest.raises(PipelineReplaced):
        old.write(numbered(spark, range(5, 9)), 1)
    assert writer(table, query_id="replay").write(numbered(spark, range(2)), 0) == 2


def test_a_replay_builds_an_index_with_other_columns_anew_and_it_can_be_verified_and_repaired(
    spark: SparkSession,
    kafka: Any,
    config: StreamsConfig,
    table: Any,
    values: Callable[[], dict[str, int]],
    writer: MakeWriter,
) -> None:
    orders = hr.topic("orders", schema="k string not null, v bigint", partitions=1)

    def totals(**columns: Column) -> GoLive:
        @hr.pipeline(writes=table, reads={"orders": orders}, name="totals")
        def pipeline(orders: DataFrame) -> DataFrame:
            return orders.groupBy("k").agg(*(column.alias(name) for name, column in columns.items()))

        return GoLive(pipeline=pipeline, config=config)

    kafka.produce("orders", [(k, json.dumps({"k": k, "v": v})) for k, v in (("a", 1), ("a", 2), ("b", 5))])
    wrong, right = totals(v=F.max("v")), totals(v=F.sum("v"), many=F.count("v"))
    wrong.run(spark, wrong.plan(), wrong.prepare(wrong.plan(), swap=False))
    assert values() == {"a": 2, "b": 5}
    right.run(spark, right.plan(), right.prepare(right.plan(), swap=True))
    assert values() == {"a": 3, "b": 5}
    sources = right.pipeline.sources()
    spoilt = [("a", 99, 1, False), ("b", None, None, True), ("ghost", 1, 1, False)]
    rows = spark.createDataFrame(spoilt, "k string, v bigint, many bigint, _delete boolean")
    writer(table, pipeline="others", query_id="others").write(rows, 0)
    assert values() == {"a": 99, "ghost": 1}
    repair_in(spark, right.pipeline, config)
    assert values() == {"a": 3, "b": 5}
    assert verify_in(spark, right.pipeline, sources, config).verdict == "equal"
