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
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame

from headrace.errors import PipelineError
from headrace.streams.buckets.logic import LATE, Logic
from headrace.streams.buckets.operator import BUCKET_COUNT, run_logic
from headrace.streams.building import current_building
from headrace.streams.event_time import EventTime, find_event_time
from headrace.streams.plans import Operator, Part
from headrace.streams.recent import REALTIME_SETTING
from headrace.streams.recognise import ARGUMENT_PREFIX, Recognised, recognise
from headrace.streams.side_files import SideFiles
from headrace.streams.spark_windows import windows_by_spark
from headrace.streams.time.policies import Policy, perfect
from headrace.streams.topic import METADATA_COLUMN, Topic
from headrace.streams.windows.aggregate import Aggregate
from headrace.streams.windows.kinds import GlobalWindow, Kind, kind_text
from headrace.streams.windows.late import LatePolicy, SideOutput, Update, after_all, drop
from headrace.streams.windows.logics import window_logic
from headrace.streams.windows.triggers import Each, Trigger, on_time

WINDOW_COLUMN: Final = "window"
FIRING_COLUMN: Final = "firing"
RETRACTED_COLUMN: Final = "retracted"
_OWN_COLUMNS: Final = (WINDOW_COLUMN, FIRING_COLUMN, RETRACTED_COLUMN)


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
    nothing is said they go to the topic `<pipeline>.late`. Event time and watermark are those of the topic
    that the rows come from, unless they are given here.
    """
    keys = (by,) if isinstance(by, str) else tuple(by)
    missing = [name for name in keys if name not in rows.columns]
    if missing:
        raise PipelineError(f"hr.window: there is no column {missing[0]!r} among {', '.join(rows.columns)}")
    if clash := set(keys).intersection(_OWN_COLUMNS):
        raise PipelineError(
            f"hr.window: it makes the columns {', '.join(sorted(clash))} itself; rename yours"
        )
    time = None if _has_no_time(kind) else find_event_time(rows, "hr.window", event_time, watermark)
    return Windowed(
        rows=rows, kind=kind, by=keys, time=time, late=late, trigger=trigger or on_time(), buckets=buckets
    )


def _has_no_time(kind: Kind) -> bool:
    return isinstance(kind, GlobalWindow)


@dataclass(frozen=True, slots=True, kw_only=True)
class Windowed:
    """Rows in windows. Call `agg`."""

    rows: DataFrame
    kind: Kind
    by: tuple[str, ...]
    time: EventTime | None
    late: LatePolicy | None
    trigger: Trigger
    buckets: int

    def agg(self, *aggregates: Column | Aggregate) -> DataFrame:
        """The aggregates of each window: `F.count("*").alias("count")`, `hr.percentile("ms", 0.99)`, ..."""
        if not aggregates:
            raise PipelineError("hr.window(...).agg() was given nothing to compute: give an aggregate")
        found = recognise(self.rows, aggregates)
        if found.unknown:
            return windows_by_spark(self, aggregates, found.unknown)
        _check_names(self.by, found.aggregates)
        if self.rows.isStreaming:
            return self._streaming(found)
        # Nothing is late in a batch, but the columns must be those of the stream.
        late = replace(self.late, then=drop) if isinstance(self.late, Update) else drop
        return self._run(self._prepared(found, keep_all=False), self._logic(found, perfect(), late), "window")

    def _streaming(self, found: Recognised) -> DataFrame:
        if self.rows.sparkSession.conf.get(REALTIME_SETTING, "false") == "true":
            raise PipelineError(
                "hr.window keeps its state in Python, which real-time mode can't run: use hr.recent, or run "
                "without --realtime, in micro-batches"
            )
        building = current_building("hr.window")
        name = building.name_operator("window")
        late = self.late or _default(self.kind, building.pipeline)
        logic = self._logic(found, self._watermark(), late)
        building.operators.append(self._described(found))
        rest = after_all(late)
        side = None
        if isinstance(rest, SideOutput):
            building.side_topics[name] = Topic(name=rest.topic, key=self.by[0] if len(self.by) == 1 else None)
            side = LateRows(files=SideFiles.of(building.checkpoint, name))
        prepared = self._prepared(found, keep_all=side is not None)
        return self._run(prepared, logic, name, side)

    def _logic(self, found: Recognised, watermark: Policy, late: LatePolicy) -> Logic:
        return window_logic(
            self.kind,
            by=self.by,
            time=None if self.time is None else self.time.column,
            aggregates=tuple(found.aggregates),
            late=late,
            trigger=self.trigger,
            watermark=watermark,
        )

    def _watermark(self) -> Policy:
        if self.time is None:
            return perfect()
        if self.time.watermark is None:
            raise PipelineError(
                f"hr.window: how long to wait for late rows by {self.time.column} is not known, so no window "
                'would ever end: describe the topic with watermark="30 seconds", or say so here'
            )
        return self.time.watermark

    def _run(self, rows: DataFrame, logic: Logic, name: str, side: LateRows | None = None) -> DataFrame:
        return run_logic(
            rows,
            logic,
            by=self.by,
            event_time=None if self.time is None else self.time.column,
            name=name,
            buckets=self.buckets,
            side=side,
        )

    def _prepared(self, found: Recognised, *, keep_all: bool) -> DataFrame:
        """The rows with the columns that are computed for aggregates; all of them if late ones are kept."""
        made = self.rows.withColumns(found.arguments)
        if keep_all:
            return made
        wanted = {*self.by, *found.reads, METADATA_COLUMN}
        if self.time is not None:
            wanted.add(self.time.column)
        if isinstance(self.trigger, Each) and self.trigger.where is not None:
            wanted.add(self.trigger.where)
        return made.select(*(name for name in made.columns if name in wanted))

    def _described(self, found: Recognised) -> Operator:
        """For the check whether a changed pipeline can go on from its checkpoint."""
        schema = self.rows.schema
        keys = [
            Part(
                text=name,
                typed=(typed := f"{name}: {schema[name].dataType.simpleString()}"),
                definition=typed,
            )
            for name in self.by
        ]
        kept = [
            Part(text=each.name, typed=(shown := found.definition(each)), definition=shown)
            for each in found.aggregates
        ]
        return Operator(kind=kind_text(self.kind), keys=tuple(keys), state=tuple(kept))


@dataclass(frozen=True, slots=True, kw_only=True)
class LateRows:
    """Takes late rows to files, from where they are written to their topic. Travels to the executors."""

    files: SideFiles

    def __call__(self, output: str, batch_id: int, task: int, rows: pa.Table) -> None:
        """Keep a task's late rows of a batch."""
        assert output == LATE, "windows have no other output beside their results"
        made = [name for name in rows.column_names if name.startswith(ARGUMENT_PREFIX)]
        self.files.write(batch_id, str(task), rows.drop_columns(made))


def _default(kind: Kind, pipeline: str) -> LatePolicy:
    """No row is late for a window that does not end."""
    return drop if isinstance(kind, GlobalWindow) else SideOutput(topic=f"{pipeline}.late")


def _check_names(by: Sequence[str], aggregates: Sequence[Aggregate]) -> None:
    names = [*by, *(each.name for each in aggregates), *_OWN_COLUMNS]
    for name in names:
        if names.count(name) > 1:
            raise PipelineError(f"hr.window: two columns of its result are called {name}: use .alias(...)")
