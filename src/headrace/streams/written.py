"""What a pipeline has written, and what it computes, as records that can be compared.

Records of topics are what they are. Rows of tables become records of the same form: the table's name for the
topic, its key columns as the key, all columns of the pipeline as a JSON value.

A table with a key holds the last row of each. Of rows that were treated one by one, the last is the one with
the highest offset, as long as all rows of the key came from one partition. Where they came from several, or
through a shuffle, nobody knows any more which came last: then the table must hold one of them. A table
without a key holds all rows; where an aggregate has written each update, the last ones must be among them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows
from pyspark.sql.types import StructType

from headrace.config import StreamsConfig
from headrace.streams.admin import Cluster
from headrace.streams.batch_source import read_records
from headrace.streams.describe import plan_of
from headrace.streams.log_offsets import end_offsets, existing_places, first_offsets, results_deleted
from headrace.streams.pipeline import Pipeline
from headrace.streams.plans.results import Results, is_row_by_row
from headrace.streams.sinks.records import DELETE_COLUMN, JSON_OPTIONS, to_records
from headrace.streams.sinks.stores import store_of
from headrace.streams.sinks.table_rows import table_rows
from headrace.streams.sinks.tasks import told
from headrace.streams.spans import Span
from headrace.streams.stores import Table
from headrace.streams.tallies import are_close, comparable, with_parts
from headrace.streams.topic import METADATA_COLUMN, Topic

SHARES: Final = 8
"""Into how many shares rows are spread to find the last of each key."""
_HEADERS: Final = "array<struct<key: string, value: binary>>"


class Written(Protocol):
    """What was written, as it was at one moment."""

    @property
    def records(self) -> DataFrame:
        """With topic, key, value, headers, and their place."""

    @property
    def keys(self) -> Collection[str]:
        """The columns that make keys."""

    def computed(self, rows: DataFrame, results: Results) -> tuple[DataFrame, Results]:
        """Rows of the pipeline as records, and how they compare with those that were written."""

    def deleted(self) -> str | None:
        """How results may have been deleted since; None if none can have been."""

    def remarks(self, rows: DataFrame, results: Results) -> Sequence[str]:
        """What a reader must know of how rows of the pipeline were compared."""


def read_written(
    session: SparkSession, pipeline: Pipeline[Any], config: StreamsConfig, schema: StructType, held: ExitStack
) -> Written:
    """What is there now. `schema` is that of the pipeline's rows; `held` lets go of what was read."""
    target = pipeline.writes
    if isinstance(target, Topic):
        cluster = Cluster(config)
        places = existing_places(cluster, [topic.name for topic in pipeline.outputs])
        span = Span(starts=first_offsets(cluster, places), ends=end_offsets(cluster, places))
        return WrittenTopics(session=session, pipeline=pipeline, config=config, span=span)
    store = store_of(target)
    store.refuse_missing(target, pipeline=pipeline.name)
    columns = [field for field in schema.fields if field.name not in {METADATA_COLUMN, DELETE_COLUMN}]
    rows = store.read(session, target, StructType(columns)).persist(StorageLevel.DISK_ONLY)
    held.callback(rows.unpersist)
    with told():
        # Read it now, once: while it is compared, the pipeline may go on.
        rows.count()
    return WrittenTable(pipeline=pipeline, table=target, rows=rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenTopics:
    """The topics of a pipeline, up to where they ended."""

    session: SparkSession
    pipeline: Pipeline[Any]
    config: StreamsConfig
    span: Span

    @property
    def records(self) -> DataFrame:
        """The committed records."""
        return read_records(self.session, self.span, self.config)

    @property
    def keys(self) -> set[str]:
        """The columns that the topics are described with."""
        return {name for topic in self.pipeline.outputs for name in topic.key}

    def computed(self, rows: DataFrame, results: Results) -> tuple[DataFrame, Results]:
        """The records that the rows are written as."""
        pipeline, topic = self.pipeline, self.pipeline.writes
        assert isinstance(topic, Topic)
        records = to_records(rows, topic, pipeline=pipeline.name, side_outputs=pipeline.side_outputs)
        if DELETE_COLUMN not in rows.columns or results.way != "latest":
            return records, results
        if self._tells_results_apart(results):
            # A tombstone has no columns to tell it by, and needs none: the record's key says it all.
            return records, replace(results, identity=())
        return records.where(F.col("value").isNotNull()), results

    def deleted(self) -> str | None:
        """By retention or compaction."""
        return results_deleted(self.config, self.span)

    def remarks(self, rows: DataFrame, results: Results) -> list[str]:
        """That updates were not compared, and what tombstones leave open."""
        if results.way != "latest":
            return []
        by = f" by {', '.join(results.identity)}" if results.identity else ""
        remarks = [f"the last result of each key{by} was compared: results are updated again and again"]
        if DELETE_COLUMN in rows.columns and results.identity:
            remarks.append(f"tombstones were not compared: they have a key, and results are told apart{by}")
        return remarks

    def _tells_results_apart(self, results: Results) -> bool:
        """Whether there is one result for each key of a record."""
        return all(set(results.identity) == set(topic.key) for topic in self.pipeline.outputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenTable:
    """The rows of a table."""

    pipeline: Pipeline[Any]
    table: Table
    rows: DataFrame
    """Those columns that the pipeline returns."""

    @property
    def records(self) -> DataFrame:
        """The rows as records, all in one place: a key has one."""
        return _records(self.rows, self.table).select(
            "*",
            F.lit(0).alias("partition"),
            F.lit(0).cast("bigint").alias("offset"),
            F.lit(None).cast("timestamp").alias("timestamp"),
        )

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns that make the table's key."""
        return self.table.key

    def computed(self, rows: DataFrame, results: Results) -> tuple[DataFrame, Results]:
        """What the table should hold."""
        is_ordered = is_row_by_row(plan_of(rows))
        own = table_rows(rows, self.table, pipeline=self.pipeline.name)
        if not self.table.key:
            way = results.way if results.way == "rows" else "contained"
            return _records(own, self.table), replace(results, way=way)
        results = replace(results, way="latest", identity=())
        candidates = _records(own, self.table).withColumn("_origin", F.spark_partition_id())
        return _last_of_each_key(candidates, self.records, results, is_ordered=is_ordered), results

    def deleted(self) -> str | None:
        """Nothing but a pipeline is expected to delete rows of its table."""
        return None

    def remarks(self, rows: DataFrame, results: Results) -> list[str]:  # noqa: ARG002 - see Written
        """How rows of a key were compared."""
        if not self.table.key:
            return []
        by = ", ".join(self.table.key)
        remark = (
            f"the row of each {by} was compared; where several of them could be the last, because they come "
            "from several partitions, whether it is one of these"
        )
        return [remark]


def last_records(rows: DataFrame, table: Table) -> DataFrame:
    """The record of each key that comes last among the rows; none of those that are deleted."""
    numbered = _records(rows, table).withColumn("_number", F.monotonically_increasing_id())
    last = numbered.groupBy("key").agg(F.max_by(F.struct("value"), "_number").alias("last"))
    return last.select("key", F.col("last.value").alias("value")).where(F.col("value").isNotNull())


def _records(rows: DataFrame, table: Table) -> DataFrame:
    names = [name for name in rows.columns if name != DELETE_COLUMN]
    value = F.to_json(F.struct(*(rows[f"`{name}`"] for name in names)), JSON_OPTIONS).cast("binary")
    if DELETE_COLUMN in rows.columns:
        value = F.when(~rows[DELETE_COLUMN], value)
    key = F.to_json(F.struct(*(rows[f"`{name}`"] for name in table.key)), JSON_OPTIONS).cast("binary")
    return rows.select(
        F.lit(table.name).alias("topic"),
        (key if table.key else F.lit(None).cast("binary")).alias("key"),
        value.alias("value"),
        F.lit(None).cast(_HEADERS).alias("headers"),
    )


def _last_of_each_key(
    candidates: DataFrame, written: DataFrame, results: Results, *, is_ordered: bool
) -> DataFrame:
    """The record of each key that should be there: see above. Those that delete have no value."""
    spread = candidates.repartition(SHARES, F.xxhash64("key")).withColumn(
        "_number", F.monotonically_increasing_id()
    )
    several = F.lit(not is_ordered) | (F.min("_origin") != F.max("_origin"))
    last = spread.groupBy("topic", "key").agg(
        F.max_by(F.struct("value"), "_number").alias("_last"),
        ((F.count("*") > 1) & several).alias("_open"),
        F.bool_or(F.col("value").isNull()).alias("_deletes"),
    )
    there = with_parts(comparable(written, results), "body", results).select("key", "exact", "numbers")
    body = with_parts(comparable(candidates, results), "body", results)
    same: list[Column] = [
        body["key"] == there["key"],
        body["exact"] == there["exact"],
        are_close(body["numbers"], there["numbers"]),
    ]
    hits = body.join(there, same, "left_semi").groupBy("key").agg(F.any_value("value").alias("_hit"))
    keys = there.select("key").distinct().withColumn("_there", F.lit(True))
    chosen = last.join(hits, "key", "left").join(keys, "key", "left")
    is_gone = F.col("_open") & F.col("_deletes") & F.col("_there").isNull()
    is_hit = F.col("_open") & F.col("_hit").isNotNull()
    value = F.when(is_hit, F.col("_hit")).when(~is_gone, F.col("_last.value"))
    return chosen.select(
        "topic", "key", value.alias("value"), F.lit(None).cast(_HEADERS).alias("headers")
    ).where(F.col("value").isNotNull())
