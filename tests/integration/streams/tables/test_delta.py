"""Batches in a Delta table: each once, after any failure, and refused where they don't fit."""

from __future__ import annotations

import base64
import errno
import json
import re
import struct
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

import headrace.streams as hr
from headrace.errors import PipelineError, PipelineFailed, PipelineReplaced, StoreUnavailable
from headrace.streams.sinks.context import BatchWriter
from headrace.streams.sinks.delta import merge as merging
from headrace.streams.sinks.stores import store_of
from headrace.testing.failpoints import failpoint

pytestmark = pytest.mark.spark

MakeWriter = Callable[..., BatchWriter]
PLACES = (
    "pipeline.batch",
    "pipeline.task.begun",
    "pipeline.task.produced",
    "pipeline.task.committed",
    "pipeline.written",
)


def numbered(spark: SparkSession, rows: range, partitions: int = 3) -> DataFrame:
    return spark.range(rows.start, rows.stop, 1, partitions).select(
        F.concat(F.lit("k"), F.col("id")).alias("k"), F.col("id").alias("v")
    )


def values(spark: SparkSession, path: Path) -> list[int]:
    return sorted(row["v"] for row in hr.read_delta(spark, path).collect())


def test_rows_come_out_as_they_went_in_by_their_types(
    spark: SparkSession, tmp_path: Path, writer: MakeWriter
) -> None:
    schema = (
        "t string, b boolean, y tinyint, i int, l bigint, d double, m decimal(38,18), x binary, day date, "
        "at timestamp, s struct<a: int not null, b: array<string>>, g map<string, double>, `a.b` int"
    )
    at = datetime(2026, 1, 2, tzinfo=UTC)
    row = ("", True, 1, 2, 3, 0.5, None, b"\0", None, at, (1, ["x"]), {"k": 1.0}, 7)
    frame = spark.createDataFrame([row, (None,) * len(row)], schema)
    path = tmp_path / "with space"
    assert writer(hr.delta_table(path)).write(frame, 0) == 2
    assert sorted(map(str, hr.read_delta(spark, path).collect())) == sorted(map(str, frame.collect()))


def test_a_column_whose_values_are_known_to_have_no_nulls_is_read_by_the_pipelines_types(
    spark: SparkSession, tmp_path: Path, writer: MakeWriter
) -> None:
    target = hr.delta_table(tmp_path / "lists", key="k")
    rows = numbered(spark, range(2)).withColumn("both", F.array("v", F.lit(7)))
    writer(target).write(rows, 0)
    found = store_of(target).read(spark, target, rows.schema)
    assert sorted(map(tuple, found.collect())) == sorted(map(tuple, rows.collect()))


def test_the_last_row_of_a_key_stays_and_deletes_remove(
    spark: SparkSession, tmp_path: Path, writer: MakeWriter
) -> None:
    target = hr.delta_table(tmp_path / "prices", key=["shop", "Item"])
    orders = writer(target)
    schema = "shop int, Item string, v int, _delete boolean"
    first = [(1, "a", 1, False), (1, "b", 2, None), (2, "a", 3, False), (1, "a", 4, False)]
    orders.write(spark.createDataFrame(first, schema).coalesce(1), 0)
    assert values(spark, target.path) == [2, 3, 4]
    second = [
        *((1, "a", None, True), (9, "none", None, True)),
        *((1, "b", None, True), (1, "b", 5, False), (2, "a", 6, False), (2, "a", None, True)),
    ]
    orders.write(spark.createDataFrame(second, schema).coalesce(1), 1)
    assert values(spark, target.path) == [5]
    assert not list((target.path / "_headrace").rglob("*.parquet"))


@pytest.mark.parametrize("key", [(), ("k",)], ids=["append", "upsert"])
def test_a_batch_that_fails_anywhere_and_is_cut_differently_afterwards_is_written_once(
    spark: SparkSession, tmp_path: Path, writer: MakeWriter, key: tuple[str, ...]
) -> None:
    target = hr.delta_table(tmp_path / "once", key=key, writers=2)
    for batch_id, place in enumerate(PLACES):
        rows = range(batch_id * 10, batch_id * 10 + 10)
        with failpoint(place, error=errno.EIO), pytest.raises(Exception, match=r"failpoint|EIO"):
            writer(target).write(numbered(spark, rows, partitions=2), batch_id)
        writer(target).write(numbered(spark, rows, partitions=5), batch_id)
        assert values(spark, target.path) == list(range(rows.stop))


