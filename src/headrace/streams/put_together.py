"""Put the two sides of a join together as one stream, as headrace.streams.joins.sides describes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, VariantType

from headrace.errors import PipelineError
from headrace.streams.buckets.sources import EVERY, PLACE_FIELDS
from headrace.streams.joins.sides import DECLARED, HASH, IS_RIGHT, RIGHT, TIME, source_name
from headrace.streams.time_only import time_only_of
from headrace.streams.topic import METADATA_COLUMN


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinSide:
    """A side of a join."""

    name: str
    rows: DataFrame
    columns: tuple[str, ...]
    """Those that are taken along, without those of the key."""
    time: Column
    declared: str | None = None
    """The column by which its sources say how far they are, if they do."""
    is_named: bool = True
    """Whether its sources are told from those of the other side by their names. If not, what is known of its
    columns holds for the results, too."""

    @property
    def has_places(self) -> bool:
        """Whether the rows tell where they came from."""
        if METADATA_COLUMN not in self.rows.columns:
            return False
        kind = self.rows.schema[METADATA_COLUMN].dataType
        return isinstance(kind, StructType) and set(kind.names) >= set(PLACE_FIELDS)


def put_together(sides: Sequence[JoinSide], keys: Sequence[str]) -> DataFrame:
    """Both sides as one stream."""
    declares = any(side.declared for side in sides)
    left, right = (_tagged(side, keys, declares=declares) for side in sides)
    return left.unionByName(right, allowMissingColumns=True)


def check_keys(title: str, frames: Mapping[str, DataFrame], keys: Sequence[str]) -> None:
    """Raise unless both have the columns of the key, of the same types. `frames` are called by name."""
    if not keys:
        raise PipelineError(f"{title}: on is empty; name the columns that rows are equal in")
    for name in keys:
        kinds: list[DataType] = []
        for called, frame in frames.items():
            if name not in frame.columns:
                raise PipelineError(
                    f"{title}: the {called} has no column {name!r} among {', '.join(frame.columns)}: rename "
                    "the one that is meant"
                )
            kinds.append(frame.schema[name].dataType)
        told = [kind.simpleString() for kind in kinds]
        for kind in kinds:
            if isinstance(kind, ArrayType | MapType | StructType | VariantType):
                raise PipelineError(
                    f"{title}: {name} is {kind.simpleString()}, and keys are plain values: take values of it "
                    "as columns, or its text, to_json"
                )
        if told[0] != told[1]:
            raise PipelineError(f"{title}: {name} is {told[0]} and {told[1]}: cast one of them")


def times_beside(side: JoinSide) -> list[DataFrame]:
    """The rows that only tell how far the sources of a side are, as such of the join."""
    return [
        each.withColumn(METADATA_COLUMN, _place(side, is_told_of_all=not side.has_places))
        for each in time_only_of(side.rows)
    ]


def _tagged(side: JoinSide, keys: Sequence[str], *, declares: bool) -> DataFrame:
    made = {
        IS_RIGHT: F.lit(side.name == RIGHT),
        HASH: F.xxhash64(*keys),
        TIME: side.time,
        METADATA_COLUMN: _place(side) if side.has_places else _task(side),
    }
    if declares:
        made[DECLARED] = F.col(side.declared) if side.declared else F.lit(None).cast("timestamp")
    rows = side.rows.select(*keys, *side.columns, *(made[name].alias(name) for name in made))
    if not side.is_named:
        return rows
    for field in rows.schema.fields:
        if field.metadata:
            # What is known of a side's columns does not hold for the results.
            rows = rows.withMetadata(field.name, {})
    return rows


def _place(side: JoinSide, *, is_told_of_all: bool = False) -> Column:
    """Where a row came from, as a source of the side."""
    own = {field: F.col(METADATA_COLUMN)[field] for field in PLACE_FIELDS}
    every = EVERY if is_told_of_all else ""
    prefix = source_name(side.name, every) if side.is_named else every
    own["topic"] = F.concat(F.lit(prefix), own["topic"])
    if is_told_of_all:
        own["timestamp"] = F.lit(None).cast("timestamp")
    return F.struct(*(own[field].alias(field) for field in PLACE_FIELDS))


def _task(side: JoinSide) -> Column:
    """The same for rows that have dropped it: the source is Spark's task, which only one batch knows."""
    return F.struct(
        F.lit(source_name(side.name, "task") if side.is_named else "task").alias("topic"),
        F.spark_partition_id().alias("partition"),
        F.lit(0).cast("bigint").alias("offset"),
        F.lit(None).cast("timestamp").alias("timestamp"),
    )
