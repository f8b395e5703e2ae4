"""Aggregates over windows of event time: `hr.window(rows, hr.tumbling("1 minute"), by="card_id").agg(...)`.

The result has the columns of `by`, `window` (a struct of start and end), the aggregates, and `firing`: a row
is an "early" result, the one that is given "on_time", or a "late" correction. A correction that takes
back what it replaces is two rows; `retracted` tells them apart.

Count, sum, mean, min and max of Spark's functions and the aggregates of this package are computed by windows
of our own, with every kind of window, trigger and late policy. Any other aggregate of Spark is left to
Spark's own windows: tumbling and hopping ones, whose results come out whenever they change (`firing` is
"update"), and which leave late rows out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that every PySpark user knows

from headrace.errors import PipelineError
from headrace.streams.buckets.logic import LATE
from headrace.streams.buckets.operator import BUCKET_COUNT
from headrace.streams.event_time import EventTime, find_event_time
from headrace.streams.plans.results import FIRING_KEY, IDENTITY_KEY
from headrace.streams.recognise import ARGUMENT_PREFIX, Recognised, recognise
from headrace.streams.spark_windows import windows_by_spark
from headrace.streams.stateful import Stateful
from headrace.streams.time.policies import Policy, perfect
from headrace.streams.topic import METADATA_COLUMN
from headrace.streams.windows.aggregate import Aggregate
from headrace.streams.windows.kinds import GlobalWindow, Kind, kind_text
from headrace.streams.windows.late import LatePolicy, SideOutput, Update, after_all, drop
from headrace.streams.windows.logics import window_logic
from headrace.streams.windows.triggers import Each, Trigger, on_time

_TITLE: Final = "hr.window"
_OWN_COLUMNS: Final = ("window", "firing", "retracted")
_ALL: Final = f"{ARGUMENT_PREFIX}all"
"""The key of all rows, where they are not grouped by columns."""


def window(  # noqa: PLR0913 - each is a property of windows, given by name
    rows: DataFrame,
    kind: Kind,
    *,
    by: str | Sequence[str] = (),
    late: LatePolicy | None = None,
    trigger: Trigger | None = None,
    event_time: str | None = None,
    watermark: str | Policy | None = None,
    buckets: int = BUCKET_COUNT,
) -> Windowed:
    """Group rows by columns and windows of their event time; call `agg` on what it returns.

    `late` says what becomes of rows that come when their windows have ended: `hr.drop` counts them,
    `hr.side_output(topic)` writes them to a topic, `hr.update(within=...)` lets windows fire again. If
    nothing is said they go to the topic `<pipeline>.late`, or `<pipeline>.late-2` for the second operator
    of a pipeline. Event time and watermark are those of the topic that the rows come from, unless they are
    given here.
    """
    keys = (by,) if isinstance(by, str) else tuple(by)
    if not keys:
        rows, keys = rows.withColumn(_ALL, F.lit(0)), (_ALL,)
    if clash := set(keys).intersection(_OWN_COLUMNS):
        raise PipelineError(f"{_TITLE}: it makes the column {min(clash)} itself; rename yours")
    has_time = not isinstance(kind, GlobalWindow)
    time = find_event_time(rows, _TITLE, event_time, watermark) if has_time else None
    stateful = Stateful(
        title=_TITLE,
        rows=rows,
        by=keys,
        event_time=None if time is None else time.column,
        buckets=buckets,
        declared=None if time is None else time.declared,
    )
    return Windowed(stateful=stateful, kind=kind, time=time, late=late, trigger=trigger or on_time())


@dataclass(frozen=True, slots=True, kw_only=True)
class Windowed:
    """Rows in windows. Call `agg`."""

    stateful: Stateful
    kind: Kind
    time: EventTime | None
    late: LatePolicy | None
    trigger: Trigger

    @property
    def rows(self) -> DataFrame:
        """The rows that are in windows."""
        return self.stateful.rows

    @property
    def by(self) -> tuple[str, ...]:
        """What they are grouped by."""
        return self.stateful.by

    def agg(self, *aggregates: Column | Aggregate) -> DataFrame:
        """The aggregates of each window: `F.count("*").alias("count")`, `hr.percentile("ms", 0.99)`, ..."""
        if not aggregates:
            raise PipelineError(f"{_TITLE}(...).agg() was given nothing to compute: give an aggregate")
        found = recognise(self.rows, aggregates)
        result = (
            windows_by_spark(self, aggregates, found.unknown) if found.unknown else self._by_windows(found)
        )
        identity = [name for name in (*self.by, "window") if name != _ALL]
        result = result.drop(_ALL).withMetadata("firing", {FIRING_KEY: True})
        for name in identity:
            result = result.withMetadata(name, {IDENTITY_KEY: len(identity)})
        return result

    def _by_windows(self, found: Recognised) -> DataFrame:
        _check_names(self.by, found.aggregates)
        late = drop if self.time is None and self.late is None else self.stateful.late_policy(self.late)
        logic = window_logic(
            self.kind,
            by=self.by,
            time=self.stateful.event_time,
            aggregates=tuple(found.aggregates),
            watermark=perfect() if self.time is None else self.time.policy(self.rows),
            late=late,
            trigger=self.trigger,
        )
        rest = after_all(late)
        kept = {each.name: found.definition(each) for each in found.aggregates}
        settings = {
            "event time": self.stateful.event_time or "none",
            "retract": str(isinstance(late, Update) and late.retract),
        }
        if isinstance(self.trigger, Each):
            settings["accumulate"] = str(self.trigger.accumulate)
        described = self.stateful.described(kind_text(self.kind), kept, settings)
        rows = self._prepared(found, keep_all=isinstance(rest, SideOutput))
        return self.stateful.run(rows, logic, described, {LATE: rest})

    def _prepared(self, found: Recognised, *, keep_all: bool) -> DataFrame:
        """The rows with the columns that are computed for aggregates; all of them if late ones are kept."""
        made = self.rows.withColumns(found.arguments)
        if keep_all:
            return made
        times = {self.stateful.event_time, self.stateful.declared}
        wanted = {*self.by, *found.reads, *times, METADATA_COLUMN}
        if isinstance(self.trigger, Each):
            wanted.add(self.trigger.where)
        return made.select(*(name for name in made.columns if name in wanted))


def _check_names(by: Sequence[str], aggregates: Sequence[Aggregate]) -> None:
    names = [*by, *(each.name for each in aggregates), *_OWN_COLUMNS]
    for name in names:
        if names.count(name) > 1:
            raise PipelineError(f"{_TITLE}: two columns of its result are called {name}: use .alias(...)")
