"""`hr.corrected`: results that come again when more is known, of which the last one with a key counts.

A pipeline that judges a key's history (`hr.recent`) may say of the same thing more than once: with more
evidence, or that it does not hold after all. How often it does depends on which rows came together. What
everything comes to does not, if the last version of each result is all that counts; that can be computed a
second time, and compared with what was written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows
from pyspark.sql.types import BooleanType

from headrace.errors import PipelineError
from headrace.streams.plans.results import CORRECTED_KEY, IDENTITY_KEY, REMOVED_KEY, TOLD_BESIDE_KEY

_TITLE: Final = "hr.corrected"


def corrected(
    rows: DataFrame,
    *,
    key: str | Sequence[str],
    order_by: str,
    holds: str | None = None,
    beside: str | Sequence[str] = (),
) -> DataFrame:
    """Results of which the last one with a key counts, so that `headrace verify` can compare them.

    In a stream they are given as they come: write them to a topic or a table with that key. In batch, only
    the last version of each is given, by `order_by`, a column that is not itself part of the results.
    `holds` names a column that is false where a result is withdrawn: in batch such results are left out.
    `beside` names columns that say how a version came about, such as when, and are not compared.
    """
    keys, told_beside = _names(key), _names(beside)
    _check(rows, keys, order_by, holds, told_beside)
    results = rows.drop(order_by) if rows.isStreaming else _last(rows, keys, order_by, holds)
    for name in keys:
        results = _marked(results, name, {IDENTITY_KEY: len(keys), CORRECTED_KEY: True})
    for name in told_beside:
        results = _marked(results, name, {TOLD_BESIDE_KEY: True})
    return results if holds is None else _marked(results, holds, {REMOVED_KEY: "false"})


def _last(rows: DataFrame, keys: tuple[str, ...], order_by: str, holds: str | None) -> DataFrame:
    names = [name for name in rows.columns if name != order_by]
    last = F.max_by(F.struct(*names), F.col(order_by)).alias("last")
    results = rows.groupBy(*(F.col(name).alias(f"_{name}") for name in keys)).agg(last).select("last.*")
    return results if holds is None else results.where(F.col(holds))


def _marked(rows: DataFrame, name: str, marks: dict[str, object]) -> DataFrame:
    return rows.withMetadata(name, {**rows.schema[name].metadata, **marks})


def _check(
    rows: DataFrame, keys: tuple[str, ...], order_by: str, holds: str | None, beside: tuple[str, ...]
) -> None:
    if not keys:
        raise PipelineError(f'{_TITLE}: key is empty; name what results are told apart by: key="alert_id"')
    for name in (*keys, order_by, *beside, *(() if holds is None else (holds,))):
        if name not in rows.columns:
            raise PipelineError(f"{_TITLE}: there is no column {name!r} among {', '.join(rows.columns)}")
    if order_by in {*keys, holds, *beside}:
        raise PipelineError(
            f"{_TITLE}: {order_by!r} is the order of versions, which is not part of the results, so it can't "
            "be in key, holds or beside: make a column of its own"
        )
    if clash := [name for name in (*beside, holds) if name in keys]:
        raise PipelineError(f"{_TITLE}: {clash[0]!r} is part of the key, so it has to be compared")
    if holds is not None and not isinstance(rows.schema[holds].dataType, BooleanType):
        kind = rows.schema[holds].dataType.simpleString()
        raise PipelineError(f"{_TITLE}: holds is the column {holds!r}, which is {kind}; it must be boolean")


def _names(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)
