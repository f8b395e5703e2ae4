"""From the records of a topic of changes to rows of the table that changes.

Rows have the columns of the topic's schema, and two more, `_kafka` and

    _change struct<kind string, at timestamp, transaction string, transaction_order bigint>

| kind | the row |
|---|---|
| `upsert` | is what the row of its key is now |
| `delete` | has the key of a row that is gone, and nulls |
| `truncate` | has nulls only: all rows are gone |

`at` is when the change was committed, or else when its record was written. `transaction` is the id of the
database's transaction that the change is part of, where that is told, and `transaction_order` which of the
transaction's changes it is.

| format | record | |
|---|---|---|
| `upsert` | JSON object of the schema | upsert |
| | no value | delete; the key is the key column's text, or a JSON object that has all its columns |
| `debezium` | `op` c, u or r, and `after` | upsert: an insert, an update, or a row of a snapshot |
| | `op` d, and `before` with the whole key | delete |
| | `op` t | truncate |
| | no value, or `op` m | nothing: a tombstone follows its delete; a message is no change |

All else is a dead letter. Change events are read without Connect's schemas (`schemas.enable=false`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from headrace.errors import PipelineError
from headrace.streams.changelog.current import DELETE, TRUNCATE, UPSERT
from headrace.streams.decode import TOMBSTONE_COLUMN, decoded, parse_schema, undecodable
from headrace.streams.topic import CHANGE_COLUMN, METADATA_COLUMN, Topic
from headrace.streams.transaction_format import transaction_id

KEY_METADATA: Final = "headrace.key"
"""In the metadata of `_change` or `_weight`: the columns that tell the table's rows apart."""
TOPICS_METADATA: Final = "headrace.topics"
"""In the metadata of `_change`: the topics that the rows are of."""
FORMAT_METADATA: Final = "headrace.format"
"""In the metadata of `_change`: the format of these topics."""

_CHANGE: Final = "struct<kind: string, at: timestamp, transaction: string, transaction_order: bigint>"
"""Of which all may be null, as where such rows are put together with others."""
_UPSERTS: Final = ("c", "u", "r")
_MESSAGE: Final = "m"
_SOURCE: Final = "ts_us bigint, ts_ms bigint"
_TRANSACTION: Final = "id string, total_order bigint"


def change_rows(records: DataFrame, topic: Topic) -> DataFrame:
    """The rows of the records that are changes."""
    schema, key = _schema_and_key(topic)
    rows = _upserts(records, schema, key) if topic.format == "upsert" else _events(records, schema, key)
    noted = {KEY_METADATA: list(key), TOPICS_METADATA: list(topic.names), FORMAT_METADATA: topic.format}
    return rows.withMetadata(CHANGE_COLUMN, noted)


def refused_changes(records: DataFrame, topic: Topic) -> DataFrame:
    """The records that are none, as they were, with a column `cause`."""
    schema, key = _schema_and_key(topic)
    if topic.format == "debezium":
        events = records.where(F.col("value").isNotNull())
        return undecodable(events, _envelope(schema), _Event(key=key))
    unread = F.lit(f"the value is null (a tombstone), and the key is no {_told(schema, key)}")
    refused = undecodable(records, schema, _HasKey(key=key))
    is_tombstone = F.col("value").isNull()
    refused = refused.where(~is_tombstone | ~_is_whole(_key_values(F.col("key"), schema, key)))
    return refused.withColumn("cause", F.when(is_tombstone, unread).otherwise(F.col("cause")))


def _schema_and_key(topic: Topic) -> tuple[StructType, tuple[str, ...]]:
    schema = parse_schema(topic)
    assert topic.key, "a topic of changes is described with a key"
    for name in topic.key:
        if name not in schema.names:
            raise PipelineError(
                f"topic {topic.name}: the key {name!r} is none of the schema's columns "
                f"({', '.join(schema.names)})"
            )
    return schema, topic.key


def _upserts(records: DataFrame, schema: StructType, key: tuple[str, ...]) -> DataFrame:
    rows = decoded(records, schema, _HasKey(key=key), keep_tombstones=True)
    is_gone = F.col(TOMBSTONE_COLUMN)
    told = _key_values(F.col(METADATA_COLUMN)["key"], schema, key)
    known = {name: F.when(is_gone, value).otherwise(F.col(name)) for name, value in told.items()}
    whole = rows.withColumns(known).where(_is_whole({name: F.col(name) for name in key}))
    change = F.struct(
        F.when(is_gone, DELETE).otherwise(UPSERT).alias("kind"),
        F.col(METADATA_COLUMN)["timestamp"].alias("at"),
        F.lit(None).cast("string").alias("transaction"),
        F.lit(None).cast("bigint").alias("transaction_order"),
    )
    return whole.select(*schema.names, change.cast(_CHANGE).alias(CHANGE_COLUMN), METADATA_COLUMN)