def test_a_crash_between_files_and_commit_leaves_files_that_a_full_vacuum_takes(
    spark: SparkSession, tmp_path: Path, writer: MakeWriter
) -> None:
    target = hr.delta_table(tmp_path / "orphans")
    with (
        failpoint("pipeline.task.produced", error=errno.EIO),
        pytest.raises(Exception, match=r"EIO|failpoint"),
    ):
        writer(target).write(numbered(spark, range(5)), 0)
    assert values(spark, target.path) == []
    assert list(target.path.glob("*.parquet"))
    writer(target).write(numbered(spark, range(5)), 0)
    DeltaTable(target.path).vacuum(
        retention_hours=0, dry_run=False, enforce_retention_duration=False, full=True
    )
    kept = {path.name for path in target.path.glob("*.parquet")}
    assert kept == {Path(uri).name for uri in DeltaTable(target.path).file_uris()}
    assert values(spark, target.path) == list(range(5))


def test_a_new_checkpoint_begins_afresh_and_one_that_was_put_back_or_replaced_is_refused(
    spark: SparkSession, tmp_path: Path, writer: MakeWriter
) -> None:
    target = hr.delta_table(tmp_path / "again")
    old = writer(target)
    assert old.write(numbered(spark, range(10)), 4) == 10
    assert writer(target).write(numbered(spark, range(10)), 4) == 0
    with pytest.raises(PipelineError, match="checkpoint was put back"):
        writer(target).write(numbered(spark, range(10)), 3)
    assert writer(target, query_id="query-2").write(numbered(spark, range(10)), 0) == 10
    with pytest.raises(PipelineError, match="another run of pipeline orders has taken over"):
        old.write(numbered(spark, range(10)), 5)
    assert len(values(spark, target.path)) == 20


@pytest.mark.parametrize(("rows", "batch_id"), [(range(10), 0), (range(0), 1)], ids=["skipped", "empty"])
def test_a_run_whose_first_batch_wrote_nothing_is_replaced_all_the_same(
    spark: SparkSession, tmp_path: Path, writer: MakeWriter, rows: range, batch_id: int
) -> None:
    target = hr.delta_table(tmp_path / "idle")
    assert writer(target).write(numbered(spark, range(10)), 0) == 10
    idle = writer(target)
    assert idle.write(numbered(spark, rows), batch_id) == 0
    newer = writer(target, query_id="query-2")
    assert newer.write(numbered(spark, range(10, 20)), 0) == 10
    with pytest.raises(PipelineReplaced, match="another run of pipeline orders has taken over"):
        idle.write(numbered(spark, range(20, 30)), 2)
    assert newer.write(numbered(spark, range(20, 30)), 1) == 10
    assert values(spark, target.path) == list(range(30))


