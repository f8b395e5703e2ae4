"""Put right what differs in a store from what its pipeline computes again from the log.

Keys are divided into ranges by their hash. The rows of each range are added up, as they are and as they
should be; only where the sums differ, row is compared with row. Those that differ are written, or removed, by
the store's own writer, under a name and with a ledger of its own, so that the pipeline goes on as if nothing
had happened. It must not run meanwhile, and can't: the checkpoint is locked.

Before that, a run of the pipeline is begun that writes nothing: it fails where the store has not got what the
checkpoint says was written, or belongs to another checkpoint by now, whose rows would be removed. Whatever
the store refuses is left out, as in the pipeline itself, and told.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType

from headrace.config import StreamsConfig
from headrace.errors import PipelineError
from headrace.streams.checkpoint import checkpoint_path, lock_checkpoint
from headrace.streams.circumstances import targets
from headrace.streams.client_options import portable_options
from headrace.streams.go_live import refuse_unfinished
from headrace.streams.pipeline import Pipeline
from headrace.streams.plan import make_plan
from headrace.streams.progress_log import read_progress_log
from headrace.streams.session import start_session, stop_session
from headrace.streams.sinks.context import WriteContext, read_query_id
from headrace.streams.sinks.records import DELETE_COLUMN, JSON_OPTIONS
from headrace.streams.sinks.refused import SHOWN_MAX, refused_files
from headrace.streams.sinks.stores import store_of
from headrace.streams.stores import Table
from headrace.streams.topic import Topic
from headrace.streams.verify import Recomputed, recomputed
from headrace.streams.workspace import workspace

RANGE_COUNT: Final = 1024
REPAIR: Final = "repair"
# What does not come back as it was is an error, rather than a row of nulls.
_READING: Final = {**JSON_OPTIONS, "mode": "FAILFAST"}

OnStep = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Repaired:
    """What was found, and put right."""

    row_count: int
    """How many rows there should be."""
    range_count: int
    different_ranges: int
    written_count: int
    removed_count: int
    refused_count: int = 0
    """How many of those to be written the store has not taken."""


def repair(
    pipeline: Pipeline[Any],
    config: StreamsConfig,
    *,
    others: Sequence[Pipeline[Any]] = (),
    dry_run: bool = False,
    on_step: OnStep = lambda _line: None,
) -> Repaired:
    """Compare, and put right what differs; with `dry_run`, only say what that would be."""
    _store_of(pipeline, others)
    with ExitStack() as held:
        work_dir = held.enter_context(workspace(config.data_dir))
        on_step("starting Spark")
        session = start_session(config, slots=os.cpu_count() or 1, work_dir=work_dir)
        held.callback(stop_session, session)
        return repair_in(session, pipeline, config, others=others, dry_run=dry_run, on_step=on_step)


def repair_in(
    session: SparkSession,
    pipeline: Pipeline[Any],
    config: StreamsConfig,
    *,
    others: Sequence[Pipeline[Any]] = (),
    dry_run: bool = False,
    on_step: OnStep = lambda _line: None,
) -> Repaired:
    """The same in a session that runs already."""
    store = _store_of(pipeline, others)
    sources = make_plan([pipeline]).sources[pipeline.name]
    with ExitStack() as held:
        lock_checkpoint(config, pipeline.name, held)
        refuse_unfinished(config, pipeline.name)
        found = recomputed(session, pipeline, sources, config, on_step=on_step, held=held)
        _refuse_types(found.schema, store)
        refused = held.enter_context(workspace(config.data_dir))
        made = _Repair(pipeline=pipeline, config=config, store=store, refused=refused, on_step=on_step)
        return made.run(found, dry_run=dry_run)


def _store_of(pipeline: Pipeline[Any], others: Sequence[Pipeline[Any]]) -> Table:
    target = pipeline.writes
    if isinstance(target, Topic):
        raise PipelineError(
            f"pipeline {pipeline.name} writes the topic {target.name}, which is a log: what is in it stays. "
            "Write it anew with `headrace replay --swap`"
        )
    if not target.key:
        raise PipelineError(
            f"the {target.noun} {target.name} has no key, so that nobody can tell which row should be "
            "another: write it anew with `headrace views rebuild`"
        )
    sharing = [
        other.name for other in others if other.name != pipeline.name and targets(other) & targets(pipeline)
    ]
    if sharing:
        raise PipelineError(
            f"the {target.noun} {target.name} is also written by {', '.join(sharing)}, whose rows would be "
            "removed: nobody but the pipeline may write it"
        )
    return target


def _refuse_types(schema: StructType, store: Table) -> None:
    """Raise for what JSON, in which rows are compared, does not bring back."""
    for field in schema.fields:
        if _has_other_keys(field.dataType):
            raise PipelineError(
                f"the {store.noun} {store.name} can't be repaired, because the column {field.name} has a map "
                f"whose keys are not text ({field.dataType.simpleString()}): build it anew with `headrace "
                "views rebuild`"
            )


def _has_other_keys(kind: DataType) -> bool:
    if isinstance(kind, MapType):
        return not isinstance(kind.keyType, StringType) or _has_other_keys(kind.valueType)
    if isinstance(kind, ArrayType):
        return _has_other_keys(kind.elementType)
    return isinstance(kind, StructType) and any(_has_other_keys(field.dataType) for field in kind.fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Repair:
    pipeline: Pipeline[Any]
    config: StreamsConfig
    store: Table
    refused: Path
    """Where rows are kept that the store refuses."""
    on_step: OnStep

    def run(self, found: Recomputed, *, dry_run: bool) -> Repaired:
        self.on_step(f"comparing {RANGE_COUNT:,} ranges")
        expected = found.expected.select("key", "value").persist(StorageLevel.DISK_ONLY)
        try:
            ranges = different_ranges(expected, found.written)
            row_count = expected.count()
            rows = different_rows(expected, found.written, ranges).persist(StorageLevel.DISK_ONLY)
            removed = rows.where(F.col("expected").isNull()).count()
            written = rows.count() - removed
            refused = 0
            if not dry_run and (removed or written):
                self.on_step(f"writing {written:,} rows and removing {removed:,}")
                refused = self._write(_as_rows(rows, found.schema, self.store))
            rows.unpersist()
        finally:
            expected.unpersist()
        return Repaired(
            row_count=row_count,
            range_count=RANGE_COUNT,
            different_ranges=len(ranges),
            written_count=written - refused,
            removed_count=removed,
            refused_count=refused,
        )

    def _write(self, rows: DataFrame) -> int:
        """Write the rows; return how many the store has refused."""
        checkpoint = checkpoint_path(self.config, self.pipeline.name)
        last = read_progress_log(checkpoint).committed
        assert last is not None, "what was processed is known"
        own = WriteContext(
            pipeline=self.pipeline.name,
            query_id=read_query_id(checkpoint),
            bootstrap=self.config.bootstrap,
            client_options=portable_options(self.config.client_options),
            guarantee="exactly-once",
            checkpoint=checkpoint,
            transaction_s_max=self.config.transaction_s_max,
        )
        # Spark does not know that no row has such a number: it runs no task for what it knows to be empty.
        nothing = rows.where(F.monotonically_increasing_id() < 0)
        _write(nothing, last, self.store, own)
        # Each repair is a run of its own, of one batch.
        name, query_id = f"{self.pipeline.name}.{REPAIR}", str(uuid.uuid4())
        _write(
            rows,
            0,
            self.store,
            replace(own, pipeline=name, query_id=query_id, checkpoint=None, refused=self.refused),
        )
        return self._tell_refused()

    def _tell_refused(self) -> int:
        files = refused_files(self.refused)
        parts = files.parts(0) if files is not None else []
        if not parts:
            return 0
        refused = pa.concat_tables([pq.read_table(part, partitioning=None) for part in parts])
        first = refused.slice(0, 1).to_pylist()[0]
        self.on_step(
            f"{refused.num_rows:,} rows are refused by the store, {first['key'][:SHOWN_MAX]} because "
            f"{first['cause']}: they are left out"
        )
        return int(refused.num_rows)


def different_ranges(expected: DataFrame, written: DataFrame) -> list[int]:
    """The numbers of the ranges whose rows don't add up to the same."""
    one, other = _sums(expected), _sums(written)
    joined = one.alias("one").join(other.alias("other"), "range", "full_outer")
    same = F.col("one.sum").eqNullSafe(F.col("other.sum")) & F.col("one.count").eqNullSafe(
        F.col("other.count")
    )
    return sorted(row["range"] for row in joined.where(~same).select("range").collect())


