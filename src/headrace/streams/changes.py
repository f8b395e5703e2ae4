"""Changelogs on Spark: `hr.changes` makes one, and `hr.upserts` makes of it what a store is kept by.

A changelog is a DataFrame of a table's rows with a weight: `_weight` is 1 for a row that comes, and -1 for
one that goes; an update is both. Filters and projections are Spark's own, as long as they leave `_weight`
and the columns of the key; aggregates and joins that go on from them are `hr.aggregate` and `hr.join_tables`.
Which columns are the key is noted with `_weight`. `_changed_at` tells when a change happened.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows
from pyspark.sql.types import IntegralType

from headrace.errors import PipelineError
from headrace.streams.buckets.logic import Logic
from headrace.streams.buckets.operator import BUCKET_COUNT
from headrace.streams.change_formats import KEY_METADATA
from headrace.streams.changelog.current import IS_FOR_ALL, KIND, TRUNCATE, CurrentRows
from headrace.streams.changelog.upserts import Upserts
from headrace.streams.changelog.zset import CHANGE_COLUMNS, CHANGED_AT, HASH, WEIGHT
from headrace.streams.plans.results import FIRING_KEY, IDENTITY_KEY, REMOVED_KEY
from headrace.streams.sinks.records import DELETE_COLUMN
from headrace.streams.stateful import Stateful
from headrace.streams.topic import CHANGE_COLUMN, METADATA_COLUMN

_RETRACTED: Final = "retracted"


def changes(
    rows: DataFrame, *, key: str | Sequence[str] | None = None, buckets: int = BUCKET_COUNT
) -> DataFrame:
    """The changelog of a table: its rows with `_weight`, 1 where one comes and -1 where one goes.

    The rows are those of a topic of changes (`hr.topic(..., format="debezium")` or `"upsert"`), of which the
    current row of each key is kept; or the results of `hr.window` with `hr.update(retract=True)`; or rows
    that have a column `_weight` already. `key` names the columns that tell the table's rows apart, if the
    topic or the window has not said it. The key of a topic of changes is said where it is described, because
    its deletes tell nothing else: `hr.topic(..., key=["order_id", "line"])`.
    """
    if CHANGE_COLUMN in rows.columns:
        keys = key_of_topic(rows, "hr.changes", key)
        logic = CurrentRows(key=keys)
        made = of_versions(rows, logic, title="hr.changes", kind="current rows", key=keys, buckets=buckets)
        return marked(made, keys)
    if _RETRACTED in rows.columns:
        return _of_retractions(rows, key)
    if WEIGHT in rows.columns:
        check_changelog(rows, "hr.changes")
        return marked(rows.withColumn(WEIGHT, _weight()), table_key(rows, "hr.changes", WEIGHT, key))
    raise PipelineError(
        "hr.changes: these rows are no changes of a table: describe their topic as "
        'hr.topic(..., format="debezium", key="id") or format="upsert", or use hr.update(retract=True)'
    )


def upserts(
    changes: DataFrame, *, key: str | Sequence[str] | None = None, buckets: int = BUCKET_COUNT
) -> DataFrame:
    """What keeps a copy of a table current: return it from a pipeline that writes a topic or table by key.

    In each micro-batch there is one row for each key that has changed: the row as it is now, or, with
    `_delete` true, the key of one that is gone, which deletes it from a table and is a tombstone in a topic.
    It is kept how many rows each key has: a key that has two at once is an error.
    """
    title = "hr.upserts"
    check_changelog(changes, title)
    keys = table_key(changes, title, WEIGHT, key)
    refuse_clash(changes, title, (HASH,))
    lean = changes.drop(METADATA_COLUMN, CHANGED_AT).select("*", hash_of(keys))
    operator = Stateful(title=title, rows=lean, by=keys, event_time=None, buckets=buckets)
    described = operator.described("upserts", {}, {})
    result = operator.run(lean, Upserts(key=keys), described)
    for name in keys:
        result = result.withMetadata(name, {IDENTITY_KEY: len(keys)})
    return result.withMetadata(DELETE_COLUMN, {REMOVED_KEY: True})


def check_changelog(rows: DataFrame, title: str) -> None:
    """Refuse rows that have no weights, or other than whole numbers."""
    if WEIGHT not in rows.columns:
        raise PipelineError(
            f"{title}: these rows are no changelog, because they have no column {WEIGHT}: make one with "
            f"hr.changes(...), and keep {WEIGHT} in what you select of it"
        )
    kind = rows.schema[WEIGHT].dataType
    if not isinstance(kind, IntegralType):
        raise PipelineError(
            f"{title}: {WEIGHT} is {kind.simpleString()}, and says how often a row comes: make it int"
        )


def key_of(changes: DataFrame, title: str) -> tuple[str, ...]:
    """The columns that tell the rows of a changelog's table apart."""
    return table_key(changes, title, WEIGHT, None)


