"""`hr.top`: the greatest rows of each group, kept current."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame

from headrace.streams.buckets.logic import LATE
from headrace.streams.buckets.operator import BUCKET_COUNT
from headrace.streams.keyed.top import TopRows
from headrace.streams.plans.results import IDENTITY_KEY, REMOVED_KEY
from headrace.streams.stateful import Lifetime, Stateful
from headrace.streams.time.durations import Duration
from headrace.streams.time.policies import Policy
from headrace.streams.topic import METADATA_COLUMN
from headrace.streams.windows.late import Drop, SideOutput, drop

_TITLE: Final = "hr.top"


def top(  # noqa: PLR0913 - each is a property of the operator, given by name
    rows: DataFrame,
    n: int,
    *,
    by: str | Sequence[str],
    order_by: str | Sequence[str],
    item: str | Sequence[str] = (),
    smallest: bool = False,
    ttl: Duration | None = None,
    late: Drop | SideOutput | None = None,
    event_time: str | None = None,
    watermark: str | Policy | None = None,
    buckets: int = BUCKET_COUNT,
) -> DataFrame:
    """The `n` greatest rows of each group by `order_by`: `hr.top(scores, 10, by="game", order_by="points")`.

    A result says what is at a `rank` now, from 1 on; `removed` says that nothing is there any more. With
    `item`, a row takes the place of the last one of the same item, such as a player. With `ttl`, rows leave
    when event time has come so far past them.
    """
    keys, ordered, items = _names(by), _names(order_by), _names(item)
    lifetime = Lifetime.of(rows, _TITLE, ttl, event_time, watermark)
    operator = Stateful(
        title=_TITLE,
        rows=rows,
        by=keys,
        event_time=lifetime.column,
        buckets=buckets,
        declared=lifetime.declared,
    )
    rest = drop if ttl is None else operator.late_policy(late)
    logic = TopRows(
        by=keys,
        n=n,
        order_by=ordered,
        item=items,
        smallest=smallest,
        time=lifetime.column,
        ttl_us=lifetime.ttl_us,
        watermark=lifetime.watermark,
        late=rest,
    )
    settings = {
        "choice": f"{'smallest' if smallest else 'greatest'} {n} by {', '.join(ordered)}",
        "item": ", ".join(items) or "none",
        **lifetime.settings,
    }
    described = operator.described("top rows", {}, settings)
    # The place of a row in the log tells which came first; it is not part of a result.
    result = operator.run(rows, logic, described, {LATE: rest}).drop(METADATA_COLUMN)
    identity = (*keys, "rank")
    for name in identity:
        result = result.withMetadata(name, {**result.schema[name].metadata, IDENTITY_KEY: len(identity)})
    return result.withMetadata("removed", {REMOVED_KEY: True})


def _names(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)