def different_rows(expected: DataFrame, written: DataFrame, ranges: Sequence[int]) -> DataFrame:
    """`key`, and the row as it should be in `expected`, which is null where there should be none."""
    wanted = expected.where(_range().isin(*ranges)).select("key", F.col("value").alias("expected"))
    there = written.where(_range().isin(*ranges)).select("key", F.col("value").alias("found"))
    joined = wanted.join(there, "key", "full_outer")
    return joined.where(~F.col("expected").eqNullSafe(F.col("found"))).select("key", "expected")


def _sums(records: DataFrame) -> DataFrame:
    """The order of rows does not matter, and their number does."""
    added = F.sum(F.xxhash64("key", "value").cast("decimal(20, 0)")).alias("sum")
    return records.groupBy(_range().alias("range")).agg(added, F.count("*").alias("count"))


def _range() -> Column:
    return F.pmod(F.xxhash64("key"), F.lit(RANGE_COUNT)).cast("int")


def _as_rows(different: DataFrame, schema: StructType, store: Table) -> DataFrame:
    """As a pipeline returns them: all columns, and `_delete`, with the key alone."""
    columns = StructType([field for field in schema.fields if field.name != DELETE_COLUMN])
    keys = StructType([columns[name] for name in store.key])
    key = F.from_json(F.col("key").cast("string"), keys, _READING)
    row = F.from_json(F.col("expected").cast("string"), columns, _READING)
    is_gone = F.col("expected").isNull()
    values = [
        (F.when(is_gone, key[name]).otherwise(row[name]) if name in store.key else row[name]).alias(name)
        for name in columns.names
    ]
    return different.select(*values, is_gone.alias(DELETE_COLUMN))


def _write(rows: DataFrame, batch_id: int, store: Table, context: WriteContext) -> None:
    writer = store_of(store).writer(store, context)
    try:
        writer.write(rows, batch_id)
    finally:
        writer.close()
