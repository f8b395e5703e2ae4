"""`hr.join`: the rows of two streams that have the same key, and event times that are near."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

from headrace.errors import PipelineError
from headrace.streams.buckets.logic import LATE
from headrace.streams.buckets.operator import BUCKET_COUNT
from headrace.streams.event_time import EventTime, find_event_time, mark_event_time
from headrace.streams.joins.interval import SIDE_COLUMN, IntervalJoin
from headrace.streams.joins.sides import DECLARED, LEFT, RIGHT, TIME
from headrace.streams.joins.within import HOWS, How, Within
from headrace.streams.plans.results import AWAITED_KEY
from headrace.streams.put_together import JoinSide, check_keys, put_together, times_beside
from headrace.streams.stateful import Stateful
from headrace.streams.time.policies import Policy
from headrace.streams.time_only import time_only
from headrace.streams.topic import METADATA_COLUMN
from headrace.streams.windows.late import Drop, SideOutput

_TITLE: Final = "hr.join"
_ONLY_LEFT: Final = {"semi", "anti"}


def join(  # noqa: PLR0913 - each is a property of the operator, given by name
    left: DataFrame,
    right: DataFrame,
    *,
    on: str | Sequence[str],
    within: Within,
    how: How = "inner",
    late: Drop | SideOutput | None = None,
    event_times: tuple[str, str] | None = None,
    watermarks: tuple[str | Policy, str | Policy] | None = None,
    buckets: int = BUCKET_COUNT,
) -> DataFrame:
    """Join two streams: `hr.join(impressions, clicks, on="ad_id", within=hr.between(after="1 hour"))`.

    Rows belong together whose `on` columns are equal, and whose event times are as near as `within` says. A
    pair comes out as soon as both rows are there; a row that `how` gives without company, once the watermarks
    of both streams say that none can come any more. A null in `on` equals nothing.

    The results have the `on` columns, the others of the left, and those of the right; `semi` and `anti` give
    the columns of the left. `_kafka` is not among them, since a result has two places. Each side has the
    event time and the watermark of its topic, unless `event_times` or `watermarks` say otherwise, the left's
    first. A row that is behind both watermarks is late, and goes where `late` says: the topic
    `<pipeline>.late` if nothing is said.
    """
    keys = (on,) if isinstance(on, str) else tuple(on)
    _check(left, right, keys, within, how)
    times = event_times or (None, None)
    waits = watermarks or (None, None)
    found = [
        find_event_time(rows, f"{_TITLE} ({side})", times[number], waits[number])
        for number, (side, rows) in enumerate(((LEFT, left), (RIGHT, right)))
    ]
    kinds = {
        rows.schema[time.column].dataType.typeName() for rows, time in zip((left, right), found, strict=True)
    }
    if len(kinds) > 1:
        raise PipelineError(f"{_TITLE}: the event times are {' and '.join(sorted(kinds))}: cast one of them")
    sides = (
        _side(LEFT, left, _others(left, keys), found[0]),
        _side(RIGHT, right, () if how in _ONLY_LEFT else _others(right, keys), found[1]),
    )
    both = put_together(sides, keys)
    operator = Stateful(
        title=_TITLE,
        rows=both,
        by=keys,
        event_time=TIME,
        buckets=buckets,
        declared=DECLARED if DECLARED in both.columns else None,
    )
    rest = operator.late_policy(late)
    logic = IntervalJoin(
        by=keys,
        left=sides[0].columns,
        right=sides[1].columns,
        within=within,
        how=how,
        watermarks={side.name: time.policy(side.rows) for side, time in zip(sides, found, strict=True)},
        late=rest,
    )
    kept = {
        f"{side.name}.{name}": side.rows.schema[name].dataType.simpleString()
        for side in sides
        for name in side.columns
    }
    settings = {"how": how, "within": within.text, "event times": " and ".join(each.column for each in found)}
    described = operator.described("join", kept, settings)
    with time_only([each for side in sides for each in times_beside(side)]):
        result = operator.run(both, logic, described, {LATE: rest})
    return _with_event_time(_awaited(result, how), how, found[0].column, found[1].column)


def _awaited(result: DataFrame, how: How) -> DataFrame:
    """Say that rows without company are given when time has come so far, which a replay may see later."""
    if how in {"inner", "semi"}:
        return result
    return result.select(*(F.col(name).alias(name, metadata={AWAITED_KEY: True}) for name in result.columns))


def _side(name: str, rows: DataFrame, columns: tuple[str, ...], time: EventTime) -> JoinSide:
    return JoinSide(name=name, rows=rows, columns=columns, time=F.col(time.column), declared=time.declared)


def _with_event_time(result: DataFrame, how: How, left: str, right: str) -> DataFrame:
    """How long to wait for results is not said: rows without company come later than others."""
    if how == "full":
        return result
    return mark_event_time(result, right if how == "right" else left, None)


def _others(rows: DataFrame, keys: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in rows.columns if name not in {*keys, METADATA_COLUMN})


def _check(left: DataFrame, right: DataFrame, keys: tuple[str, ...], within: Within, how: How) -> None:
    if how not in HOWS:
        raise PipelineError(f"{_TITLE}: how is {how!r}; there are {', '.join(HOWS)}")
    if not isinstance(within, Within):
        raise PipelineError(f'{_TITLE}: within is {within!r}; write hr.between(after="1 hour")')
    if left.isStreaming != right.isStreaming:
        raise PipelineError(
            f"{_TITLE}: one side is a stream, and the other is not: Spark's own join takes a table that does "
            'not change, as in rows.join(F.broadcast(table), "id")'
        )
    check_keys(_TITLE, {"left side": left, "right side": right}, keys)
    taken = set() if how in _ONLY_LEFT else set(_others(left, keys)).intersection(_others(right, keys))
    if taken:
        name = min(taken)
        raise PipelineError(
            f"{_TITLE}: both sides have a column {name!r}: drop one, or rename it, as in "
            f'.withColumnRenamed("{name}", "right_{name}")'
        )
    if SIDE_COLUMN in {*left.columns, *right.columns}:
        raise PipelineError(f"{_TITLE}: late rows get a column {SIDE_COLUMN!r}, which these have: rename it")
