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

LIMIT_MAX: Final = 10_000
"""A longer history would be read and written in full with each row that comes."""
REALTIME_SETTING: Final = "spark.headrace.realtime"
"""Whether pipelines are being built for real-time mode, told by the session that they are built in."""

_RESULT_COLUMNS: Final = ("recent", "overflow")


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


def recent(rows: DataFrame, *, by: str | Sequence[str], order_by: str, limit: int) -> DataFrame:
    """The `limit` newest rows of each key, by `order_by`, whenever a row of the key comes."""
    history = _checked(rows, (by,) if isinstance(by, str) else tuple(by), order_by, limit)
    if not rows.isStreaming:
        return _static(rows, history)
    return _streaming(rows, history)


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


def _static(rows: DataFrame, history: _History) -> DataFrame:
    frame = (
        Window.partitionBy(*history.by).orderBy("_place").rowsBetween(1 - history.limit, Window.currentRow)
    )
    entries = F.collect_list(F.struct(*history.kept)).over(frame)
    placed = rows.withColumn("_place", history.place)
    # collect_list holds the rows of the frame in its order, so the row itself is the last.
    return placed.select(*history.by, entries.alias("_entries")).select(
        *history.by,
        F.transform("_entries", lambda entry, i: _entry(entry, history, i == F.size("_entries") - 1)).alias(
            "recent"
        ),
        F.lit(False).alias("overflow"),
    )


def _streaming(rows: DataFrame, history: _History) -> DataFrame:
    realtime = rows.sparkSession.conf.get(REALTIME_SETTING, "false") == "true"
    stamped = rows.withColumns({"_place": history.place, "_came": F.current_timestamp()})
    updates = stamped.groupBy(*history.by).agg(
        _greatest(history).alias("_entries"),
        F.last("_place").alias("_last"),
        # The smallest is the one of the newest batch with the smallest place.
        F.min(F.struct((-F.unix_micros("_came")).alias("came"), "_place")).alias("_oldest"),
    )

    def place(entry: Column) -> Column:
        return F.struct(entry[history.order_by].alias("order"), entry["_tie"].alias("tie"))

    def is_new(entry: Column) -> Column:
        came_now = entry["_came"] == F.current_timestamp()
        return place(entry).eqNullSafe(F.col("_last")) if realtime else came_now

    entries = F.transform(F.reverse("_entries"), lambda entry: _entry(entry, history, is_new(entry)))
    # Always true. An aggregate that only one mode looks at would else be left out of the state in the other,
    # and a checkpoint could not go from one to the other.
    is_kept = F.col("_last").isNotNull() & F.col("_oldest").isNotNull()
    is_full = F.size("_entries") == history.limit
    brought = F.col("_last") if realtime else F.col("_oldest")["_place"]
    return updates.select(
        *history.by,
        F.when(is_kept, entries).alias("recent"),
        (is_full & (brought < place(F.element_at("_entries", -1)))).alias("overflow"),
    )


def _greatest(history: _History) -> Column:
    entry = F.struct(*history.kept, F.col("_place.tie").alias("_tie"), "_came")
    # Spark's aggregate of the k greatest has no function of its own in PySpark.
    return F.call_function("max_by", entry, F.col("_place"), F.lit(history.limit))


def _entry(entry: Column, history: _History, is_new: Column) -> Column:
    return F.struct(*(entry[name].alias(name) for name in history.kept), is_new.alias("is_new"))
