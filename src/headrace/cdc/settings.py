"""What a capture calls itself and its topics, and which events it writes."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from headrace.cdc.values.converters import ValueFormat
from headrace.config.checks import check_topic_name
from headrace.errors import ConfigError

_NOT_IN_TOPICS: Final = re.compile(r"[^A-Za-z0-9._-]")


@dataclass(frozen=True, slots=True, kw_only=True)
class EventSettings:
    """How events are written, and to which topics."""

    prefix: str
    """What all topics of the capture begin with; also `name` in the source of events."""
    database: str
    """The database's name, `db` in the source of events."""
    version: str
    """The capture's version, in the source of events."""
    values: ValueFormat = field(default_factory=ValueFormat)
    tombstones: bool = True
    """Whether a delete is followed by a record without value, by which compaction forgets the key."""
    transactions: bool = True
    """Whether rows say which transaction they are part of, and `<prefix>.transaction` where each ends."""
    partition_count: int = 1
    """How many partitions topics of tables have."""
    schema_changes: bool = True
    """Whether `<prefix>.schema-changes` tells of tables that come or change."""

    def __post_init__(self) -> None:
        check_topic_name(self.prefix)
        if not self.database:
            raise ConfigError("a capture's database has no name")

    @property
    def transaction_topic(self) -> str:
        """Where transactions begin and end."""
        return f"{self.prefix}.transaction"

    @property
    def message_topic(self) -> str:
        """What was written into the database's log with `pg_logical_emit_message`."""
        return f"{self.prefix}.message"

    @property
    def schema_topic(self) -> str:
        """How tables change."""
        return f"{self.prefix}.schema-changes"

    def topic_of(self, schema: str, table: str) -> str:
        """The topic of a table. What a topic's name can't hold becomes an underscore, as in Debezium."""
        return check_topic_name(_NOT_IN_TOPICS.sub("_", f"{self.prefix}.{schema}.{table}"))