def marked(changes: DataFrame, key: Sequence[str]) -> DataFrame:
    """A changelog that knows its key."""
    return changes.withMetadata(WEIGHT, {KEY_METADATA: list(key)})


def hash_of(columns: Sequence[str]) -> Column:
    """The hash by which the state of an operator by these columns is divided."""
    return F.xxhash64(*columns).alias(HASH)


def refuse_clash(rows: DataFrame, title: str, made: Sequence[str]) -> None:
    """Refuse rows that have columns which an operator makes itself."""
    if clash := set(rows.columns).intersection(made):
        raise PipelineError(f"{title}: it makes the column {min(clash)} itself; rename yours")


def refuse_unordered(rows: DataFrame, title: str) -> None:
    """Refuse a stream whose rows don't tell where they came from: which version is the last is not known."""
    if rows.isStreaming and METADATA_COLUMN not in rows.columns:
        raise PipelineError(
            f"{title}: these rows have no column {METADATA_COLUMN}, by which the versions of a row are put "
            "in order: keep it in what you select of the topic"
        )


def of_versions(
    rows: DataFrame, logic: Logic, *, title: str, kind: str, key: tuple[str, ...], buckets: int
) -> DataFrame:
    """What a logic makes of the rows of a topic of changes."""
    refuse_unordered(rows, title)
    refuse_clash(rows, title, (*CHANGE_COLUMNS, KIND, IS_FOR_ALL))
    change = F.col(CHANGE_COLUMN)
    told = {KIND: change["kind"], CHANGED_AT: change["at"], HASH: hash_of(key)}
    told[IS_FOR_ALL] = change["kind"] == TRUNCATE
    versions = rows.withColumns(told).drop(CHANGE_COLUMN)
    operator = Stateful(
        title=title, rows=versions, by=key, event_time=None, buckets=buckets, everywhere=IS_FOR_ALL
    )
    names = [name for name in rows.columns if name not in {CHANGE_COLUMN, METADATA_COLUMN}]
    kept = {name: f"{name}: {rows.schema[name].dataType.simpleString()}" for name in names}
    return operator.run(versions, logic, operator.described(kind, kept, {}))


def _weight() -> Column:
    """The weight of each row; one that has none can't be added to anything, and must not be left out."""
    told = (
        f"hr.changes: a row has no {WEIGHT}: declare it as {WEIGHT} int not null in the schema of its topic, "
        "so that such a record is a dead letter, or filter such rows"
    )
    weight = F.col(WEIGHT)
    return F.when(weight.isNull(), F.raise_error(F.lit(told)).cast("int")).otherwise(weight.cast("int"))


def _of_retractions(rows: DataFrame, key: str | Sequence[str] | None) -> DataFrame:
    told = [field.name for field in rows.schema.fields if IDENTITY_KEY in field.metadata]
    keys = told if key is None and told else _given(rows, "hr.changes", key)
    firing = [field.name for field in rows.schema.fields if field.metadata.get(FIRING_KEY)]
    weight = F.when(F.col(_RETRACTED), -1).otherwise(1)
    return marked(rows.withColumn(WEIGHT, weight).drop(_RETRACTED, *firing), keys)


def key_of_topic(rows: DataFrame, title: str, key: str | Sequence[str] | None) -> tuple[str, ...]:
    """The columns that tell the rows of a topic of changes apart; raise where its deletes don't tell them."""
    keys = table_key(rows, title, CHANGE_COLUMN, key)
    refuse_other_key(title, keys, rows.schema[CHANGE_COLUMN].metadata.get(KEY_METADATA), rows.columns)
    return keys


def refuse_other_key(
    title: str, key: Sequence[str], of_topic: Sequence[str] | None, columns: Sequence[str]
) -> None:
    """Refuse a key by which a topic's deletes are not told: they have values for the topic's key only."""
    if of_topic is None or set(key) == set(of_topic) or not set(of_topic) <= set(columns):
        return
    raise PipelineError(
        f"{title}: key is {', '.join(key)}, and the topic is described with {', '.join(of_topic)}, which is "
        f"all that its deletes tell: describe the topic as hr.topic(..., key={list(key)})"
    )


def table_key(
    rows: DataFrame, title: str, noted_with: str, key: str | Sequence[str] | None
) -> tuple[str, ...]:
    """The columns that were given as a table's key, or else those that are noted with a column."""
    noted = rows.schema[noted_with].metadata.get(KEY_METADATA)
    return _given(rows, title, noted if key is None else key)


def _given(rows: DataFrame, title: str, key: str | Sequence[str] | None) -> tuple[str, ...]:
    keys = (key,) if isinstance(key, str) else tuple(key or ())
    if not keys:
        raise PipelineError(
            f'{title}: which columns tell the rows of the table apart is not known: say key="id", or '
            'key=["order_id", "line"]'
        )
    for name in keys:
        if name not in rows.columns:
            raise PipelineError(
                f"{title}: the table's rows are told apart by {name!r}, which is none of "
                f"{', '.join(rows.columns)}: keep the column, or say key=..."
            )
    return keys
