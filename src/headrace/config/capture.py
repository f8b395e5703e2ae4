"""Change data capture: which database, which tables, which topics, and how fast."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, get_args

from headrace.config.checks import check_topic_name, require
from headrace.config.environment import default_bootstrap, default_data_dir

SnapshotMode = Literal["initial", "never", "only"]
NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,50}")
SLOT_NAME: Final = re.compile(r"[a-z0-9_]{1,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureConfig:
    """Change data capture: which database, which tables, which topics, and how fast."""

    name: str
    """Tells captures apart; only one of a name runs at a time."""
    dsn: str = field(repr=False)
    """The database, as a DSN or a URL."""
    bootstrap: str = field(default_factory=default_bootstrap)
    """The broker, or the Kafka cluster, that is published to."""
    client_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Settings of librdkafka that a secured broker asks for, such as a user and a certificate."""
    data_dir: Path = field(default_factory=default_data_dir)
    """Large transactions are kept below it while they are open, and what the capture says of itself."""
    prefix: str = ""
    """What its topics begin with; empty: its name."""
    slot: str = ""
    """The replication slot; empty: `headrace_` and the name."""
    publication: str = ""
    """The publication, which is made if it is not there; empty: named like the slot."""
    snapshot: SnapshotMode = "initial"
    """initial: all rows first, then changes. never: changes only. only: all rows, then stop."""
    include_tables: tuple[str, ...] = ()
    """Patterns of tables that are captured, such as `public.*`; none: all."""
    exclude_tables: tuple[str, ...] = ()
    """Patterns of tables that are not captured."""
    include_columns: tuple[str, ...] = ()
    """Patterns of columns: of tables that one is about, only these columns are captured."""
    exclude_columns: tuple[str, ...] = ()
    """Patterns of columns that are not captured, such as `public.users.password`."""
    mask_columns: Mapping[str, str] = field(default_factory=dict)
    """Patterns of columns, and the text that stands in place of their values."""
    hash_columns: tuple[str, ...] = ()
    """Patterns of columns whose values are replaced by a keyed hash."""
    hash_secret: str = field(default="", repr=False)
    """The key of these hashes, 16 characters or more."""
    outbox_table: str | None = None
    """A table whose rows are events for topics of their own, such as `public.outbox`."""
    numerics: Literal["text", "exact"] = "text"
    """How numerics are written: readable, or as Debezium's bytes."""
    tombstones: bool = True
    """Whether a delete is followed by a record without a value, for compaction."""
    partition_count: int = 1
    """How many partitions new topics of tables have."""
    keeps_last_only: bool = False
    """Whether new topics of tables keep the last version of each row only (compaction); else all events."""
    retention_ms: int = -1
    """How long new topics keep events; -1: for ever, whatever the broker does with other topics."""
    topic_settings: Mapping[str, str] = field(default_factory=dict)
    """Further settings of new topics of events, such as max.message.bytes."""
    heartbeat_s: float = 10.0
    """How often a message is written to the database's log, so that idle tables hold nothing back; 0:
    never."""
    chunk_rows_max: int = 10_000
    """How many rows of a snapshot are read and published at once, at most."""
    reader_count: int = 2
    """How many connections read the initial snapshot side by side."""
    batch_events_max: int = 20_000
    """How many events are published in a transaction, at most, unless one of the database's own has more."""
    transaction_s_max: int = 900
    """How long publishing a transaction may take; a broker allows no more unless it is told to."""

    def __post_init__(self) -> None:
        require(
            NAME.fullmatch(self.name) is not None,
            f"{self.name!r} can't be a capture's name: use 1 to 50 letters, digits, - and _",
        )
        made = f"headrace_{self.name.lower().replace('-', '_')}"
        for attribute, default in (("prefix", self.name), ("slot", made), ("publication", self.slot or made)):
            if not getattr(self, attribute):
                object.__setattr__(self, attribute, default)
        check_topic_name(self.prefix)
        require(
            SLOT_NAME.fullmatch(self.slot) is not None,
            f"{self.slot!r} can't be a slot's name: use 1 to 63 lower-case letters, digits and _",
        )
        require(bool(self.bootstrap), "bootstrap is empty: name a broker, such as 127.0.0.1:9092")
        require(bool(self.dsn), "dsn is empty: write postgresql://user:password@host:5432/database")
        require(
            self.snapshot in get_args(SnapshotMode),
            f"snapshot={self.snapshot!r} is none of {', '.join(get_args(SnapshotMode))}",
        )
        require(self.numerics in {"text", "exact"}, f"numerics={self.numerics!r} is neither text nor exact")
        require(self.heartbeat_s >= 0, "heartbeat_s must be 0 or more")
        require(self.retention_ms >= -1, "retention_ms must be at least 0, or -1 for ever")
        require(
            not (self.keeps_last_only and self.retention_ms != -1),
            "keeps_last_only keeps the last version of each row for ever: leave retention_ms at -1",
        )
        for attribute in (
            "partition_count",
            "chunk_rows_max",
            "reader_count",
            "batch_events_max",
            "transaction_s_max",
        ):
            require(getattr(self, attribute) >= 1, f"{attribute} must be at least 1")

    @property
    def directory(self) -> Path:
        """Where the capture keeps its files."""
        return self.data_dir / "captures" / self.name
