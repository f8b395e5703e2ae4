"""How partitions are kept on disk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headrace.config.checks import require
from headrace.config.units import DAY_MS, GIB, HOUR_MS, KIB, LONG_MAX, MIB

COMPRESSION_TYPES: Final = ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """How partitions are kept on disk."""

    segment_bytes_max: int = 1 * GIB
    """A segment file that would grow past this is closed and a new one begun (log.segment.bytes)."""
    segment_ms: int = 7 * DAY_MS
    """A segment whose records would span more time than this is closed (log.roll.ms)."""
    segment_index_bytes_max: int = 10 * MIB
    """A segment whose offset index would grow past this is closed (log.index.size.max.bytes)."""
    index_interval_bytes: int = 4 * KIB
    """How many bytes of batches lie between two entries of a segment's sparse indexes."""
    cleanup_policy: tuple[str, ...] = ("delete",)
    """`delete`, `compact`, both or neither: what becomes of old records (log.cleanup.policy)."""
    retention_ms: int = -1
    """How old records get before they are deleted; -1 for ever, where Kafka has 7 days."""
    retention_bytes: int = -1
    """How large a partition gets before its oldest segments are deleted; -1 without limit."""
    min_cleanable_dirty_ratio: float = 0.5
    """The part of a compacted partition that must be new before it is compacted again."""
    min_compaction_lag_ms: int = 0
    """How long a record stays at least before compaction may remove it."""
    max_compaction_lag_ms: int = LONG_MAX
    """After how long a record is compacted at the latest, whatever the dirty ratio."""
    delete_retention_ms: int = 1 * DAY_MS
    """How long compaction keeps tombstones (log.cleaner.delete.retention.ms)."""
    cleaner_interval_ms: int = 15_000
    """How often partitions are looked at for what is to be deleted or compacted."""
    compaction_memory_bytes: int = 128 * MIB
    """What compaction may use to remember keys, 200 bytes each; with more keys, it takes several rounds."""
    compression_type: str = "producer"
    """`producer`: batches stay as they come. Otherwise the codec into which they are compressed anew."""
    message_timestamp_type: str = "CreateTime"
    """`CreateTime`: the producers' timestamps. `LogAppendTime`: the broker's."""
    message_timestamp_before_max_ms: int = LONG_MAX
    """A record with an older timestamp, by the broker's clock, is refused."""
    message_timestamp_after_max_ms: int = 1 * HOUR_MS
    """A record whose timestamp is further ahead of the broker's clock is refused."""
    producer_id_expiration_ms: int = 1 * DAY_MS
    """A producer that has written nothing to a partition for so long is forgotten there."""
    checkpoint_bytes: int = 32 * MIB
    """After so many bytes appended to a partition, what is needed to open it quickly is written down."""

    def __post_init__(self) -> None:
        require(self.segment_bytes_max >= KIB, "segment_bytes_max must be at least 1024")
        require(self.segment_bytes_max < 2 * GIB, "segment_bytes_max must stay below 2 GiB, as in Kafka")
        require(self.index_interval_bytes >= 1, "index_interval_bytes must be at least 1")
        require(self.segment_ms >= 1, "segment_ms must be at least 1")
        require(self.segment_index_bytes_max >= 4, "segment_index_bytes_max must be at least 4")
        require(
            {"delete", "compact"}.issuperset(self.cleanup_policy),
            f"cleanup_policy is {self.cleanup_policy!r}: use ('delete',), ('compact',) or both",
        )
        require(self.retention_ms >= -1, "retention_ms must be at least 0, or -1 for ever")
        require(0 <= self.min_cleanable_dirty_ratio <= 1, "min_cleanable_dirty_ratio must be from 0 to 1")
        require(
            0 <= self.min_compaction_lag_ms <= self.max_compaction_lag_ms,
            "min_compaction_lag_ms must be from 0 to max_compaction_lag_ms",
        )
        require(self.delete_retention_ms >= 0, "delete_retention_ms must be at least 0")
        require(self.cleaner_interval_ms >= 1, "cleaner_interval_ms must be at least 1")
        require(self.compaction_memory_bytes >= 1 * MIB, "compaction_memory_bytes must be at least 1 MiB")
        require(
            self.compression_type in COMPRESSION_TYPES,
            f"compression_type is {self.compression_type!r}: use one of {', '.join(COMPRESSION_TYPES)}",
        )
        require(
            self.message_timestamp_type in {"CreateTime", "LogAppendTime"},
            f"message_timestamp_type is {self.message_timestamp_type!r}: use CreateTime or LogAppendTime",
        )
        require(
            min(self.message_timestamp_before_max_ms, self.message_timestamp_after_max_ms) >= 0,
            "message_timestamp_before_max_ms and message_timestamp_after_max_ms must be at least 0",
        )
        require(self.producer_id_expiration_ms >= 1, "producer_id_expiration_ms must be at least 1")
        require(self.checkpoint_bytes >= KIB, "checkpoint_bytes must be at least 1024")
