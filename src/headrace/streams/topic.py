"""What a pipeline knows of a topic: a frozen description that opens nothing.

Rows of a topic have the columns of its format:

    json     the schema's columns; a record that is no JSON object of the schema is a dead letter
    text     value string; a record that is not UTF-8, or has no value, is a dead letter
    bytes    value binary; every record is a row, one without a value as null

    upsert     the schema's columns and `_change`: a record is what the row of its key is now; one without a
               value says that the row is gone
    debezium   the same, of change events in Debezium's format; hr.changes makes a changelog of either

    debezium-transactions
               where a capture's transactions begin and end, for hr.aligned; see transaction_format.py

and one more, `_kafka`, that tells where the row came from, as Spark's own `_metadata` does for files:

    _kafka struct<key binary, topic string, partition int, offset bigint, timestamp timestamp,
                  headers array<struct<key string, value binary>>>

`_kafka` is never written: a record gets its own key, offset and timestamp when it is produced.

One description may name several topics that are read as one stream: `_kafka.topic` tells them apart. Each
of them has dead letters of its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, Literal, get_args

from headrace.config import check_topic_name
from headrace.errors import ConfigError
from headrace.streams.schema import schema_ddl
from headrace.streams.time.durations import delay_us
from headrace.streams.time.policies import Policy

METADATA_COLUMN: Final = "_kafka"
VALUE_COLUMN: Final = "value"
"""The column that a record's value is in where the format has no columns of its own."""
CHANGE_COLUMN: Final = "_change"
"""What a record of a table's changes tells of the change; see change_formats.py."""
DEAD_LETTERS_SUFFIX: Final = ".dead-letters"

_QUERY_STEM_LENGTH_MAX: Final = 235
"""So that the name of a query, with what it gets appended, still is the name of a file."""

Format = Literal["json", "text", "bytes", "upsert", "debezium", "debezium-transactions"]
WITH_SCHEMA: Final = ("json", "upsert", "debezium")
"""The formats whose columns are the schema's."""
OF_CHANGES: Final = ("upsert", "debezium")
"""The formats whose records are changes of a table."""
OF_TRANSACTIONS: Final = "debezium-transactions"
"""The format whose records tell where transactions begin and end."""
Start = Literal["earliest", "latest"] | datetime | Mapping[int, int]
"""Where to start: at either end, at a time, or at an offset of each partition (others: at their first)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic as pipelines read or write it. Make one with `topic(...)`."""

    name: str
    others: tuple[str, ...] = ()
    """Topics that are read as one stream with it."""
    schema: str | None = None
    """The columns in Spark's DDL: `tx_id string not null, amount double`. Needed to read a topic of JSON."""
    format: Format = "json"
    """What a record's value is."""
    key: tuple[str, ...] = ()
    """The column that becomes the record's key when the topic is written, as text, or several, as a JSON
    object; of changes, the table's key."""
    event_time: str | None = None
    """The column that holds the time at which a row's event happened."""
    watermark: str | Policy | None = None
    """How long to wait for late rows, such as `30 seconds`, or by which policy."""
    max_ahead: str | None = None
    """How far event times may lie behind the moment at which their record was written, such as `1 hour`; a
    record that is further ahead is a dead letter. None for as far as they like."""
    start: Start = field(default="earliest", hash=False)
    """Where a pipeline that has no checkpoint yet starts to read."""
    partitions: int | None = None
    """How many partitions the topic gets if it has to be created."""
    max_records_per_batch: int | None = None
    """The most that one micro-batch reads of it; None leaves that to the run."""

    def __post_init__(self) -> None:
        for name in self.names:
            check_topic_name(name)
        if len(set(self.names)) < len(self.names):
            raise ConfigError(f"{', '.join(self.names)}: name each topic once")
        self._check_columns()
        self._check_start()
        for count in ("partitions", "max_records_per_batch"):
            value: int | None = getattr(self, count)
            if value is not None and value < 1:
                raise ConfigError(f"topic {self.name}: {count} is {value}; use at least 1")

    def _check_columns(self) -> None:
        if self.format not in get_args(Format):
            raise ConfigError(
                f"topic {self.name}: format is {self.format!r}; use {', '.join(get_args(Format))}"
            )
        if self.format not in WITH_SCHEMA and (self.schema is not None or self.event_time is not None):
            has = (
                "columns of its own" if self.format == OF_TRANSACTIONS else f"the one column {VALUE_COLUMN!r}"
            )
            raise ConfigError(
                f"topic {self.name} is read as {self.format}, which has {has}: leave out schema and "
                "event_time, and take the value apart in the pipeline"
            )
        if len(set(self.key)) < len(self.key):
            raise ConfigError(f"topic {self.name} has a column twice in its key: {', '.join(self.key)}")
        if self.format in OF_CHANGES and (not self.key or self.max_ahead is not None):
            raise ConfigError(
                f"topic {self.name} is read as {self.format}, as changes of a table: give it the key "
                "that tells the table's rows apart, and leave out max_ahead"
            )
        if self.watermark is not None and self.event_time is None:
            raise ConfigError(
                f"topic {self.name} has a watermark but no event_time: name the column that it is measured by"
            )
        if self.max_ahead is not None:
            if self.event_time is None:
                raise ConfigError(
                    f"topic {self.name} has max_ahead but no event_time: name the column that it is about"
                )
            delay_us(self.max_ahead, f"topic {self.name}: max_ahead")
        if isinstance(self.watermark, str):
            delay_us(self.watermark, f"topic {self.name}: watermark")
        if self.event_time is not None and self.schema is None:
            raise ConfigError(f"topic {self.name} has an event_time but no schema: give the schema as well")

    def _check_start(self) -> None:
        start = self.start
        if isinstance(start, datetime):
            if start.tzinfo is None:
                raise ConfigError(
                    f"topic {self.name}: the start {start.isoformat()} has no time zone: write "
                    "datetime(..., tzinfo=UTC)"
                )
        elif isinstance(start, Mapping):
            if self.others:
                raise ConfigError(
                    f"{', '.join(self.names)}: offsets to start from belong to one topic: describe the "
                    "topics one by one"
                )
            if not start or any(partition < 0 or offset < 0 for partition, offset in start.items()):
                raise ConfigError(
                    f"topic {self.name}: start is {dict(start)}; write {{partition: offset, ...}}, none of "
                    "them negative"
                )
        elif start not in {"earliest", "latest"}:
            raise ConfigError(
                f"topic {self.name}: start is {start!r}; use earliest, latest, a datetime, or "
                "{partition: offset, ...}"
            )

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all topics that are read as this one."""
        return (self.name, *self.others)

    def each(self) -> tuple[Topic, ...]:
        """The same description for each of its topics alone."""
        return tuple(replace(self, name=name, others=()) for name in self.names)

    @property
    def has_dead_letters(self) -> bool:
        """Whether there are records of which the format can't make a row."""
        return self.format != "bytes"

    @property
    def dead_letters(self) -> str:
        """The topic that takes the records of this one that can't be decoded."""
        return self.name + DEAD_LETTERS_SUFFIX

    @property
    def dead_letters_query(self) -> str:
        """The name of the query that takes them there: another schema leaves others, so it is part of it."""
        described = f"{self.name} {' '.join((self.schema or self.format).split())}"
        if self.format in OF_CHANGES:
            described += f" as {self.format} by {', '.join(self.key)}"
        if self.max_ahead is not None:
            described += f" {self.event_time} at most {self.max_ahead} ahead"
        digest = hashlib.sha256(described.encode()).hexdigest()[:8]
        return f"{self.dead_letters[:_QUERY_STEM_LENGTH_MAX]}-{digest}"


