"""The settings of a topic, under Kafka's names, with Kafka's rules and Kafka's defaults.

A topic's manifest keeps the texts that somebody set; everything else comes from the broker-wide defaults
(`LogConfig`). `TopicSettings.parse` puts the two together. `TOPIC_SETTINGS` describes each setting, for those
who list or explain them. docs/reference/topic-settings.md lists them for people; a test keeps it complete.

Two defaults differ from Kafka's. `retention.ms` is unlimited, where Kafka deletes after seven days: nothing
disappears unasked. `max.message.bytes` is the broker's `message_bytes_max`.

Settings that only mean something where there are several brokers, tiered storage or files that must be kept
for a while for other threads are accepted and kept, and say that they are without effect here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from headrace.config import COMPRESSION_TYPES, LONG_MAX, MIB, LogConfig
from headrace.errors import ConfigError
from headrace.log.setting_kinds import (
    Choice,
    Fraction,
    Kind,
    Replicas,
    SettingType,
    SettingValue,
    Truth,
    Words,
    int_kind,
    long_kind,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

UNLIMITED: Final = -1
MESSAGE_BYTES_MAX: Final = 16 * MIB
_LOG_DEFAULTS: Final = LogConfig()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    """What holds for one topic. The fields have the names of Kafka's settings, with `_` for `.`."""

    cleanup_policy: tuple[str, ...] = _LOG_DEFAULTS.cleanup_policy
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_type: str = _LOG_DEFAULTS.compression_type
    compression_zstd_level: int = 3
    delete_retention_ms: int = _LOG_DEFAULTS.delete_retention_ms
    file_delete_delay_ms: int = 60_000
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    follower_replication_throttled_replicas: tuple[str, ...] = ()
    index_interval_bytes: int = _LOG_DEFAULTS.index_interval_bytes
    internal_segment_bytes: int | None = None
    leader_replication_throttled_replicas: tuple[str, ...] = ()
    local_retention_bytes: int = -2
    local_retention_ms: int = -2
    max_compaction_lag_ms: int = _LOG_DEFAULTS.max_compaction_lag_ms
    max_message_bytes: int = MESSAGE_BYTES_MAX
    message_timestamp_after_max_ms: int = _LOG_DEFAULTS.message_timestamp_after_max_ms
    message_timestamp_before_max_ms: int = _LOG_DEFAULTS.message_timestamp_before_max_ms
    message_timestamp_type: str = _LOG_DEFAULTS.message_timestamp_type
    min_cleanable_dirty_ratio: float = _LOG_DEFAULTS.min_cleanable_dirty_ratio
    min_compaction_lag_ms: int = _LOG_DEFAULTS.min_compaction_lag_ms
    min_insync_replicas: int = 1
    preallocate: bool = False
    remote_log_copy_disable: bool = False
    remote_log_delete_on_disable: bool = False
    remote_storage_enable: bool = False
    retention_bytes: int = _LOG_DEFAULTS.retention_bytes
    retention_ms: int = _LOG_DEFAULTS.retention_ms
    segment_bytes: int = _LOG_DEFAULTS.segment_bytes_max
    segment_index_bytes: int = _LOG_DEFAULTS.segment_index_bytes_max
    segment_jitter_ms: int = 0
    segment_ms: int = _LOG_DEFAULTS.segment_ms
    unclean_leader_election_enable: bool = False

    def __post_init__(self) -> None:
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            raise ConfigError(
                f"min.compaction.lag.ms is {self.min_compaction_lag_ms}, more than max.compaction.lag.ms, "
                f"which is {self.max_compaction_lag_ms}: lower the first or raise the second"
            )

    @classmethod
    def of_broker(cls, config: LogConfig, *, message_bytes_max: int = MESSAGE_BYTES_MAX) -> TopicSettings:
        """What holds for a topic for which nobody set anything."""
        return cls(
            cleanup_policy=config.cleanup_policy,
            compression_type=config.compression_type,
            delete_retention_ms=config.delete_retention_ms,
            index_interval_bytes=config.index_interval_bytes,
            max_compaction_lag_ms=config.max_compaction_lag_ms,
            max_message_bytes=message_bytes_max,
            message_timestamp_after_max_ms=config.message_timestamp_after_max_ms,
            message_timestamp_before_max_ms=config.message_timestamp_before_max_ms,
            message_timestamp_type=config.message_timestamp_type,
            min_cleanable_dirty_ratio=config.min_cleanable_dirty_ratio,
            min_compaction_lag_ms=config.min_compaction_lag_ms,
            retention_bytes=config.retention_bytes,
            retention_ms=config.retention_ms,
            segment_bytes=config.segment_bytes_max,
            segment_index_bytes=config.segment_index_bytes_max,
            segment_ms=config.segment_ms,
        )

    @classmethod
    def parse(cls, config: Mapping[str, str], defaults: TopicSettings) -> TopicSettings:
        """Read what was set for a topic; ConfigError names the setting and what is allowed."""
        given: dict[str, Any] = {}
        for name, text in config.items():
            setting = TOPIC_SETTINGS.get(name)
            if setting is None:
                raise ConfigError(f"Unknown topic config name: {name}. Known are: {_known_names()}")
            given[setting.field] = setting.read(text)
        return replace(defaults, **given)

    def value_of(self, name: str) -> str:
        """The value of a setting, by Kafka's name, as text."""
        setting = TOPIC_SETTINGS[name]
        return setting.kind.format(getattr(self, setting.field))

    @property
    def is_compacted(self) -> bool:
        """Whether only the last record of each key is kept."""
        return "compact" in self.cleanup_policy

    @property
    def is_deleted(self) -> bool:
        """Whether what is old, or too much, is deleted."""
        return "delete" in self.cleanup_policy

    @property
    def has_retention(self) -> bool:
        """Whether there is a limit beyond which records are deleted."""
        return self.is_deleted and (self.retention_ms != UNLIMITED or self.retention_bytes >= 0)

    @property
    def segment_bytes_max(self) -> int:
        """A segment that would grow past this is rolled."""
        return self.segment_bytes if self.internal_segment_bytes is None else self.internal_segment_bytes

    @property
    def takes_append_time(self) -> bool:
        """Whether records get the time at which they are appended."""
        return self.message_timestamp_type == "LogAppendTime"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSetting:
    """One setting: what it is called, what it takes, what it does here."""

    name: str
    kind: Kind
    documentation: str
    broker_name: str | None = None
    """What Kafka calls the broker-wide default."""
    has_effect: bool = True
    is_internal: bool = False
    """For tests: taken, but not listed."""

    @property
    def field(self) -> str:
        """The field of TopicSettings."""
        return self.name.replace(".", "_")

    @property
    def setting_type(self) -> SettingType:
        """The type, with Kafka's number."""
        return self.kind.setting_type

    @property
    def default(self) -> str:
        """What holds when neither the topic nor the broker's configuration says otherwise."""
        return TopicSettings().value_of(self.name)

    def read(self, text: str) -> SettingValue:
        """Read a value; ConfigError says what is allowed."""
        try:
            value = self.kind.read(text)
        except ValueError as error:
            raise ConfigError(f"Invalid value {text!r} for configuration {self.name}: use {error}") from error
        if self.name == "remote.storage.enable" and value:
            raise ConfigError(f"{self.name} can't be true: there is no tiered storage; leave it out")
        return value


