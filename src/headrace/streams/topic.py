"""What a pipeline knows of a topic: a frozen description that opens nothing.

Rows of a topic with a schema have the schema's columns, and one more, `_kafka`, that tells where the row
came from, as Spark's own `_metadata` does for files:

    _kafka struct<key binary, topic string, partition int, offset bigint, timestamp timestamp,
                  headers array<struct<key string, value binary>>>

`_kafka` is never written: a record gets its own key, offset and timestamp when it is produced.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final, Literal

from headrace.config import check_topic_name
from headrace.errors import ConfigError

METADATA_COLUMN: Final = "_kafka"
DEAD_LETTERS_SUFFIX: Final = ".dead-letters"

_QUERY_STEM_LENGTH_MAX: Final = 235
"""So that the name of a query, with what it gets appended, still is the name of a file."""

Start = Literal["earliest", "latest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic as pipelines read or write it. Make one with `topic(...)`."""

    name: str
    schema: str | None = None
    """The columns in Spark's DDL: `tx_id string not null, amount double`. Needed to read the topic."""
    key: str | None = None
    """The column that becomes the record's key when the topic is written."""
    event_time: str | None = None
    """The column that holds the time at which a row's event happened."""
    watermark: str | None = None
    """How long to wait for late rows, such as `30 seconds`."""
    start: Start = "earliest"
    """Where a pipeline that has no checkpoint yet starts to read."""
    partitions: int | None = None
    """How many partitions the topic gets if it has to be created."""

    def __post_init__(self) -> None:
        check_topic_name(self.name)
        if self.start not in {"earliest", "latest"}:
            raise ConfigError(f"topic {self.name}: start is {self.start!r}; use earliest or latest")
        if self.watermark is not None and self.event_time is None:
            raise ConfigError(
                f"topic {self.name} has a watermark but no event_time: name the column that it is measured by"
            )
        if self.event_time is not None and self.schema is None:
            raise ConfigError(f"topic {self.name} has an event_time but no schema: give the schema as well")
        if self.partitions is not None and self.partitions < 1:
            raise ConfigError(f"topic {self.name}: partitions is {self.partitions}; use at least 1")

    @property
    def dead_letters(self) -> str:
        """The topic that takes the records of this one that can't be decoded."""
        return self.name + DEAD_LETTERS_SUFFIX

    @property
    def dead_letters_query(self) -> str:
        """The name of the query that takes them there: another schema leaves others, so it is part of it."""
        described = f"{self.name} {' '.join((self.schema or '').split())}"
        digest = hashlib.sha256(described.encode()).hexdigest()[:8]
        return f"{self.dead_letters[:_QUERY_STEM_LENGTH_MAX]}-{digest}"


def topic(
    name: str,
    *,
    schema: str | None = None,
    key: str | None = None,
    event_time: str | None = None,
    watermark: str | None = None,
    start: Start = "earliest",
    partitions: int | None = None,
) -> Topic:
    """Describe a topic of JSON objects.

    A column that is `not null` in the schema is required: a record without it is a dead letter, as is one
    that is no JSON object or has a value that does not fit its column.
    """
    return Topic(
        name=name,
        schema=schema,
        key=key,
        event_time=event_time,
        watermark=watermark,
        start=start,
        partitions=partitions,
    )
