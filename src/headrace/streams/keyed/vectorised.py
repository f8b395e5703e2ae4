"""A user's function over keyed state, called once for each bucket of a micro-batch.

It is given the bucket's rows, in the order of the log, the state of all keys of the bucket, and how far event
time has come; and gives results and the state as it is now. The state is a table of the `by` columns and the
declared fields, with as many rows for a key as the function likes. State that is returned as the same object
is not written again.

It is called in each micro-batch, also for buckets without rows, so that it can act on time alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headrace.errors import PipelineError
from headrace.streams.buckets.logic import RESULTS, Arrivals, Step, Tables
from headrace.streams.keyed.calling import failure, place
from headrace.streams.keyed.clock import read_clock
from headrace.streams.keyed.fields import KEYS, Fields
from headrace.streams.time.policies import Policy
from headrace.streams.topic import METADATA_COLUMN


@dataclass(frozen=True, slots=True, kw_only=True)
class EventTime:
    """How far event time has come, in microseconds since 1970."""

    before_us: int
    """The watermark before the micro-batch: rows that are older are late."""
    watermark_us: int
    """The watermark after it: nothing older is waited for any more."""
    is_end: bool
    """Whether nothing can come any more: in batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Vectorised:
    """The logic."""

    fields: Fields
    returns: pa.Schema
    function: Callable[[pa.Table, pa.Table, EventTime], tuple[pa.Table | None, pa.Table]]
    event_time: str | None
    watermark: Policy

    def output_schemas(self, rows: pa.Schema) -> Mapping[str, pa.Schema]:  # noqa: ARG002 - a key has its type
        """The results' columns."""
        return {RESULTS: pa.schema([*self.fields.keys, *self.returns])}

    def step(self, state: Tables, arrivals: Arrivals) -> Step:
        """Step one bucket."""
        clock = read_clock(state, arrivals, event_time=self.event_time, watermark=self.watermark)
        before = self.fields.read(state.get(KEYS))
        time = EventTime(before_us=clock.before_us, watermark_us=clock.after_us, is_end=arrivals.is_end)
        made, after = self._call(arrivals.rows, before, time)
        outputs = (
            {}
            if made is None
            else {RESULTS: self._fitted(made, "results", self.output_schemas(made.schema)[RESULTS])}
        )
        if after is not before:
            after = self._fitted(after, "state", self.fields.schema)
        return Step(
            state={} if arrivals.is_end else {KEYS: after, **clock.kept},
            outputs=outputs,
            gauges=clock.gauges,
            time_report=clock.time_report,
        )

    def _call(self, rows: pa.Table, state: pa.Table, time: EventTime) -> tuple[pa.Table | None, pa.Table]:
        if METADATA_COLUMN in rows.column_names:
            rows = rows.drop_columns([METADATA_COLUMN])
        try:
            made: Any = self.function(rows, state, time)
        except Exception as error:
            keys = rows.select(self.fields.keys.names).slice(0, 3).to_pylist()
            given = f"{len(rows)} rows, the first of {keys}"
            raise failure(self.function, error, key="of the bucket", given=given) from error
        if not isinstance(made, tuple) or len(made) != 2 or not isinstance(made[1], pa.Table):
            raise PipelineError(
                f"{place(self.function)}: it gave {type(made).__name__}; return (results, state), two tables"
            )
        if made[0] is not None and not isinstance(made[0], pa.Table):
            raise PipelineError(
                f"{place(self.function)}: its results are a {type(made[0]).__name__}, no table"
            )
        return made

    def _fitted(self, table: pa.Table, told: str, schema: pa.Schema) -> pa.Table:
        """The table with the declared columns, in their order."""
        if set(table.column_names) != set(schema.names) or len(table.column_names) != len(schema.names):
            raise PipelineError(
                f"{place(self.function)}: its {told} have the columns {', '.join(table.column_names)}; "
                f"declared are {', '.join(schema.names)}"
            )
        try:
            return table.select(schema.names).cast(schema)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
            raise PipelineError(f"{place(self.function)}: its {told} don't fit: {error}") from error
