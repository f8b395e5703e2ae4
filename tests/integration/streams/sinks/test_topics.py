"""Batches to topics: what a record is made of, and that a batch is written once however often it is tried."""

from __future__ import annotations

import errno
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.errors import PythonException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

import headrace.streams as hr
from headrace.config import StreamsConfig
from headrace.errors import InvalidProducerEpoch, PipelineError, PipelineReplaced
from headrace.streams.admin import ensure_topics
from headrace.streams.claim import CLAIM
from headrace.streams.plan_mode import COMPILED, INTERPRETED, MODE
from headrace.streams.sinks import topics
from headrace.streams.sinks.connection import ShareWriter
from headrace.streams.sinks.context import WriteContext
from headrace.streams.sinks.handed import share_number
from headrace.streams.sinks.ledger import NO_DIGEST, Batch
from headrace.streams.sinks.records import to_records
from headrace.streams.sinks.topics import TopicWriter
from headrace.streams.sinks.writers import topic_writer
from headrace.streams.topic import Topic
from headrace.testing.failpoints import failpoint

pytestmark = pytest.mark.spark

OpenWriter = Callable[..., TopicWriter]
ORDERS = hr.topic("orders", key="id", partitions=4)
LATE = hr.topic("orders.late", key="customer", partitions=1)


@pytest.fixture
def open_writer(kafka: Any, config: StreamsConfig) -> OpenWriter:
    """A writer to the test's broker, as it is after a start."""

    def open_one(topic: Topic = ORDERS, side_outputs: Sequence[Topic] = (), **context: Any) -> TopicWriter:
        ensure_topics(config, {each.name: each.partitions or 1 for each in (topic, *side_outputs)})
        settings = {"pipeline": "copies", "query_id": "q", "guarantee": "exactly-once", **context}
        return topic_writer(topic, WriteContext(bootstrap=kafka.bootstrap, **settings), side_outputs)

    return open_one


def numbered(spark: SparkSession, count: int, *, cuts: int, backwards: bool = False) -> DataFrame:
    """Rows that are the same however they are cut and ordered. Every third has no key."""
    rows = spark.range(count, numPartitions=cuts).select(
        F.when(F.col("id") % 3 > 0, F.concat(F.lit("k"), F.col("id") % 50)).alias("id"),
        F.col("id").alias("number"),
    )
    return rows.orderBy(F.desc("number")) if backwards else rows


def write_some(spark: SparkSession, writer: TopicWriter, rows: DataFrame, tasks: Sequence[int]) -> None:
    """Let only these tasks of batch 0 come to their end, as if the others had been killed."""
    batch = Batch(pipeline="copies", query_id="q", batch_id=0, digest=NO_DIGEST, is_first=True)
    task = replace(writer._task(batch), handed_bytes_max=0)
    answers = writer._shares(to_records(rows, ORDERS, pipeline="copies"), task).rdd
    spark.sparkContext.runJob(answers, list, tasks)


def numbers(records: Sequence[Any]) -> list[int]:
    return sorted(json.loads(record.value)["number"] for record in records)


def test_a_row_says_by_reserved_columns_how_it_is_written(
    spark: SparkSession, kafka: Any, open_writer: OpenWriter
) -> None:
    rows = spark.createDataFrame(
        [
            ("a", "ada", None, {"trace": "1"}, None),
            ("b", "bob", "orders.late", None, False),
            ("c", "cyd", "orders", {}, True),
            ("d", "dan", "orders.late", {"x": "2", "y": None}, True),
        ],
        "id string, customer string, _topic string, _headers map<string,string>, _delete boolean",
    )
    # A third way to write headers, and one that looks like none.
    as_pairs = F.transform(
        F.map_entries("_headers"),
        lambda pair: F.struct(pair["key"].alias("key"), pair["value"].cast("binary").alias("value")),
    )

    writer = open_writer(side_outputs=[LATE])
    assert writer.write(rows, 0) == 4
    assert writer.write(rows.withColumn("_headers", as_pairs).where("id = 'a'"), 1) == 1

    main = kafka.read_count("orders", 3)
    assert Counter((each.key, each.value, tuple(each.headers.items())) for each in main) == {
        (b"a", b'{"id":"a","customer":"ada"}', (("trace", b"1"),)): 2,
        (b"c", None, ()): 1,
    }
    late = {each.key: (each.value, each.headers) for each in kafka.read_count("orders.late", 2)}
    assert late == {b"bob": (b'{"id":"b","customer":"bob"}', {}), b"dan": (None, {"x": b"2", "y": None})}


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ("'a' AS id, 5 AS _topic", "returns _topic as int: make it string"),
        ("'a' AS id, 'yes' AS _delete", "returns _delete as string: make it boolean"),
        (
            "'a' AS id, map('x', 1) AS _headers",
            r"returns _headers as map<string,int>: make it map<string,str",
        ),
        ("'a' AS id, array('x') AS _headers", "returns _headers as array<string>"),
        ("'a' AS name", "key 'id', which is none of the columns"),
        ("CAST(NULL AS string) AS _topic", "returns no columns"),
    ],
)
def test_reserved_columns_that_can_not_be_written_are_refused(
    spark: SparkSession, open_writer: OpenWriter, columns: str, told: str
) -> None:
    with pytest.raises(PipelineError, match=told):
        open_writer().write(spark.sql(f"SELECT {columns}"), 0)


