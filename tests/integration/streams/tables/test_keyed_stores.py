"""Batches in a cache and in a table of DuckDB: each once, after any failure, and missed when lost."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

import headrace.streams as hr
from headrace.config import StreamsConfig
from headrace.errors import PipelineError, PipelineFailed, PipelineReplaced
from headrace.streams.go_live import GoLive
from headrace.streams.sinks.context import BatchWriter, WriteContext
from headrace.streams.sinks.stores import store_of
from headrace.streams.sinks.writers import batch_writer
from headrace.streams.verify import verify_in
from headrace.testing.failpoints import failpoint, kill_at
from headrace.testing.waiting import eventually

pytestmark = pytest.mark.spark

MakeWriter = Callable[..., BatchWriter]
WITHIN_S = 240.0
PLACES = (
    "pipeline.task.begun",
    "pipeline.task.produced",
    "pipeline.task.committed",
    "pipeline.written",
)
COMMIT = """
import sys
import headrace.streams as hr
from headrace.config import failpoints_to_arm
from headrace.failpoints import arm_all
from headrace.streams.sinks.stores import store_of

arm_all(failpoints_to_arm())
table = eval(sys.argv[1])
store_of(table).swap(table, pipeline="orders", swap_id="0123456789abcdef0123").commit("query-2")
"""


def numbered(spark: SparkSession, rows: range, partitions: int = 3) -> DataFrame:
    return spark.range(rows.start, rows.stop, 1, partitions).select(
        F.format_string("k%04d", "id").alias("k"), F.col("id").alias("v")
    )


def values(keyed_store: Any, name: str) -> list[int]:
    return [row["v"] for row in keyed_store.rows(name)]


def checkpointed(table: Any, checkpoint: Path, *, query_id: str = "query-1") -> BatchWriter:
    """A writer as a streaming query has one, with batches 0 to 9."""
    for batch_id in range(10):
        offsets = checkpoint / "offsets" / str(batch_id)
        offsets.parent.mkdir(parents=True, exist_ok=True)
        offsets.write_text(f"input {batch_id}")
    context = WriteContext(
        pipeline="orders",
        query_id=query_id,
        bootstrap="127.0.0.1:1",
        guarantee="exactly-once",
        checkpoint=checkpoint,
    )
    return batch_writer(table, context)


def test_rows_come_back_as_they_were_by_their_types(
    spark: SparkSession, keyed_store: Any, writer: MakeWriter
) -> None:
    schema = (
        "n int, t string, b boolean, y tinyint, i smallint, l bigint, f float, d double, m decimal(38,18), "
        "x binary, day date, at timestamp, local timestamp_ntz, s struct<a: int, b: array<string>>, "
        "g map<string, double>, h map<int, struct<day: map<date, timestamp>>>, "
        'l2 array<array<decimal(5,2)>>, `odd "name` int, `a.b` int'
    )
    row = (
        *(True, 1, -2, 2**63 - 1, 0.1, 0.1, Decimal("-12345678901234567890.123456789012345678")),
        *(b"\x00\xff\\", date(9999, 12, 31), datetime(1890, 1, 1, 0, 0, 0, 1, UTC)),
        *(datetime(2026, 1, 2, 3, 4, 5, 6), {"a": 1, "b": ["x", None, ""]}, {"k": 1.5}),  # noqa: DTZ001 - local
        *(
            {7: {"day": {date(2026, 1, 2): datetime(2026, 1, 2, 3, tzinfo=UTC)}}},
            [[Decimal("1.20")], [], None],
        ),
        *(7, 8),
    )
    odd = (*row[:4], float("-inf"), float("nan"), *row[6:])
    texts = ["", "\\N", "NULL", '"', "line\nbreak\r\n", "'", "ümläut 🦆", " x ", "\x01"]
    rows: list[tuple[Any, ...]] = [(number, text, *row) for number, text in enumerate(texts)]
    rows += [(98, "odd", *odd), (99, None, *(None,) * len(row))]
    given = spark.createDataFrame(rows, schema)
    table = keyed_store.table("all_types", ["n"])
    assert writer(table).write(given, 0) == len(rows)
    found = store_of(table).read(spark, table, given.schema)
    assert found.schema == given.schema
    whole = F.to_json(F.struct(*(f"`{name}`" for name in given.columns)))
    assert sorted(found.select(whole).collect()) == sorted(given.select(whole).collect())
    some = store_of(table).read(spark, table, given.select("t", "n").schema)
    assert min(some.collect(), key=lambda row: row["n"]) == ("", 0)


def test_the_last_row_of_a_key_stays_and_deletes_remove(
    spark: SparkSession, keyed_store: Any, writer: MakeWriter
) -> None:
    table = keyed_store.table("prices", ["shop", "Item"])
    assert not store_of(table).has_rows(table)
    orders = writer(table)
    schema = "shop int, Item string, v int, _delete boolean"
    first = [(1, "a", 1, False), (1, "b", 2, None), (2, "a", 3, False), (1, "a", 4, False)]
    assert orders.write(spark.createDataFrame(first, schema).coalesce(1), 0) == 3
    assert [tuple(row.values()) for row in keyed_store.rows("prices")] == [
        (1, "a", 4),
        (1, "b", 2),
        (2, "a", 3),
    ]
    assert store_of(table).has_rows(table)
    second = [
        *((1, "a", None, True), (9, "none", None, True)),
        *((1, "b", None, True), (1, "b", 5, False), (2, "a", 6, False), (2, "a", None, True)),
    ]
    orders.write(spark.createDataFrame(second, schema).coalesce(1), 1)
    assert [tuple(row.values()) for row in keyed_store.rows("prices")] == [(1, "b", 5)]
    # All that is there may go, too, and nothing has been lost by that.
    orders.write(spark.createDataFrame([(1, "b", None, True)], schema), 2)
    assert orders.write(spark.createDataFrame([], schema), 3) == 0
    assert not store_of(table).has_rows(table)


def test_a_batch_that_fails_anywhere_and_is_cut_differently_afterwards_is_written_once(
    spark: SparkSession, keyed_store: Any, writer: MakeWriter
) -> None:
    table = keyed_store.table("once", ["k"])
    for batch_id, place in enumerate(PLACES):
        rows = range(batch_id * 10, batch_id * 10 + 10)
        with failpoint(place, error=errno.EIO), pytest.raises(Exception, match=r"failpoint|EIO"):
            writer(table).write(numbered(spark, rows, partitions=2), batch_id)
        writer(table).write(numbered(spark, rows, partitions=5), batch_id)
        assert values(keyed_store, "once") == list(range(rows.stop))


def test_a_new_checkpoint_begins_afresh_and_one_that_was_put_back_or_replaced_is_refused(
    spark: SparkSession, keyed_store: Any, writer: MakeWriter
) -> None:
    table = keyed_store.table("again", ["k"])
    old = writer(table)
    assert old.write(numbered(spark, range(10)), 4) == 10
    newer = numbered(spark, range(10)).withColumn("v", F.lit(-1))
    again = writer(table)
    assert again.write(newer, 4) == 0
    assert values(keyed_store, "again") == list(range(10))
    with pytest.raises(PipelineError, match="checkpoint was put back"):
        writer(table).write(newer, 3)
    assert writer(table, query_id="query-2").write(numbered(spark, range(10, 20)), 0) == 10
    for replaced in (old, again):
        with pytest.raises(PipelineReplaced, match="another run of pipeline orders has taken over"):
            replaced.write(newer, 5)
    assert values(keyed_store, "again") == list(range(20))
    # Another pipeline has a ledger of its own.
    assert writer(table, pipeline="others").write(numbered(spark, range(20, 21)), 0) == 1


def test_a_store_that_has_lost_rows_is_noticed_and_nothing_more_is_written(
    spark: SparkSession, keyed_store: Any, tmp_path: Path
) -> None:
    table, checkpoint = keyed_store.table("lost", ["k"]), tmp_path / "checkpoint"
    orders = checkpointed(table, checkpoint)
    orders.write(numbered(spark, range(3)), 0)
    backup = keyed_store.backup()
    # A batch without rows counts, too.
    orders.write(numbered(spark, range(0)), 1)
    for found in (backup, None):
        keyed_store.restore(found)
        lost = r"has lost rows of pipeline orders: .* `headrace replay FILE:orders --swap`"
        for whoever in (orders, checkpointed(table, checkpoint)):
            with pytest.raises(PipelineError, match=lost):
                whoever.write(numbered(spark, range(3, 6)), 2)
    # From a new checkpoint, it is built anew.
    anew = checkpointed(table, tmp_path / "anew", query_id="query-2")
    assert anew.write(numbered(spark, range(6)), 0) == 6
    assert values(keyed_store, "lost") == list(range(6))


def test_a_row_without_a_key_fails_its_batch(
    spark: SparkSession, keyed_store: Any, writer: MakeWriter
) -> None:
    table, rows = keyed_store.table("strict", ["k"]), numbered(spark, range(10))
    with pytest.raises(PipelineFailed, match=r"key .*null|null in its key"):
        writer(table).write(rows.withColumn("k", F.expr("if(v = 5, null, k)")), 0)


def test_staged_rows_take_the_place_of_all_others_at_once_and_the_old_run_is_shut_out(
    spark: SparkSession, keyed_store: Any, writer: MakeWriter
) -> None:
    table = keyed_store.table("live", ["k"])
    old, later = writer(table), writer(table, query_id="query-2")
    old.write(numbered(spark, range(5)), 0)
    swap = store_of(table).swap(table, pipeline="orders", swap_id="0123456789abcdef0123")
    swap.check(numbered(spark, range(0)).schema)
    assert not swap.is_made()
    swap.make()
    swap.make()
    assert swap.is_made()
    writer(swap.staging, query_id="query-2").write(numbered(spark, range(100, 103)), 0)
    assert values(keyed_store, "live") == list(range(5))
    swap.commit("query-2")
    for _ in range(2):
        assert not swap.is_made()
        assert values(keyed_store, "live") == [100, 101, 102]
        swap.commit("query-2")
    with pytest.raises(PipelineReplaced):
        old.write(numbered(spark, range(5, 6)), 1)
    assert later.write(numbered(spark, range(103, 104)), 1) == 1
    assert values(keyed_store, "live") == [100, 101, 102, 103]


def test_a_swap_for_nothing_empties_and_one_whose_rows_are_gone_is_refused(
    spark: SparkSession, keyed_store: Any, writer: MakeWriter
) -> None:
    table = keyed_store.table("live", ["k"])
    writer(table).write(numbered(spark, range(5)), 0)
    swap = store_of(table).swap(table, pipeline="orders", swap_id="0123456789abcdef0123")
    with pytest.raises(PipelineError, match="begin the replay anew"):
        swap.commit("query-2")
    swap.make()
    swap.commit("query-2")
    assert not store_of(table).has_rows(table)
    assert writer(table, query_id="query-2").write(numbered(spark, range(1)), 0) == 1


def test_a_swap_that_is_killed_around_its_commit_leaves_old_or_new_rows_and_can_be_finished(
    spark: SparkSession, keyed_store: Any, writer: MakeWriter
) -> None:
    table = keyed_store.table("live", ["k"])
    writer(table).write(numbered(spark, range(2)), 0)
    swap = store_of(table).swap(table, pipeline="orders", swap_id="0123456789abcdef0123")
    swap.make()
    writer(swap.staging, query_id="query-2").write(numbered(spark, range(7, 9)), 0)
    for place, expected in (("replay.swap", [0, 1]), ("replay.swapped", [7, 8])):
        command = [sys.executable, "-c", COMMIT, keyed_store.code("live", ["k"])]
        killed = subprocess.run(
            command, env={**os.environ, **kill_at(place)}, capture_output=True, text=True, check=False
        )
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        assert values(keyed_store, "live") == expected
    swap.commit("query-2")
    assert values(keyed_store, "live") == [7, 8]
    assert not swap.is_made()


def test_a_store_that_was_lost_is_built_anew_from_the_log_and_goes_on_live(
    spark: SparkSession, kafka: Any, config: StreamsConfig, start: Any, processed: Any, keyed_store: Any
) -> None:
    orders = hr.topic("orders", schema="k string not null, amount bigint", partitions=2)
    table = keyed_store.table("totals", ["k"])

    @hr.pipeline(writes=table, reads={"orders": orders})
    def totals(orders: DataFrame) -> DataFrame:
        return orders.groupBy("k").agg(F.sum("amount").alias("v"))

    def produce(*amounts: tuple[str, int]) -> None:
        kafka.produce("orders", [(key, json.dumps({"k": key, "amount": amount})) for key, amount in amounts])

    def replay(*, swap: bool) -> None:
        made = GoLive(pipeline=totals, config=config)
        plan = made.plan()
        made.run(spark, plan, made.prepare(plan, swap=swap))

    def fail() -> None:
        eventually(start(totals, realtime=False).check, "the failure of the query", within_s=WITHIN_S)

    produce(("a", 1), ("a", 2), ("b", 5))
    replay(swap=False)
    assert values(keyed_store, "totals") == [3, 5]
    keyed_store.restore(None)
    replay(swap=True)
    assert values(keyed_store, "totals") == [3, 5]
    assert verify_in(spark, totals, totals.sources(), config).verdict == "equal"
    # Lost once more, before the first batch behind the swap.
    keyed_store.restore(None)
    produce(("b", 1))
    with pytest.raises((PipelineError, PipelineFailed), match="has lost rows of pipeline totals"):
        fail()
    kafka.queries[-1].stop()
    replay(swap=True)
    produce(("c", 7))
    queries = start(totals, realtime=False)
    processed("totals", "orders")
    queries.stop()
    assert values(keyed_store, "totals") == [3, 6, 7]
