"""A bounded history per key, as one native aggregate: it runs in real-time mode, without Python.

`recent(rows, by="card_id", order_by="at", limit=50)` gives, for each update of a key, one row:

    card_id   the `by` columns
    recent    array of structs, oldest first: the key's `limit` newest rows by `order_by`, each with its
              other columns and `is_new`, which marks the rows that this update brought
    overflow  whether this update brought a row that is not in `recent`, because `limit` later ones are

What an update is depends on how the pipeline runs; what the history holds after the same rows does not:

    real-time     each arriving row is an update of its own: one row is new
    micro-batch   a batch is an update: all of its rows are new
    static        each row is an update, in the order of `order_by`: the row itself is new, and what comes
                  after it is not there yet; nothing overflows

Rows that are equal in `order_by` are ordered by a hash of all their columns: the same everywhere, so the same
rows are kept in every mode. Rows that are equal in every column count as new together. A null in `order_by`
comes before all else.

A table can ride along: with `table`, a stream of the versions of each key's row in it, there is one column
more:

    table     array of structs, oldest first: the key's `table_limit` newest versions by `table_order_by`,
              each with the table's other columns, `is_new`, and `came`: when the batch began that brought it,
              which is null in static DataFrames

A version that comes is an update of its key, in which no entry of `recent` is new. Rows and versions come
from two topics, which have no common order: a version can come after rows that it is about, and whoever
looks a version up by time (the last one that is not later than the row) has to look at these rows again. In
static DataFrames all versions are there from the beginning, cut at `table_limit` as well, and none is new.

`came` tells a row that may have been met without a version from one that can't: a run that was killed and met
the row first had ended when the batch began that brought the version, so the row had been sent by then.

How it knows what is new. In micro-batches `current_timestamp()` is one value per batch, different for each
batch, and the same again when a batch is retried: each row carries the one it came with. In real-time mode a
batch lasts minutes, but each row makes the aggregate emit, and `last` is the row that did. State holds what
both need, so that a checkpoint can go from one mode to the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

from headrace.errors import PipelineError
from headrace.streams.plans.results import UPDATES_NAME

LIMIT_MAX: Final = 10_000
"""A longer history would be read and written in full with each row that comes."""
REALTIME_SETTING: Final = "spark.headrace.realtime"
"""Whether pipelines are being built for real-time mode, told by the session that they are built in."""

_RESULT_COLUMNS: Final = ("recent", "overflow", "table")


@dataclass(frozen=True, slots=True, kw_only=True)
class _History:
    by: tuple[str, ...]
    order_by: str
    limit: int
    kept: tuple[str, ...]
    """The columns of an entry: all but `by`."""

    @property
    def place(self) -> Column:
        """Where a row stands in its key's history, the same in every mode."""
        return F.struct(F.col(self.order_by).alias("order"), F.xxhash64(*self.by, *self.kept).alias("tie"))

    @property
    def entry(self) -> Column:
        """A row as it is kept, of a DataFrame that has its place and when it came."""
        return F.struct(*self.kept, F.col("_place.tie").alias("_tie"), "_came")

    def place_of(self, entry: Column) -> Column:
        """Where a row stands that is kept."""
        return F.struct(entry[self.order_by].alias("order"), entry["_tie"].alias("tie"))

    def told(self, entry: Column, is_new: Column, *more: Column) -> Column:
        """A row that is kept, as it is told."""
        return F.struct(*(entry[name].alias(name) for name in self.kept), is_new.alias("is_new"), *more)


def recent(
    rows: DataFrame,
    *,
    by: str | Sequence[str],
    order_by: str,
    limit: int,
    table: DataFrame | None = None,
    table_order_by: str | None = None,
    table_limit: int = 1,
) -> DataFrame:
    """The `limit` newest rows of each key, by `order_by`, whenever a row of the key comes.

    With `table`, also the `table_limit` newest versions of the key's row in it, by `table_order_by`.
    """
    keys = (by,) if isinstance(by, str) else tuple(by)
    history = _checked(rows, keys, order_by, limit)
    versions = None if table is None else _checked_table(rows, table, keys, table_order_by, table_limit)
    if not rows.isStreaming:
        return _static(rows, history, table, versions)
    return _streaming(rows, history, table, versions)


def is_realtime(rows: DataFrame) -> bool:
    """Whether pipelines are being built for real-time mode."""
    return rows.sparkSession.conf.get(REALTIME_SETTING, "false") == "true"


def _checked_table(
    rows: DataFrame, table: DataFrame, by: tuple[str, ...], order_by: str | None, limit: int
) -> _History:
    if order_by is None:
        raise PipelineError("recent: table has no order: name the column of its versions as table_order_by")
    if table.isStreaming != rows.isStreaming:
        raise PipelineError("recent: rows and table must both be streams, or both static")
    if "came" in table.columns:
        raise PipelineError("recent: it makes the field came itself; rename the column came of the table")
    return _checked(table, by, order_by, limit)