def test_side_outputs_need_a_column_that_says_which(spark: SparkSession, open_writer: OpenWriter) -> None:
    with pytest.raises(PipelineError, match="has side outputs and returns no column _topic"):
        open_writer(side_outputs=[LATE]).write(spark.sql("SELECT 'a' AS id, 'ada' AS customer"), 0)


def test_a_row_for_a_topic_that_is_not_named_fails_its_batch(
    spark: SparkSession, kafka: Any, open_writer: OpenWriter
) -> None:
    rows = spark.sql("SELECT 'a' AS id, 'elsewhere' AS _topic")
    with pytest.raises(
        Exception, match="_topic 'elsewhere', and may write orders: name the topic in side_out"
    ):
        open_writer().write(rows, 0)
    with pytest.raises(PipelineError, match="topic plain has no key by which a record could be deleted"):
        open_writer(hr.topic("plain")).write(spark.sql("SELECT 'a' AS id, true AS _delete"), 0)
    # Nothing is left open that a reader would have to wait for.
    assert open_writer().write(spark.sql("SELECT 'a' AS id"), 0) == 1
    assert len(kafka.read_count("orders", 1)) == 1


@pytest.mark.parametrize(
    ("handed_bytes_max", "error"),
    [pytest.param(0, PythonException, id="by tasks"), pytest.param(2**20, OSError, id="by the driver")],
)
def test_a_batch_that_is_cut_differently_when_it_is_tried_again_comes_out_once(
    spark: SparkSession,
    kafka: Any,
    open_writer: OpenWriter,
    monkeypatch: pytest.MonkeyPatch,
    handed_bytes_max: int,
    error: type[Exception],
) -> None:
    monkeypatch.setattr(topics, "HANDED_BYTES_MAX", handed_bytes_max)
    write_some(spark, open_writer(), numbered(spark, 2_000, cuts=3), [1, 3])
    with failpoint("pipeline.task.produced", error=errno.EIO), pytest.raises(error):
        open_writer().write(numbered(spark, 2_000, cuts=1), 0)

    written = open_writer().write(numbered(spark, 2_000, cuts=7, backwards=True), 0)

    assert 0 < written < 2_000
    again = open_writer()
    assert again.write(numbered(spark, 2_000, cuts=1), 0) == 0
    assert again.write(numbered(spark, 10, cuts=2), 1) == 10
    assert numbers(kafka.read_count("orders", 2_010)) == sorted([*range(2_000), *range(10)])


