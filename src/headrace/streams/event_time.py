"""How a DataFrame says which of its columns is the event time, and how long to wait for late rows.

Both are kept in the column's metadata, which Spark carries along through filters and projections, as it does
with its own watermark. So operators find them without being told again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql.types import TimestampNTZType, TimestampType

from headrace.errors import PipelineError
from headrace.streams.time.durations import delay_us, duration_text
from headrace.streams.time.policies import (
    Adaptive,
    Bounded,
    Perfect,
    Policy,
    bounded,
    declared_column,
    from_json,
    perfect,
    to_json,
)
from headrace.streams.unended import is_unended
from headrace.streams.unions import merged_marks

EVENT_TIME_KEY: Final = "headrace.watermark"
"""In a column's metadata: it is the event time; with the watermark's JSON, or empty."""
_REQUIRED_KEY: Final = "headrace.required"
"""In the metadata of an event time: no row is without it."""
_SPARK_KEY: Final = "spark.watermarkDelayMs"


@dataclass(frozen=True, slots=True, kw_only=True)
class EventTime:
    """A column of event time."""

    column: str
    watermark: Policy | None
    """None if nobody has said how long to wait."""
    operator: str
    """Who asks."""

    @property
    def declared(self) -> str | None:
        """The column by which sources say how far they are; None where they don't."""
        return declared_column(self.watermark)

    def policy(self, rows: DataFrame) -> Policy:
        """How long to wait for late rows; in a batch that ends, until its end."""
        if not rows.isStreaming and not is_unended():
            return perfect()
        if self.watermark is None:
            raise PipelineError(
                f"{self.operator}: how long to wait for late rows by {self.column} is not known, so state "
                'would be kept for ever: describe the topic with watermark="30 seconds", or say so here'
            )
        if rows.isStreaming and isinstance(self.watermark, Perfect):
            raise PipelineError(
                f"{self.operator}: hr.perfect() waits for the end of the input, and a stream has none: use "
                'watermark="30 seconds", hr.adaptive(), or hr.declared(column)'
            )
        if is_unended() and isinstance(self.watermark, Adaptive):
            # How long it waited when is not known any more; it never waited longer than this.
            return Bounded(delay_us=self.watermark.at_most_us)
        return self.watermark


def mark_event_time(
    rows: DataFrame, column: str, watermark: str | Policy | None, *, is_required: bool = False
) -> DataFrame:
    """Say which column is the event time, and whether each row has one."""
    policy = "" if watermark is None else to_json(as_policy(watermark))
    told = {EVENT_TIME_KEY: policy, **({_REQUIRED_KEY: True} if is_required else {})}
    return rows.withMetadata(column, {**rows.schema[column].metadata, **told})


def is_required(rows: DataFrame, column: str) -> bool:
    """Whether no row can be without the column."""
    field = rows.schema[column]
    return not field.nullable or bool(field.metadata.get(_REQUIRED_KEY))


def keep_event_time(rows: DataFrame, result: DataFrame) -> DataFrame:
    """The result of an operator, in which the event time of its rows is known as such, if it is there."""
    kinds = {field.name: field.dataType for field in result.schema.fields}
    for field in rows.schema.fields:
        if EVENT_TIME_KEY in field.metadata and kinds.get(field.name) == field.dataType:
            result = result.withMetadata(field.name, {EVENT_TIME_KEY: field.metadata[EVENT_TIME_KEY]})
    return result


def find_event_time(
    rows: DataFrame, operator: str, column: str | None, watermark: str | Policy | None
) -> EventTime:
    """The event time that was asked for, or else the one that the rows are marked with."""
    name = column if column is not None else _marked(rows, operator)
    if name not in rows.columns:
        raise PipelineError(f"{operator}: event_time is {name!r}, which is none of {', '.join(rows.columns)}")
    kind = rows.schema[name].dataType
    if not isinstance(kind, TimestampType | TimestampNTZType):
        raise PipelineError(f"{operator}: event_time {name} is {kind.simpleString()}; use a timestamp")
    policy = as_policy(watermark) if watermark is not None else _watermark_of(rows, name)
    if watermark is None and policy is not None:
        _refuse_several(rows, operator, name)
    _check_declared(rows, operator, policy)
    return EventTime(column=name, watermark=policy, operator=operator)


def _refuse_several(rows: DataFrame, operator: str, column: str) -> None:
    """Refuse streams that were put together, and say different things of how long to wait."""
    marks = merged_marks(rows, EVENT_TIME_KEY)
    if marks:
        told = " and ".join(sorted(marks))
        raise PipelineError(
            f"{operator}: {column} comes from streams that were put together, and their watermarks differ: "
            f"{told}; say which one counts here: watermark=..."
        )


def _check_declared(rows: DataFrame, operator: str, policy: Policy | None) -> None:
    column = declared_column(policy)
    if column is not None and column not in rows.columns:
        raise PipelineError(
            f"{operator}: sources declare how far they are in the column {column!r}, which is none of "
            f"{', '.join(rows.columns)}: keep it in what the operator is given"
        )


def has_event_time(rows: DataFrame) -> bool:
    """Whether the rows are marked with one event time."""
    return len(_marks(rows)) == 1


def with_spark_watermark(rows: DataFrame, time: EventTime) -> DataFrame:
    """A stream whose event time has Spark's own watermark; raise if that is not what was asked for."""
    delay = spark_delay(time.policy(rows))
    marked_ms = rows.schema[time.column].metadata.get(_SPARK_KEY)
    if delay is None or marked_ms not in {None, delay_us(delay, "watermark") // 1000}:
        raise PipelineError(
            f"{time.operator}: Spark's own windows wait for late rows as the topic says: leave watermark "
            "out, and describe the topic with the one that you want"
        )
    return rows if marked_ms is not None else rows.withWatermark(time.column, delay)


def spark_delay(watermark: str | Policy) -> str | None:
    """How long Spark's own operators are to wait; None if its watermark can't express that."""
    policy = as_policy(watermark)
    if isinstance(policy, Bounded):
        return duration_text(policy.delay_us)
    return duration_text(policy.at_most_us) if isinstance(policy, Adaptive) else None


def watermark_text(watermark: str | Policy) -> str:
    """The watermark as it is noted down with a checkpoint."""
    return watermark if isinstance(watermark, str) else to_json(watermark)


def as_policy(watermark: str | Policy) -> Policy:
    """How long to wait, where it may have been told in words."""
    return bounded(watermark) if isinstance(watermark, str) else watermark


def _marked(rows: DataFrame, operator: str) -> str:
    marked = _marks(rows)
    if len(marked) == 1:
        return marked[0]
    problem = f"{', '.join(marked)} all are" if marked else "none of the columns is"
    raise PipelineError(
        f"{operator}: {problem} known as the event time: say event_time=..., or describe the topic with "
        'hr.topic(..., event_time="...", watermark="30 seconds")'
    )


def _marks(rows: DataFrame) -> list[str]:
    return [
        field.name for field in rows.schema.fields if {EVENT_TIME_KEY, _SPARK_KEY} & field.metadata.keys()
    ]


def _watermark_of(rows: DataFrame, column: str) -> Policy | None:
    metadata: dict[str, Any] = rows.schema[column].metadata
    if told := metadata.get(EVENT_TIME_KEY):
        return from_json(told)
    if _SPARK_KEY in metadata:
        return bounded(f"{metadata[_SPARK_KEY]} milliseconds")
    return None