def topic(  # noqa: PLR0913 - each is a property of a topic, given by name
    name: str | Sequence[str],
    *,
    schema: str | type | None = None,
    format: Format = "json",  # noqa: A002 - what Spark calls it as well
    key: str | Sequence[str] | None = None,
    event_time: str | None = None,
    watermark: str | Policy | None = None,
    max_ahead: str | None = None,
    start: Start = "earliest",
    partitions: int | None = None,
    max_records_per_batch: int | None = None,
) -> Topic:
    """Describe a topic, or several that are read as one stream.

    The schema of a topic of JSON objects is Spark's DDL or a dataclass. A column that is `not null`, as a
    field without `| None` is, is required: a record without it is a dead letter, as is one that is no JSON
    object or has a value that does not fit its column.

    `key` names the column that becomes the key of records when the topic is written, as text; or several,
    `key=["order_id", "line"]`, which become a JSON object.

    A topic of a table's changes has `format="debezium"`, or `"upsert"` where a record is the row as it is
    now, and one without a value deletes it; `key` then names what tells the table's rows apart. Read it with
    hr.changes.

    `event_time` names the column that says when a row's event happened. `watermark` is how long to wait for
    late rows: `30 seconds`, or a policy such as `hr.bounded("30 seconds", idle_after="5 minutes")`. With
    `max_ahead`, a record whose event lies further in the future than that, as a clock that is wrong makes
    it, is a dead letter: it would have all others be late.
    """
    names = (name,) if isinstance(name, str) else tuple(name)
    if not names:
        raise ConfigError("hr.topic([]) names no topic: name at least one")
    return Topic(
        name=names[0],
        others=names[1:],
        schema=None if schema is None else schema_ddl(schema),
        format=format,
        key=(key,) if isinstance(key, str) else tuple(key or ()),
        event_time=event_time,
        watermark=watermark,
        max_ahead=max_ahead,
        start=start,
        partitions=partitions,
        max_records_per_batch=max_records_per_batch,
    )