def _setting(
    name: str,
    kind: Kind,
    documentation: str,
    *,
    broker_name: str | None = None,
    is_internal: bool = False,
) -> TopicSetting:
    return TopicSetting(
        name=name,
        kind=kind,
        documentation=documentation,
        broker_name=broker_name,
        has_effect=not documentation.startswith("Without effect"),
        is_internal=is_internal,
    )


_DEFINITIONS: Final = (
    _setting(
        "cleanup.policy",
        Words(("compact", "delete")),
        "delete: old segments go, by retention.ms and retention.bytes. compact: the last record of each key "
        "stays. Both may be given; with an empty list everything stays.",
        broker_name="log.cleanup.policy",
    ),
    _setting(
        "compression.gzip.level",
        int_kind(1, 9, also=(-1,)),
        "The level to compress with when compression.type is gzip; -1 is gzip's own default, 6.",
        broker_name="compression.gzip.level",
    ),
    _setting(
        "compression.lz4.level",
        int_kind(1, 17),
        "The level to compress with when compression.type is lz4.",
        broker_name="compression.lz4.level",
    ),
    _setting(
        "compression.type",
        Choice(COMPRESSION_TYPES),
        "How batches are compressed on disk. producer: as they come. With another value, a batch that came "
        "compressed in another way is compressed anew.",
        broker_name="compression.type",
    ),
    _setting(
        "compression.zstd.level",
        int_kind(-131072, 22),
        "The level to compress with when compression.type is zstd.",
        broker_name="compression.zstd.level",
    ),
    _setting(
        "delete.retention.ms",
        long_kind(0),
        "How long a compacted topic keeps tombstones and transaction markers after it was compacted up to "
        "them, so that a reader who began before sees them.",
        broker_name="log.cleaner.delete.retention.ms",
    ),
    _setting(
        "file.delete.delay.ms",
        long_kind(0),
        "Without effect: a file is removed at once, since no reader is left with it.",
        broker_name="log.segment.delete.delay.ms",
    ),
    _setting(
        "flush.messages",
        long_kind(1),
        "Without effect: the broker's durability says when data is synced.",
        broker_name="log.flush.interval.messages",
    ),
    _setting(
        "flush.ms",
        long_kind(0),
        "Without effect: the broker's durability says when data is synced.",
        broker_name="log.flush.interval.ms",
    ),
    _setting(
        "follower.replication.throttled.replicas",
        Replicas(),
        "Without effect: there is one broker and no replication.",
    ),
    _setting(
        "index.interval.bytes",
        int_kind(0),
        "About how many bytes of batches lie between two entries of a segment's indexes.",
        broker_name="log.index.interval.bytes",
    ),
    _setting(
        "internal.segment.bytes",
        int_kind(1),
        "The size of a segment, in place of segment.bytes and without its minimum, for tests.",
        is_internal=True,
    ),
    _setting(
        "leader.replication.throttled.replicas",
        Replicas(),
        "Without effect: there is one broker and no replication.",
    ),
    _setting(
        "local.retention.bytes",
        long_kind(-2),
        "Without effect: there is no tiered storage.",
        broker_name="log.local.retention.bytes",
    ),
    _setting(
        "local.retention.ms",
        long_kind(-2),
        "Without effect: there is no tiered storage.",
        broker_name="log.local.retention.ms",
    ),
    _setting(
        "max.compaction.lag.ms",
        long_kind(1),
        "A record becomes subject to compaction after this time at the latest, whatever the dirty ratio is.",
        broker_name="log.cleaner.max.compaction.lag.ms",
    ),
    _setting(
        "max.message.bytes",
        int_kind(0),
        "The largest record batch that is taken, as it comes and as it is kept.",
        broker_name="message.max.bytes",
    ),
    _setting(
        "message.timestamp.after.max.ms",
        long_kind(0),
        "A record whose timestamp is further ahead of the broker's clock is refused (INVALID_TIMESTAMP). "
        "Of no account with LogAppendTime.",
        broker_name="log.message.timestamp.after.max.ms",
    ),
    _setting(
        "message.timestamp.before.max.ms",
        long_kind(0),
        "A record whose timestamp is further behind the broker's clock is refused (INVALID_TIMESTAMP). "
        "Of no account with LogAppendTime.",
        broker_name="log.message.timestamp.before.max.ms",
    ),
    _setting(
        "message.timestamp.type",
        Choice(("CreateTime", "LogAppendTime")),
        "CreateTime: records keep their producer's timestamps. LogAppendTime: the broker's clock gives them.",
        broker_name="log.message.timestamp.type",
    ),
    _setting(
        "min.cleanable.dirty.ratio",
        Fraction(),
        "A partition is compacted once this part of it, by size, has come since it was last compacted.",
        broker_name="log.cleaner.min.cleanable.ratio",
    ),
    _setting(
        "min.compaction.lag.ms",
        long_kind(0),
        "A record stays as it is for at least this time.",
        broker_name="log.cleaner.min.compaction.lag.ms",
    ),
    _setting(
        "min.insync.replicas",
        int_kind(1),
        "Without effect: there is one replica, and it is in sync.",
        broker_name="min.insync.replicas",
    ),
    _setting(
        "preallocate",
        Truth(),
        "Without effect: segment files grow as they are written.",
        broker_name="log.preallocate",
    ),
    _setting("remote.log.copy.disable", Truth(), "Without effect: there is no tiered storage."),
    _setting("remote.log.delete.on.disable", Truth(), "Without effect: there is no tiered storage."),
    _setting(
        "remote.storage.enable", Truth(), "Without effect; true is refused: there is no tiered storage."
    ),
    _setting(
        "retention.bytes",
        long_kind(-LONG_MAX - 1),
        "With cleanup.policy delete: the oldest segments go as long as the rest of the partition has this "
        "size or more; below 0, none does.",
        broker_name="log.retention.bytes",
    ),
    _setting(
        "retention.ms",
        long_kind(-1),
        "With cleanup.policy delete: a segment goes once its newest record is older; with -1, never.",
        broker_name="log.retention.ms",
    ),
    _setting(
        "segment.bytes",
        int_kind(MIB),
        "A segment file that would grow past this is closed and a new one begun.",
        broker_name="log.segment.bytes",
    ),
    _setting(
        "segment.index.bytes",
        int_kind(4),
        "A segment is closed when one of its indexes has grown to this.",
        broker_name="log.index.size.max.bytes",
    ),
    _setting(
        "segment.jitter.ms",
        long_kind(0),
        "Up to this is taken off segment.ms, at random, so that not all segments are closed together.",
        broker_name="log.roll.jitter.ms",
    ),
    _setting(
        "segment.ms",
        long_kind(1),
        "A segment is closed when its first and its next record are further apart than this.",
        broker_name="log.roll.ms",
    ),
    _setting(
        "unclean.leader.election.enable",
        Truth(),
        "Without effect: there is one broker, and it leads.",
        broker_name="unclean.leader.election.enable",
    ),
)

TOPIC_SETTINGS: Final[Mapping[str, TopicSetting]] = MappingProxyType(
    {setting.name: setting for setting in _DEFINITIONS}
)
"""Every setting by its name, in the order of names."""


def _known_names() -> str:
    return ", ".join(name for name, setting in TOPIC_SETTINGS.items() if not setting.is_internal)
