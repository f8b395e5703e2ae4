"""`hr.keyed`: a user's Python function over state that is kept by key.

    def count(key, row, state):
        state["count"] += 1
        if row["amount"] > 1000:
            yield {"count": state["count"]}

    @dataclass
    class Seen:
        count: int = 0

    hr.keyed(transactions, by="card_id", step=count, state=Seen, returns="count bigint")

State is in Spark's checkpoint: what a batch has changed counts once the batch is done, and only once. It is
kept in buckets, not by key, which is what makes it fast: see headrace.streams.buckets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.errors import ParseException
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from headrace.errors import PipelineError
from headrace.streams.buckets.operator import BUCKET_COUNT
from headrace.streams.event_time import find_event_time, has_event_time
from headrace.streams.failure import first_line
from headrace.streams.keyed.calling import parameter_count
from headrace.streams.keyed.fields import Fields
from headrace.streams.keyed.per_event import INTERNAL, PerEvent
from headrace.streams.keyed.vectorised import EventTime, Vectorised
from headrace.streams.schema import schema_ddl, state_defaults
from headrace.streams.stateful import Stateful
from headrace.streams.time.durations import Duration, duration_text, duration_us
from headrace.streams.time.policies import Policy, declared_column, perfect
from headrace.streams.windows.keys import key_codes

VectorisedFunction = Callable[[pa.Table, pa.Table, EventTime], tuple[pa.Table | None, pa.Table]]


@dataclass(frozen=True, slots=True)
class VectorisedStep:
    """A step that takes a whole bucket at once. Make one with `@vectorised`."""

    function: VectorisedFunction

    def __call__(self, rows: pa.Table, state: pa.Table, time: EventTime) -> tuple[pa.Table | None, pa.Table]:
        """Call the function itself."""
        return self.function(rows, state, time)


def vectorised(function: VectorisedFunction) -> VectorisedStep:
    """Mark a step of `keyed` that takes all rows and all state of a bucket at once, as Arrow tables.

        @hr.vectorised
        def step(rows, state, time):
            ...
            return results, state

    `state` has the `by` columns and the declared fields, and as many rows for a key as the function likes;
    results have the `by` columns and those of `returns`. It is called in each micro-batch, also without rows;
    `time.watermark_us` says how far event time has come.
    """
    return VectorisedStep(function)


def keyed(  # noqa: PLR0913 - each is a property of the operator, given by name
    rows: DataFrame,
    *,
    by: str | Sequence[str],
    step: Callable[..., Any],
    state: str | type,
    returns: str | type,
    event_time: str | None = None,
    watermark: str | Policy | None = None,
    ttl: Duration | None = None,
    on_timer: Callable[..., Any] | None = None,
    name: str | None = None,
    buckets: int = BUCKET_COUNT,
) -> DataFrame:
    """What `step` makes of the rows of each key, in the order of the log: the `by` columns, and `returns`.

    `step(key, row, state)` is called for each row, or `step(key, row, state, timers)`:

    - `key` is the value of the column `by`, or a tuple where there are several.
    - `row` is a dict of the row's columns, without `_kafka`.
    - `state` is a dict of the declared fields. What the function changes in it is kept for the key's next
      row. `state.clear()` forgets the key.
    - `timers.set(at, name)` has `on_timer(key, timer, state, timers)` called once event time has come to
      `at`; `timers.cancel(name)` takes it back. `timer` has a `name` and a time, `at`.
    - Both yield results as dicts, or return one, a list of them, or None.

    A step that is marked with `@hr.vectorised` is called once for each bucket instead.

    `state` and `returns` are Spark's DDL or a dataclass. The fields of a dataclass need defaults, which a new
    key begins with; those of DDL begin as null. A field can be added later; what is kept so far gets its
    default.

    With `ttl`, a key is forgotten when event time has come so far past its newest row. `event_time` and
    `watermark` are the topic's, where it has them; timers and `ttl` need them.

    On a batch DataFrame the results are the same; timers fire as they would if event time went on for ever.
    """
    columns = (by,) if isinstance(by, str) else tuple(by)
    told = name or _name_of(step)
    is_needed = ttl is not None or on_timer is not None
    time, policy = _time(rows, told, event_time, watermark, is_needed=is_needed)
    declared = _Declared(
        fields=Fields(
            operator=told,
            keys=_keys(rows, columns, told),
            kept=declared_schema(state, f"{told}: state", with_defaults=True),
            defaults={} if isinstance(state, str) else state_defaults(state),
            internal={} if isinstance(step, VectorisedStep) else INTERNAL,
        ),
        returns=_returned(returns, columns, told),
        event_time=time,
        watermark=policy,
    )
    if isinstance(step, VectorisedStep):
        if ttl is not None or on_timer is not None:
            raise PipelineError(f"{told}: a vectorised step has no ttl and no timers: it is told the time")
        logic: PerEvent | Vectorised = declared.vectorised(step)
    else:
        logic = declared.per_event(step, on_timer, ttl, one_key=isinstance(by, str))
    operator = Stateful(
        title=told,
        rows=rows,
        by=columns,
        event_time=time,
        buckets=buckets,
        declared=declared_column(policy),
    )
    # What is kept may grow by fields, and is compared where it is read.
    return operator.run(rows, logic, operator.described("hr.keyed", {}, _settings(ttl, time, told)))


def _settings(ttl: Duration | None, event_time: str | None, told: str) -> dict[str, str]:
    """What the state was made for, in words. Nothing where keys are kept for ever."""
    if ttl is None:
        return {}
    return {"ttl": duration_text(duration_us(ttl, f"{told}: ttl")), "event time": str(event_time)}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Declared:
    """What both forms are told."""

    fields: Fields
    returns: pa.Schema
    event_time: str | None
    watermark: Policy

    def vectorised(self, step: VectorisedStep) -> Vectorised:
        return Vectorised(
            fields=self.fields,
            returns=self.returns,
            function=step.function,
            event_time=self.event_time,
            watermark=self.watermark,
        )

    def per_event(
        self,
        step: Callable[..., Any],
        on_timer: Callable[..., Any] | None,
        ttl: Duration | None,
        *,
        one_key: bool,
    ) -> PerEvent:
        told = self.fields.operator
        takes_timers = parameter_count(step, f"{told}: step", (3, 4)) == 4
        if on_timer is not None:
            parameter_count(on_timer, f"{told}: on_timer", (4,))
        elif takes_timers:
            raise PipelineError(
                f"{told}: step takes timers, and nothing is called when they fire: give on_timer"
            )
        return PerEvent(
            fields=self.fields,
            returns=self.returns,
            function=step,
            takes_timers=takes_timers,
            on_timer=on_timer,
            one_key=one_key,
            event_time=self.event_time,
            ttl_us=None if ttl is None else duration_us(ttl, f"{told}: ttl"),
            watermark=self.watermark,
        )


def _name_of(step: Callable[..., Any]) -> str:
    function = step.function if isinstance(step, VectorisedStep) else step
    return str(getattr(function, "__name__", "keyed"))


def _keys(rows: DataFrame, columns: Sequence[str], told: str) -> pa.Schema:
    missing = [column for column in columns if column not in rows.columns]
    if missing or not columns:
        raise PipelineError(
            f"{told}: by is {', '.join(map(repr, columns)) or 'empty'}; name columns among "
            f"{', '.join(rows.columns)}"
        )
    schema = to_arrow_schema(rows.select(*columns).schema, timezone="UTC")
    # Refuses what can't be a key.
    key_codes([schema.empty_table()], columns)
    return _nullable(schema)


def _returned(returns: str | type, columns: Sequence[str], told: str) -> pa.Schema:
    """The columns that results have beside those of `by`."""
    schema = declared_schema(returns, f"{told}: returns")
    for column in columns:
        if column in schema.names:
            raise PipelineError(
                f"{told}: results have the column {column!r} already: leave it out of returns"
            )
    return schema


def declared_schema(schema: str | type, told: str, *, with_defaults: bool = False) -> pa.Schema:
    """Columns that are declared by Spark's DDL or a dataclass, as Arrow has them."""
    ddl = schema_ddl(schema, with_defaults=with_defaults)
    try:
        parsed = StructType.fromDDL(ddl)
    except ParseException as error:
        raise PipelineError(
            f"{told} can't be read ({first_line(error)}): write it as column type, column type, ...; it is "
            f"{ddl!r}"
        ) from error
    if not isinstance(parsed, StructType):
        raise PipelineError(f"{told} is a single type: write column type, ...")
    return _nullable(to_arrow_schema(parsed, timezone="UTC"))


def _nullable(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(field.name, field.type) for field in schema])


def _time(
    rows: DataFrame, told: str, event_time: str | None, watermark: str | Policy | None, *, is_needed: bool
) -> tuple[str | None, Policy]:
    """The column of event time, and how far it is known to be complete."""
    if event_time is None and not is_needed and not has_event_time(rows):
        return None, perfect()
    found = find_event_time(rows, told, event_time, watermark)
    if found.watermark is None and is_needed and rows.isStreaming:
        raise PipelineError(
            f"{told}: how long to wait for late rows by {found.column} is not known, so event time would "
            'never go on: describe the topic with watermark="30 seconds", or say so here'
        )
    return found.column, found.watermark or perfect()