def test_a_commit_that_loses_against_others_is_tried_again_and_not_for_ever(
    spark: SparkSession, tmp_path: Path, writer: MakeWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = hr.delta_table(tmp_path / "busy", key=["k"])
    merge, losses = merging.merge, [CommitFailedError("others were quicker")] * 2

    def losing(*arguments: Any) -> None:
        if losses:
            raise losses.pop()
        merge(*arguments)

    monkeypatch.setattr(merging, "merge", losing)
    writer(target).write(numbered(spark, range(5)), 0)
    assert values(spark, target.path) == list(range(5))
    losses.extend([CommitFailedError("others were quicker")] * 99)
    with pytest.raises(StoreUnavailable, match="others were quicker"):
        writer(target).write(numbered(spark, range(5, 9)), 1)
    assert values(spark, target.path) == list(range(5))


def test_rows_that_do_not_fit_the_table_are_refused_with_all_reasons(
    spark: SparkSession, tmp_path: Path, writer: MakeWriter
) -> None:
    target = hr.delta_table(tmp_path / "fixed")
    writer(target).write(numbered(spark, range(3)), 0)
    rows = numbered(spark, range(3))
    with pytest.raises(PipelineError) as refused:
        writer(target).write(rows.withColumns({"v": F.lit("text"), "more": F.lit(1)}), 1)
    assert "the table has no column more" in str(refused.value)
    assert "column v is int64, and the pipeline returns string" in str(refused.value)
    keyed = hr.delta_table(tmp_path / "fixed", key=["k"])
    with pytest.raises(PipelineFailed, match="key column k is null"):
        writer(keyed).write(rows.withColumn("k", F.lit(None).cast("string")), 1)
    assert writer(target).write(rows.drop("k"), 1) == 3, "a missing column is null"
    assert hr.read_delta(spark, target.path).where("k is null").count() == 3


def test_a_partitioned_table_is_read_by_the_values_in_its_log(spark: SparkSession, tmp_path: Path) -> None:
    path, at = tmp_path / "with space", datetime(2026, 1, 2, 3, 4, 5, 6, UTC)
    rows = [(1, "a b", at, 1.5), (2, "c/d=e%", at, 2.5), (3, None, None, 3.5), (4, "a b", at, 4.5)]
    schema = pa.schema(
        [("n", pa.int64()), ("kind", pa.string()), ("at", pa.timestamp("us", "UTC")), ("v", pa.float64())]
    )
    columns = dict(zip(schema.names, zip(*rows, strict=True), strict=True))
    write_deltalake(path, pa.table(columns, schema), partition_by=["kind", "at"])

    frame = hr.read_delta(spark, path)

    assert frame.columns == schema.names
    found = frame.withColumn("at", F.unix_micros("at")).orderBy("n").collect()
    at_us = round(at.timestamp() * 1_000_000)
    assert [tuple(row) for row in found] == [
        (n, kind, None if moment is None else at_us, v) for n, kind, moment, v in rows
    ]


MAPPED = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "c1"}
# Rows 3 and 7, as Delta writes them into its log: an array of one roaring bitmap of one container.
BITMAP = struct.pack("<iqiiiHHiHH", 1681511377, 1, 0, 12346, 1, 0, 1, 16, 3, 7)
Z85 = bytes.maketrans(
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~",
    b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#",
)
DELETED = {
    "storageType": "i",
    "pathOrInlineDv": base64.b85encode(BITMAP).translate(Z85).decode(),
    "sizeInBytes": len(BITMAP),
    "cardinality": 2,
}


@pytest.mark.parametrize(
    ("features", "changes", "reason"),
    [
        (["columnMapping"], {"configuration": {"delta.columnMapping.mode": "name"}}, "(column mapping)"),
        (["deletionVectors"], {"deletionVector": DELETED}, "(deletion vectors)"),
        (["typeWidening"], {}, "the feature typeWidening, which is not known here"),
        (["nonsense"], {}, "Feature 'nonsense' is not supported"),
    ],
)
def test_a_table_whose_files_do_not_tell_its_rows_is_refused(
    spark: SparkSession, tmp_path: Path, features: list[str], changes: dict[str, Any], reason: str
) -> None:
    write_deltalake(tmp_path, pa.table({"n": list(range(50))}))
    (log,) = (tmp_path / "_delta_log").glob("*.json")
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        if "protocol" in action:
            named = {"readerFeatures": features, "writerFeatures": features}
            action["protocol"] = {"minReaderVersion": 3, "minWriterVersion": 7, **named}
        if "metaData" in action and "configuration" in changes:
            schema = json.loads(action["metaData"]["schemaString"])
            schema["fields"][0]["metadata"] = MAPPED
            action["metaData"] |= {"schemaString": json.dumps(schema), **changes}
        if "add" in action and "deletionVector" in changes:
            action["add"] |= changes
    log.write_text("\n".join(map(json.dumps, actions)))

    with pytest.raises(PipelineError, match=re.escape(reason)):
        hr.read_delta(spark, tmp_path)