def test_writers_are_kept_from_batch_to_batch_and_make_way_for_tasks_that_write_large_shares(
    spark: SparkSession, kafka: Any, open_writer: OpenWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, opened = open_writer(), Counter[int]()
    real = ShareWriter.__init__

    def open_share(share_writer: ShareWriter, connector: Any, share: int, **options: Any) -> None:
        opened[share] += 1
        real(share_writer, connector, share, **options)

    small, large = numbered(spark, 40, cuts=1), numbered(spark, 60_000, cuts=2)
    writer.write(small, 0)
    monkeypatch.setattr(ShareWriter, "__init__", open_share)

    assert [writer.write(small, batch_id) for batch_id in (1, 2)] == [40, 40]
    assert not opened
    # The first large one is not expected; it is written by the tasks from the second on.
    assert [writer.write(large, batch_id) for batch_id in (3, 4)] == [60_000, 60_000]
    assert not opened, "tasks have writers of their own, in other processes"
    assert [writer.write(small, batch_id) for batch_id in (5, 6)] == [40, 40]
    assert opened == dict.fromkeys(range(4), 1)

    # Fenced, by whoever it may be, that has not taken over.
    ShareWriter(writer._connector, 2).close()
    assert writer.write(small, 7) == 40
    writer.close()
    assert len(kafka.read_count("orders", 120_240)) == 120_240


def test_a_record_is_in_the_same_share_whether_it_is_sent_there_or_handed_over(spark: SparkSession) -> None:
    rows = numbered(spark, 3_000, cuts=3)
    by = F.xxhash64("number")
    sent = rows.repartition(7, by).select("number", F.spark_partition_id().alias("share"))
    numbers = rows.select("number", share_number(by, 7))
    assert sorted(map(tuple, sent.collect())) == sorted(map(tuple, numbers.collect()))


def test_a_record_is_in_the_same_share_and_bucket_whether_plans_are_compiled_or_interpreted(
    spark: SparkSession,
) -> None:
    number = F.col("id")
    typed: dict[str, Column] = {
        "text": F.concat(F.lit("Zürich \U0001f9c0 "), number),
        "bytes": number.cast("string").cast("binary"),
        "whole": -number,
        "small": number.cast("tinyint"),
        "real": F.array(F.lit(-0.0), F.lit(float("nan")), F.lit(0.1))[(number % 3).cast("int")],
        "exact": number.cast("decimal(30,7)"),
        "is_even": number % 2 == 0,
        "day": F.date_add(F.lit("1969-12-25").cast("date"), number.cast("int")),
        "at": F.timestamp_seconds(number - 50),
        "list": F.array(number, F.lit(None)),
        "pair": F.struct(number, F.lit("x")),
        "nothing": F.when(number > 100, number),
    }
    # Behind an exchange, so that tasks compute it, and no rule of Spark's beforehand.
    rows = spark.range(60).repartition(2).select(*(column.alias(name) for name, column in typed.items()))
    hashes = [hashed(name) for name in typed for hashed in (F.hash, F.xxhash64)]

    found = {}
    for mode in (COMPILED, INTERPRETED):
        spark.conf.set(MODE, mode)
        try:
            found[mode] = sorted(map(tuple, rows.select("whole", *hashes).collect()))
        finally:
            spark.conf.unset(MODE)

    assert found[COMPILED] == found[INTERPRETED]


def test_a_small_batch_after_a_small_one_is_handed_over_and_comes_out_once(
    spark: SparkSession, kafka: Any, open_writer: OpenWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, spread, real = open_writer(), Mock(), TopicWriter._shares

    def shares(writer: TopicWriter, *arguments: Any) -> DataFrame:
        spread()
        return real(writer, *arguments)

    monkeypatch.setattr(TopicWriter, "_shares", shares)
    rows = numbered(spark, 50, cuts=3)
    assert [writer.write(rows, 0), writer.write(rows, 1)] == [50, 50]
    assert spread.call_count == 1

    with failpoint("pipeline.task.produced", error=errno.EIO), pytest.raises(OSError, match="Input/output"):
        writer.write(rows, 2)
    assert writer.write(numbered(spark, 50, cuts=1, backwards=True), 2) <= 50
    assert spread.call_count == 1

    # Whoever comes after a crash spreads first, and finds what was handed over.
    again = open_writer()
    assert again.write(rows, 2) == 0
    assert spread.call_count == 2
    assert numbers(kafka.read_count("orders", 150)) == sorted([*range(50)] * 3)


def test_a_large_batch_that_was_expected_to_be_small_goes_by_files_that_are_gone_afterwards(
    spark: SparkSession, kafka: Any, open_writer: OpenWriter
) -> None:
    writer = open_writer()
    writer.write(numbered(spark, 50, cuts=1), 0)
    directory = writer._directory
    assert directory is not None
    assert writer.write(numbered(spark, 60_000, cuts=2), 1) == 60_000
    assert list(directory.iterdir()) == []
    assert writer._directory is None, "the next one is expected to be large"

    # By then, the tasks' directory was removed once.
    assert [writer.write(numbered(spark, count, cuts=2), 2 + n) for n, count in enumerate((40, 60_000))] == [
        40,
        60_000,
    ]
    assert list(directory.iterdir()) == []
    expected = [number for count in (50, 60_000, 40, 60_000) for number in range(count)]
    assert numbers(kafka.read_count("orders", 120_090)) == sorted(expected)


def test_a_batch_that_was_begun_before_the_topic_grew_is_finished_as_it_was_begun(
    spark: SparkSession, kafka: Any, open_writer: OpenWriter
) -> None:
    write_some(spark, open_writer(), numbered(spark, 500, cuts=2), [0])
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    grown = admin.create_partitions([NewPartitions("orders", 7)])
    grown["orders"].result()

    writer = open_writer()
    assert 0 < writer.write(numbered(spark, 500, cuts=3), 0) < 500
    assert writer._task_count == 4
    later = open_writer()
    assert later.write(numbered(spark, 500, cuts=3), 1) == 500
    assert later._task_count == 7

    assert numbers(kafka.read_count("orders", 1_000)) == sorted([*range(500), *range(500)])


def test_the_ledger_refuses_a_checkpoint_that_was_put_back_and_a_second_run(
    spark: SparkSession, kafka: Any, open_writer: OpenWriter
) -> None:
    rows = numbered(spark, 20, cuts=1)
    first = open_writer()
    for batch_id in range(3):
        first.write(rows, batch_id)

    with pytest.raises(PipelineError, match="batch 2 was written already: its checkpoint was put back"):
        open_writer().write(rows, 0)
    afresh = open_writer(query_id="another")
    assert afresh.write(rows, 0) == 20
    with pytest.raises(PipelineError, match="another run of pipeline copies"):
        first.write(rows, 3)
    assert afresh.write(rows, 1) == 20
    kafka.read_count("orders", 100)


def checkpoint(directory: Path) -> Path:
    """One that knows of a few batches' input."""
    (directory / "offsets").mkdir(parents=True)
    for batch_id in range(9):
        (directory / "offsets" / str(batch_id)).write_text(f"v1 {directory.name} {batch_id}")
    return directory


def test_a_run_that_was_taken_over_from_ends_for_good_and_one_that_was_only_shut_out_goes_on(
    spark: SparkSession, kafka: Any, open_writer: OpenWriter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = numbered(spark, 20, cuts=1)
    older = {"query_id": "older", "checkpoint": checkpoint(tmp_path / "older")}
    newer = {"query_id": "newer", "checkpoint": checkpoint(tmp_path / "newer")}
    real, fenced = TopicWriter._shares, InvalidProducerEpoch("another writer has taken over")
    meanwhile: list[Callable[[], object]] = []

    def shares(writer: TopicWriter, *arguments: Any) -> Any:
        if meanwhile:
            # A task of the batch is shut out by what happens now.
            return SimpleNamespace(
                _jdf=real(writer, *arguments)._jdf, collect=Mock(side_effect=[meanwhile.pop()() and fenced])
            )
        return real(writer, *arguments)

    monkeypatch.setattr(TopicWriter, "_shares", shares)
    # So that each batch is written by its tasks.
    monkeypatch.setattr(topics, "HANDED_BYTES_MAX", 0)
    first = open_writer(**older)
    assert first.write(rows, 0) == 20
    zombie = ShareWriter(first._connector, 0)
    meanwhile.append(lambda: zombie)
    assert first.write(rows, 1) == 20, "nobody has taken over"

    second = open_writer(**newer)
    meanwhile.append(lambda: second.write(rows, 0))
    with pytest.raises(PipelineReplaced, match="another run of pipeline copies has taken over"):
        first.write(rows, 2)
    first.close()
    with pytest.raises(PipelineReplaced, match="another run of pipeline copies has taken over"):
        open_writer(**older).write(rows, 2)
    assert second.write(rows, 1) == 20
    assert open_writer(**newer).write(rows, 2) == 20
    kafka.read_count("orders", 100)

    (tmp_path / "older" / CLAIM).unlink()
    assert open_writer(**older).write(rows, 2) == 20, "it was told to go on all the same"
    with pytest.raises(PipelineReplaced):
        second.write(rows, 3)


def test_keys_keep_their_partition_and_their_order(
    spark: SparkSession, kafka: Any, config: StreamsConfig, open_writer: OpenWriter
) -> None:
    rows = spark.range(3_000, numPartitions=1).select(
        F.concat(F.lit("k"), F.col("id") % 97).alias("id"), F.col("id").alias("number")
    )
    open_writer().write(rows, 0)
    ensure_topics(config, {"by-spark": 4})
    plain = rows.select(F.col("id").alias("key"), F.lit("").alias("value")).dropDuplicates(["key"])
    plain.write.format("kafka").option("kafka.bootstrap.servers", kafka.bootstrap).option(
        "topic", "by-spark"
    ).save()

    records = kafka.read_count("orders", 3_000)

    partitions = {record.key: record.partition for record in kafka.read_count("by-spark", 97)}
    last: dict[bytes, int] = {}
    for record in records:
        number = json.loads(record.value)["number"]
        assert number > last.get(record.key, -1)
        last[record.key] = number
        assert record.partition == partitions[record.key]
