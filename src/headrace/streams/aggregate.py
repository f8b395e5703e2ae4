"""`hr.aggregate`: aggregates of a table that changes, kept current as it does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

from headrace.errors import PipelineError
from headrace.streams.buckets.operator import BUCKET_COUNT
from headrace.streams.changelog.grouped import GroupedTable
from headrace.streams.changelog.zset import CHANGE_COLUMNS, CHANGED_AT, HASH, WEIGHT
from headrace.streams.changes import check_changelog, hash_of, marked, refuse_clash
from headrace.streams.recognise import ARGUMENT_PREFIX, recognise
from headrace.streams.stateful import Stateful
from headrace.streams.windows.aggregate import Aggregate

_TITLE: Final = "hr.aggregate"
_ALL: Final = f"{ARGUMENT_PREFIX}all"
"""The group of all rows, where they are not grouped by columns."""
_NAME_OF_ALL: Final = "all"
"""How its column is called in results."""


def aggregate(
    changes: DataFrame,
    *aggregates: Column | Aggregate,
    by: str | Sequence[str] = (),
    buckets: int = BUCKET_COUNT,
) -> DataFrame:
    """The changelog of a table's aggregates: `hr.aggregate(orders, F.count("*").alias("n"), by="customer")`.

    A group that changes gives what it was with `_weight` -1 and what it is with 1, once in a micro-batch; a
    group without rows is gone. Count, sum and mean cost what changes; for the others (`F.min`, `F.max`,
    `F.count_distinct`, `hr.greatest_rows` and the like) the values of each group are kept. Without
    aggregates, the result is the different values of `by`.
    """
    check_changelog(changes, _TITLE)
    keys = (by,) if isinstance(by, str) else tuple(by)
    if not keys and not aggregates:
        raise PipelineError(f"{_TITLE} was given nothing to compute: give it aggregates, or by=...")
    found = recognise(changes, aggregates, title=_TITLE, has_all_values=True)
    if found.unknown:
        raise PipelineError(
            f"{_TITLE}: {', '.join(found.unknown)} can't be kept current where rows go: use count, sum, avg, "
            "min, max, count_distinct, or the aggregates of headrace.streams"
        )
    check_names(keys or (_NAME_OF_ALL,), found.aggregates)
    rows = changes.withColumns(found.arguments)
    if not keys:
        rows, keys = rows.withColumn(_ALL, F.lit(0)), (_ALL,)
    operator = Stateful(title=_TITLE, rows=rows, by=keys, event_time=None, buckets=buckets)
    refuse_clash(rows, _TITLE, (HASH,))
    wanted = {*keys, *found.reads, WEIGHT, CHANGED_AT}
    lean = rows.select(*(name for name in rows.columns if name in wanted), hash_of(keys))
    kept = {each.name: found.definition(each) for each in found.aggregates}
    described = operator.described("aggregates of a table", kept, {})
    result = operator.run(lean, GroupedTable(by=keys, aggregates=tuple(found.aggregates)), described)
    # All rows are one group, which is told apart by nothing: a store of it has one row.
    return (
        marked(result, keys)
        if keys != (_ALL,)
        else marked(result.withColumnRenamed(_ALL, _NAME_OF_ALL), (_NAME_OF_ALL,))
    )


def check_names(by: Sequence[str], aggregates: Sequence[Aggregate]) -> None:
    """Refuse a result that would have two columns of one name."""
    names = [*by, *(each.name for each in aggregates), *CHANGE_COLUMNS]
    for name in names:
        if names.count(name) > 1:
            raise PipelineError(f"{_TITLE}: two columns of its result are called {name}: use .alias(...)")
