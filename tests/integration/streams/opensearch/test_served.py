"""Batches in an index of a server: to the same effect after any failure, and shut out when they are late."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

import headrace.streams as hr
from headrace.errors import (
    ConfigError,
    PipelineError,
    PipelineFailed,
    PipelineReplaced,
    StoreUnavailable,
    UsageError,
)
from headrace.search import open_index
from headrace.search.server import connected
from headrace.streams.sinks.context import BatchWriter
from headrace.streams.sinks.opensearch.bulk import Action
from headrace.streams.sinks.opensearch.ledger import LEDGER_INDEX, ServedLedger
from headrace.streams.sinks.opensearch.read import pages
from headrace.streams.sinks.opensearch.task import BulkTask, Sender
from headrace.streams.sinks.refused import Refusals, refused_files
from headrace.streams.sinks.stores import store_of
from headrace.testing.failpoints import failpoint

pytestmark = pytest.mark.spark

MakeWriter = Callable[..., BatchWriter]
PLACES = ("pipeline.task.begun", "pipeline.task.produced", "pipeline.task.committed", "pipeline.written")


def numbered(spark: SparkSession, rows: range, partitions: int = 2) -> DataFrame:
    return spark.range(rows.start, rows.stop, 1, partitions).select(
        F.concat(F.lit("k"), F.col("id")).alias("k"), F.col("id").alias("v")
    )


def values(server: Any) -> list[int]:
    return sorted(row["v"] for row in server.search.rows("products").values())


@pytest.fixture
def table(server: Any) -> Any:
    return hr.search_index(server.url, "products", key="k", writers=2)


def test_rows_are_written_read_as_they_were_and_searched(
    spark: SparkSession, server: Any, writer: MakeWriter
) -> None:
    table = hr.search_index(server.url, "products", key=["n", "name"], text="name")
    schema = (
        "n int, name string, sku string, m decimal(38,18), d double, at timestamp, tags array<string>, "
        "s struct<a: int, x: decimal(20,2)>, b binary, ok boolean"
    )
    at = datetime(1890, 1, 1, 0, 0, 0, 1, UTC)
    row = ("A-1", Decimal("-12345678901234567890.123456789012345678"), 1e300, at, ["x", None])
    rest = ((1, Decimal("1.50")), b"\x00\xff", True)
    rows = [(1, "red shoe", *row, *rest), (2, "blue 🦆 boot", *row, *rest), (3, "", *(None,) * 8)]
    given = spark.createDataFrame(rows, schema)
    assert not store_of(table).has_rows(table)
    assert writer(table).write(given, 0) == 3
    found = store_of(table).read(spark, table, given.schema)
    assert found.schema == given.schema
    assert sorted(map(str, found.collect())) == sorted(map(str, given.collect()))
    assert server.search.scrolls == {}, "the server need not keep anything"
    with connected(server.url) as asked:
        assert [len(page) for page in pages(asked, "products", rows_max=1)] == [1, 2]
        reading = pages(asked, "products", rows_max=1)
        next(reading)
        # The answer with the next page is lost on its way, and asked for again.
        for rest in server.search.scrolls.values():
            del rest[0]
        with pytest.raises(StoreUnavailable, match="it has given 2 of 3 rows"):
            list(reading)

    with open_index(server.url, "products") as index:
        (hit,) = index.search("shoe")
        assert (hit.row["n"], hit.row["s"], hit.score) == (1, {"a": 1, "x": 1.5}, 1.0)
        assert index.search("A-1") == []
        assert len(index.search("A-1", fields=["sku"])) == 2
        assert (index.count(), index.count("boot")) == (3, 1)
        row_of_boot = index.get(2, "blue 🦆 boot")
        assert row_of_boot is not None
        assert row_of_boot["b"] == "AP8="
        assert index.get(9, "none") is None
        with pytest.raises(UsageError, match=r"'\(\(' can't be understood: 400 Failed to parse query"):
            index.search("((")
    with open_index(server.url, "others") as others, pytest.raises(UsageError, match="no search index other"):
        others.search("x")


def test_the_last_row_of_a_key_stays_and_deletes_remove(
    spark: SparkSession, server: Any, table: Any, writer: MakeWriter
) -> None:
    orders = writer(table)
    schema = "k string, v int, _delete boolean"
    first = [("a", 1, False), ("b", 2, None), ("c", 3, False), ("a", 4, False)]
    orders.write(spark.createDataFrame(first, schema).coalesce(1), 0)
    assert values(server) == [2, 3, 4]
    second = [("a", None, True), ("none", None, True), ("b", None, True), ("b", 5, False), ("c", None, True)]
    orders.write(spark.createDataFrame(second, schema).coalesce(1), 1)
    assert values(server) == [5]


def test_a_batch_that_fails_anywhere_and_is_cut_differently_afterwards_is_there_once(
    spark: SparkSession, server: Any, table: Any, writer: MakeWriter
) -> None:
    for batch_id, place in enumerate(PLACES):
        rows = range(batch_id * 10, batch_id * 10 + 10)
        with failpoint(place, error=errno.EIO), pytest.raises(Exception, match=r"failpoint|EIO"):
            writer(table).write(numbered(spark, rows, partitions=2), batch_id)
        writer(table).write(numbered(spark, rows, partitions=5), batch_id)
        assert values(server) == list(range(rows.stop))
    assert writer(table).write(numbered(spark, range(999, 1000)), len(PLACES) - 1) == 0
    assert values(server) == list(range(rows.stop))


def test_a_run_that_was_replaced_writes_no_more_and_what_it_sends_late_is_refused(
    spark: SparkSession, server: Any, table: Any, writer: MakeWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    old: Any = writer(table)
    old.write(numbered(spark, range(5)), 4)
    with pytest.raises(PipelineError, match="checkpoint was put back"):
        writer(table).write(numbered(spark, range(5)), 3)
    newer = writer(table, query_id="query-2")
    newer.write(numbered(spark, range(5)).withColumn("v", F.col("v") + 100), 0)
    with pytest.raises(PipelineReplaced, match="another run of pipeline orders has taken over"):
        old.write(numbered(spark, range(5)), 5)
    # Its tasks find out, too, where the driver has not noticed yet.
    monkeypatch.setattr(old, "_is_written", lambda *_: False)
    with pytest.raises(PipelineReplaced):
        old.write(numbered(spark, range(5)), 5)
    assert values(server) == [100, 101, 102, 103, 104]


def test_who_begins_later_has_newer_versions_whatever_his_pipeline_and_who_is_behind_says_so(
    spark: SparkSession, server: Any, table: Any, writer: MakeWriter
) -> None:
    for batch_id in range(3):
        writer(table).write(numbered(spark, range(3)), batch_id)
    repaired = numbered(spark, range(3)).withColumn("v", F.col("v") + 10)
    for query_id in ("repair-1", "repair-2", "repair-3", "repair-4"):
        writer(table, pipeline="orders.repair", query_id=query_id).write(repaired, 0)
        assert values(server) == [10, 11, 12]
    orders = writer(table)
    orders.write(numbered(spark, range(3)), 3)
    assert values(server) == [0, 1, 2]
    writer(table, pipeline="others", query_id="others").write(repaired, 0)
    behind = "newer rows than those that pipeline orders is about to write: another pipeline writes it"
    with pytest.raises(PipelineError, match=behind):
        orders.write(numbered(spark, range(3)), 4)
    assert values(server) == [10, 11, 12]
    writer(table).write(numbered(spark, range(3)), 4)
    assert values(server) == [0, 1, 2]
    # Nobody knows any more which numbers runs have had.
    del server.search.indexes[LEDGER_INDEX]
    with pytest.raises(PipelineError, match=behind):
        writer(table, query_id="query-2").write(repaired, 0)


def test_what_comes_late_changes_nothing_not_even_what_was_deleted(
    spark: SparkSession, server: Any, table: Any, writer: MakeWriter
) -> None:
    rows = [("a", 1, False), ("b", None, True)]
    writer(table).write(spark.createDataFrame(rows, "k string, v int, _delete boolean"), 3)
    task = BulkTask(
        url=server.url,
        ledger=ServedLedger(pipeline="orders", index="products"),
        generation="products-g000001",
        run=1,
        batch_id=2,
        key=("k",),
        columns=("k", "_row"),
        refused=None,
    )
    late = [Action(id=f'["{key}"]', row='{"v": 9}') for key in "ab"] + [Action(id='["a"]', row=None)]
    with connected(server.url) as asked:
        refusals = Refusals(files=None, batch_id=2, part="0")
        sender = Sender(server=asked, task=task, refusals=refusals)
        with pytest.raises(PipelineFailed, match="comes late: batch 2 is written"):
            sender.send(late)
        with pytest.raises(PipelineReplaced):
            replace(sender, task=replace(task, run=2)).send(late)
        assert values(server) == [1]


def test_an_index_that_has_lost_rows_is_noticed(
    spark: SparkSession, server: Any, table: Any, writer: MakeWriter
) -> None:
    for batch_id in range(3):
        writer(table).write(numbered(spark, range(batch_id)), batch_id)
    search = server.search
    ledger = search.indexes[LEDGER_INDEX].documents['["orders","products"]']
    saved, entry = ledger.text, json.loads(ledger.text)
    assert entry["next_batch_id"] == 3, "also of a batch without rows"
    ledger.text = json.dumps(entry | {"next_batch_id": 1})
    with pytest.raises(PipelineError, match=r"has lost rows .* the last batch that is there is 0"):
        writer(table).write(numbered(spark, range(3)), 3)
    ledger.text = saved
    generation = search.indexes["products-g000001"]
    for changed in ({"history": {"history": {"uuid": "restored into it"}}}, {"uuid": "made anew"}):
        before = vars(generation).copy()
        vars(generation).update(changed)
        with pytest.raises(PipelineError, match="is another than the one that was written"):
            writer(table).write(numbered(spark, range(3)), 3)
        vars(generation).update(before)
    generation.uuid = "made anew"
    running = writer(table, query_id="query-2")
    running.write(numbered(spark, range(3)), 0)
    del search.indexes["products-g000001"]
    with pytest.raises(PipelineError, match=r"has lost rows .* products-g000001 is gone"):
        running.write(numbered(spark, range(3)), 1)
    assert list(search.indexes) == [LEDGER_INDEX], "nothing is made by rows that come too late"
    with pytest.raises(PipelineError, match=r"has lost rows .*: it is gone"):
        writer(table, query_id="query-2").write(numbered(spark, range(3)), 1)


def test_refused_rows_are_kept_aside_and_a_busy_server_is_asked_again(
    spark: SparkSession, server: Any, table: Any, writer: MakeWriter, tmp_path: Path
) -> None:
    search = server.search
    search.refusal = lambda row: "v is 3" if json.loads(row)["v"] == 3 else None
    search.busy, search.busy_rows, search.bulk_bytes_max = 2, 3, 400
    rows = numbered(spark, range(20)).withColumn("k", F.expr("if(v = 7, repeat('x', 600), k)"))
    # It was cut off before, with more writers.
    cut_off = Refusals(files=refused_files(tmp_path / "checkpoint-query-1"), batch_id=0, part="7")
    cut_off.add("k3", '{"v": 3}', "v is 3")
    cut_off.flush()
    writer(table).write(rows, 0)
    assert values(server) == [number for number in range(20) if number not in {3, 7}]
    files = refused_files(tmp_path / "checkpoint-query-1")
    assert files is not None
    refused = [row for part in files.parts(0) for row in pq.read_table(part).to_pylist()]
    assert sorted(json.loads(row["row"])["v"] for row in refused) == [3, 7]
    causes = {json.loads(row["row"])["v"]: row["cause"] for row in refused}
    assert causes[3].endswith("failed to parse; v is 3")
    assert "512 bytes" in causes[7]
    with pytest.raises(PipelineFailed, match="a row is refused"):
        writer(table, query_id="query-2", has_checkpoint=False).write(rows, 0)


def test_what_does_not_fit_is_refused_before_anything_is_written(
    spark: SparkSession, server: Any, table: Any, writer: MakeWriter
) -> None:
    rows = numbered(spark, range(3))
    writer(table).write(rows, 0)
    with pytest.raises(PipelineError, match=r"more is new.*--swap"):
        writer(table).write(rows.withColumn("more", F.lit(1)), 1)
    with pytest.raises(PipelineFailed, match="key column k is null"):
        writer(table).write(rows.withColumn("k", F.lit(None).cast("string")), 1)
    other = hr.search_index(server.url, "others", key="k")
    with pytest.raises(PipelineError, match="'_v', which can't be the name"):
        writer(other, query_id="other").write(rows.withColumnRenamed("v", "_v"), 0)
    taken = hr.search_index(server.url, "products-g000001", key="k")
    with pytest.raises(PipelineError, match="is not an alias of one index"):
        writer(taken, query_id="other").write(rows, 0)
    stranger = hr.search_index(server.url.replace("open", "shut"), "products", key="k")
    with pytest.raises(ConfigError, match="401 who are you") as refused:
        writer(stranger, query_id="other").write(rows, 0)
    assert "sesame" not in str(refused.value) + repr(stranger)


def test_a_swap_is_one_request_shuts_out_who_wrote_and_can_be_repeated(
    spark: SparkSession, server: Any, table: Any, writer: MakeWriter
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
    assert values(server) == list(range(5)), "nobody sees what is staged"
    with failpoint("replay.swap", error=errno.EIO), pytest.raises(Exception, match=r"failpoint|EIO"):
        swap.commit("replay")
    assert values(server) == list(range(5))
    with pytest.raises(PipelineReplaced):
        old.write(numbered(spark, range(5, 9)), 1)
    with failpoint("replay.swapped", error=errno.EIO), pytest.raises(Exception, match=r"failpoint|EIO"):
        swap.commit("replay")
    assert values(server) == list(range(3, 8))
    swap.commit("replay")
    assert not swap.is_made()
    assert sorted(server.search.indexes) == [LEDGER_INDEX, "products-swap-abc-g000001"]
    assert set(server.search.rows(LEDGER_INDEX)) == {'["orders","products"]', '["products"]'}

    assert writer(table, query_id="replay").write(wider, 0) == 0, "the replay's ledger goes on"
    writer(table, query_id="replay").write(wider.where("v = 3").withColumn("v", F.lit(33).cast("long")), 1)
    assert values(server) == [4, 5, 6, 7, 33]
    with pytest.raises(PipelineError, match="are gone"):
        store_of(table).swap(table, pipeline="orders", swap_id="gone").commit("replay")