def _checked(rows: DataFrame, by: tuple[str, ...], order_by: str, limit: int) -> _History:
    if not 1 <= limit <= LIMIT_MAX:
        raise PipelineError(f"recent: limit is {limit}; use 1 to {LIMIT_MAX}")
    if not by:
        raise PipelineError("recent: by is empty; name the columns that a history belongs to")
    for name in (*by, order_by):
        if name not in rows.columns:
            raise PipelineError(f"recent: there is no column {name!r} among {', '.join(rows.columns)}")
    if order_by in by:
        raise PipelineError(f"recent: {order_by!r} is in by as well: all rows of a key would be equal in it")
    if clash := set(by).intersection(_RESULT_COLUMNS):
        raise PipelineError(f"recent: it makes the columns {', '.join(clash)} itself; rename yours")
    if "is_new" in rows.columns:
        raise PipelineError("recent: it makes the field is_new itself; rename the column is_new")
    kept = tuple(name for name in rows.columns if name not in by)
    return _History(by=by, order_by=order_by, limit=limit, kept=kept)


def _static(
    rows: DataFrame, history: _History, table: DataFrame | None, versions: _History | None
) -> DataFrame:
    frame = (
        Window.partitionBy(*history.by).orderBy("_place").rowsBetween(1 - history.limit, Window.currentRow)
    )
    entries = F.collect_list(F.struct(*history.kept)).over(frame)
    placed = rows.withColumn("_place", history.place)
    # collect_list holds the rows of the frame in its order, so the row itself is the last.
    updates = placed.select(*history.by, entries.alias(UPDATES_NAME)).select(
        *history.by,
        F.transform(UPDATES_NAME, lambda entry, i: history.told(entry, i == F.size(UPDATES_NAME) - 1)).alias(
            "recent"
        ),
        F.lit(False).alias("overflow"),
    )
    if table is None or versions is None:
        return updates
    return updates.join(_static_versions(table, versions), on=list(history.by), how="left").select(
        *updates.columns, F.coalesce("table", F.array()).alias("table")
    )


def _static_versions(table: DataFrame, versions: _History) -> DataFrame:
    newest = _greatest(F.struct(*versions.kept), "_place", versions.limit)
    never = F.lit(None).cast("timestamp").alias("came")
    return (
        table.withColumn("_place", versions.place)
        .groupBy(*versions.by)
        .agg(
            F.transform(F.reverse(newest), lambda one: versions.told(one, F.lit(False), never)).alias("table")
        )
    )


def _streaming(
    rows: DataFrame, history: _History, table: DataFrame | None, versions: _History | None
) -> DataFrame:
    stamped = rows.withColumns({"_place": history.place, "_came": F.current_timestamp()})
    kept = [
        _greatest(history.entry, "_place", history.limit).alias("_entries"),
        F.last("_place").alias("_last"),
    ]
    if table is None or versions is None:
        # The smallest is the one of the newest batch with the smallest place.
        oldest = F.min(_came_first("_place")).alias("_oldest")
        return _told(stamped.groupBy(*history.by).agg(*kept, oldest), history)
    beside = table.withColumns({"_place": versions.place, "_came": F.current_timestamp()}).select(
        *versions.by, versions.entry.alias("_version"), F.col("_place").alias("_version_place")
    )
    both = stamped.unionByName(beside, allowMissingColumns=True)
    updates = both.groupBy(*history.by).agg(
        *kept,
        F.min(F.when(F.col("_place").isNotNull(), _came_first("_place"))).alias("_oldest"),
        _greatest(F.col("_version"), "_version_place", versions.limit).alias("_versions"),
        F.last("_version_place").alias("_last_version"),
    )
    return _told(updates, history, versions)


def _came_first(place: str) -> Column:
    return F.struct((-F.unix_micros("_came")).alias("came"), place)


def _greatest(entry: Column, place: str, limit: int) -> Column:
    # Spark's aggregate of the k greatest has no function of its own in PySpark.
    return F.call_function("max_by", entry, F.col(place), F.lit(limit))


def _told(updates: DataFrame, history: _History, versions: _History | None = None) -> DataFrame:
    """The updates as they are told, from what is kept."""
    realtime = is_realtime(updates)

    def entries(kept: str, kind: _History, last: str) -> Column:
        def is_new(entry: Column) -> Column:
            came_now = entry["_came"] == F.current_timestamp()
            return kind.place_of(entry).eqNullSafe(F.col(last)) if realtime else came_now

        def told(entry: Column) -> Column:
            came = (entry["_came"].alias("came"),) if kind is versions else ()
            return kind.told(entry, is_new(entry), *came)

        found = F.transform(F.reverse(kept), told)
        return found if versions is None else F.coalesce(found, F.array())

    oldest_kept = history.place_of(F.element_at("_entries", -1))
    is_full = F.size("_entries") == history.limit
    told = F.when(_is_kept(versions), entries("_entries", history, "_last")).alias("recent")
    if versions is None:
        brought = F.col("_last") if realtime else F.col("_oldest")["_place"]
        return updates.select(*history.by, told, (is_full & (brought < oldest_kept)).alias("overflow"))
    # An update may have brought a version and no row at all.
    came_now = F.col("_oldest")["came"] == -F.unix_micros(F.current_timestamp())
    brought = F.col("_last") if realtime else F.when(came_now, F.col("_oldest")["_place"])
    return updates.select(
        *history.by,
        told,
        F.coalesce(is_full & (brought < oldest_kept), F.lit(False)).alias("overflow"),
        entries("_versions", versions, "_last_version").alias("table"),
    )


def _is_kept(versions: _History | None) -> Column:
    """Always true. An aggregate that only one mode looks at would else be left out of the state in the other,
    and a checkpoint could not go from one to the other.
    """
    if versions is None:
        return F.col("_last").isNotNull() & F.col("_oldest").isNotNull()
    return F.col("_last").isNotNull() | F.col("_oldest").isNotNull() | F.col("_last_version").isNotNull()
