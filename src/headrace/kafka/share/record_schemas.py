"""The records of `__share_group_state`, as in Apache Kafka 4.3: what follows the version.

They are described in the way in which kio describes messages, for the same compilers: see
headrace.kafka.groups.record_schemas.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar
from uuid import UUID


def _as(kafka_type: str, **options: Any) -> Any:
    tag = options.pop("tag", None)
    metadata = {"kafka_type": kafka_type} if tag is None else {"kafka_type": kafka_type, "tag": tag}
    return field(metadata=metadata, **options)


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotKey:
    """What follows the version 0 of a key."""

    __flexible__: ClassVar[bool] = False
    group_id: str = _as("string")
    topic_id: UUID | None = field(metadata={"kafka_type": "uuid"})
    partition: int = _as("int32")


@dataclass(frozen=True, slots=True, kw_only=True)
class StateBatch:
    """Offsets of which the same has become."""

    __flexible__: ClassVar[bool] = True
    first_offset: int = _as("int64")
    last_offset: int = _as("int64")
    delivery_state: int = _as("int8")
    delivery_count: int = _as("int16")


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What follows the version 0 of a value."""

    __flexible__: ClassVar[bool] = True
    snapshot_epoch: int = _as("int32")
    state_epoch: int = _as("int32")
    leader_epoch: int = _as("int32")
    start_offset: int = _as("int64")
    delivery_complete_count: int = _as("int32", tag=0, default=-1)
    create_timestamp: int = _as("int64")
    write_timestamp: int = _as("int64")
    state_batches: tuple[StateBatch, ...] = field()