def _key_values(key: Column, schema: StructType, names: tuple[str, ...]) -> dict[str, Column]:
    """The values of the key's columns that a record's key tells; null where it tells none."""
    if len(names) == 1:
        return {names[0]: _key_value(key, schema, names[0])}
    fields = StructType([StructField(name, schema[name].dataType) for name in names])
    read = F.from_json(_text(key), fields)
    return {name: read[name] for name in names}


def _is_whole(values: Mapping[str, Column]) -> Column:
    """Whether all columns of the key have a value. Never null."""
    return reduce(and_, (value.isNotNull() for value in values.values()))


def _text(key: Column) -> Column:
    return F.when(F.is_valid_utf8(key.cast("string")), key.cast("string"))


def _key_value(key: Column, schema: StructType, name: str) -> Column:
    kind = schema[name].dataType
    if isinstance(kind, BinaryType):
        return key
    text = _text(key)
    in_json = F.from_json(text, StructType([StructField(name, kind)]))[name]
    plain = text if isinstance(kind, StringType) else text.try_cast(kind)
    return F.when(text.startswith("{"), F.coalesce(in_json, plain)).otherwise(plain)


@dataclass(frozen=True, slots=True, kw_only=True)
class _HasKey:
    """A row of a table has a key."""

    key: tuple[str, ...]

    def is_broken(self, row: Column, written: Column) -> Column:
        """Whether it has none."""
        del written
        return ~_is_whole({name: row[name] for name in self.key})

    @property
    def cause(self) -> str:
        """In words."""
        if len(self.key) == 1:
            return f"the key column has no value: {self.key[0]}"
        return f"a column of the key has no value: {', '.join(self.key)}"


def _envelope(schema: StructType) -> StructType:
    """What is read of a change event."""
    before = StructType([StructField(field.name, field.dataType) for field in schema.fields])
    return StructType(
        [
            StructField("op", StringType(), nullable=False),
            # What goes is known by its key, and of the rest a capture may leave out whatever it likes.
            StructField("before", before),
            StructField("after", schema),
            StructField("source", StructType.fromDDL(_SOURCE)),
            StructField("transaction", StructType.fromDDL(_TRANSACTION)),
        ]
    )


def _events(records: DataFrame, schema: StructType, key: tuple[str, ...]) -> DataFrame:
    rows = decoded(records, _envelope(schema), _Event(key=key)).where(F.col("op") != _MESSAGE)
    kind = F.when(F.col("op") == "d", DELETE).when(F.col("op") == "t", TRUNCATE).otherwise(UPSERT)
    committed = F.coalesce(
        F.timestamp_micros(F.col("source")["ts_us"]), F.timestamp_millis(F.col("source")["ts_ms"])
    )
    change = F.struct(
        kind.alias("kind"),
        F.coalesce(committed, F.col(METADATA_COLUMN)["timestamp"]).alias("at"),
        transaction_id(F.col("transaction")["id"]).alias("transaction"),
        F.col("transaction")["total_order"].alias("transaction_order"),
    )
    columns = [
        F.when(F.col("op") == "d", F.col("before")[name]).otherwise(F.col("after")[name]).alias(name)
        for name in schema.names
    ]
    return rows.select(*columns, change.cast(_CHANGE).alias(CHANGE_COLUMN), METADATA_COLUMN)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Event:
    """A change event has the row that it is about."""

    key: tuple[str, ...]

    def is_broken(self, row: Column, written: Column) -> Column:
        """Whether that is missing, or what it says is not known."""
        del written
        op = row["op"]
        has_row = (
            F.when(op.isin(*_UPSERTS), self._has_key(row["after"]))
            .when(op == "d", self._has_key(row["before"]))
            .otherwise(op.isin("t", _MESSAGE))
        )
        return ~F.coalesce(has_row, F.lit(False))

    @property
    def cause(self) -> str:
        """In words."""
        key = " and ".join(self.key)
        return (
            f"no change event of the table: op is c, u or r with {key} in after, d with {key} in before, or t"
        )

    def _has_key(self, row: Column) -> Column:
        return _is_whole({name: row[name] for name in self.key})


def _told(schema: StructType, key: tuple[str, ...]) -> str:
    """What a record's key should be, in words."""
    columns = ", ".join(f"{name} ({schema[name].dataType.simpleString()})" for name in key)
    return columns if len(key) == 1 else f"JSON object of {columns}"
