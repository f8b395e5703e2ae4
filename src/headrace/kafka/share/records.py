"""The records that keep share groups' positions in `__share_group_state`, as in Apache Kafka 4.3.

Key 0 is a share group's partition; its value is a snapshot of all that is known of it, and without a value
it is no more. Kafka has another kind of record, of changes since the last snapshot, for which it has to
delete what is old by itself; snapshots alone are small, and compaction keeps the last one of each.

What a member has just been given is written as available, with the tries so far: after a restart its lock is
gone with its session.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

from headrace.errors import CorruptBatch, ProtocolError
from headrace.kafka.codec.reader import compile_reader
from headrace.kafka.codec.writer import compile_writer
from headrace.kafka.share.deliveries import Deliveries
from headrace.kafka.share.record_schemas import Snapshot, SnapshotKey, StateBatch
from headrace.kafka.share.runs import DeliveryState, Run, Runs, joined

if TYPE_CHECKING:
    from headrace.kafka.codec.shape import MessageClass

_VERSION: Final = Struct(">h")
_SNAPSHOT_KEY: Final = 0
_SNAPSHOT_VALUE: Final = 0


class ShareKey(NamedTuple):
    """What a position is of."""

    group_id: str
    topic_id: UUID
    partition: int


class Stored(NamedTuple):
    """A position as it was written down."""

    key: ShareKey
    deliveries: Deliveries | None
    snapshot_epoch: int = 0
    """Counts the snapshots of this position."""
    created_at_ms: int = 0


def encode_key(key: ShareKey) -> bytes:
    """The key of a position's records."""
    named = SnapshotKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition)
    return _with_version(_SNAPSHOT_KEY, named)


def encode_value(stored: Stored, now_ms: int) -> bytes | None:
    """The value of a position's record."""
    deliveries = stored.deliveries
    if deliveries is None:
        return None
    snapshot = Snapshot(
        snapshot_epoch=stored.snapshot_epoch,
        state_epoch=deliveries.state_epoch,
        leader_epoch=0,
        start_offset=deliveries.start_offset,
        delivery_complete_count=deliveries.settled_count,
        create_timestamp=stored.created_at_ms,
        write_timestamp=now_ms,
        state_batches=tuple(
            StateBatch(
                first_offset=run.first,
                last_offset=run.last,
                delivery_state=run.state.value,
                delivery_count=run.delivery_count,
            )
            for run in joined(tuple(map(_unlocked, deliveries.runs)))
        ),
    )
    return _with_version(_SNAPSHOT_VALUE, snapshot)


def decode(key: bytes, value: bytes | None) -> Stored | None:
    """Read a record back, or None if it is of a kind that is not used here."""
    if len(key) < _VERSION.size or _VERSION.unpack_from(key)[0] != _SNAPSHOT_KEY:
        return None
    try:
        named: SnapshotKey = _read(SnapshotKey, key)
        share_key = ShareKey(named.group_id, named.topic_id or UUID(int=0), named.partition)
        if value is None:
            return Stored(share_key, None)
        snapshot = _read_snapshot(value)
        runs = _runs(snapshot)
    except (ProtocolError, ValueError) as error:
        raise CorruptBatch(
            f"a record of a share group can't be read back: {error}; its key is {key!r}"
        ) from error
    deliveries = Deliveries(
        start_offset=snapshot.start_offset, runs=joined(runs), state_epoch=snapshot.state_epoch
    )
    return Stored(share_key, deliveries, snapshot.snapshot_epoch, snapshot.create_timestamp)


def _runs(snapshot: Snapshot) -> Runs:
    runs = tuple(
        Run(each.first_offset, each.last_offset, DeliveryState(each.delivery_state), each.delivery_count)
        for each in snapshot.state_batches
    )
    position = snapshot.start_offset
    for run in runs:
        if run.first != position or run.last < run.first or run.state is DeliveryState.ACQUIRED:
            raise ProtocolError(f"its offsets {run.first} to {run.last} don't go on from {position}")
        position = run.last + 1
    return runs


def _read_snapshot(value: bytes) -> Snapshot:
    version = _VERSION.unpack_from(value)[0] if len(value) >= _VERSION.size else None
    if version != _SNAPSHOT_VALUE:
        raise ProtocolError(f"its value has format {version}; {_SNAPSHOT_VALUE} is understood")
    snapshot: Snapshot = _read(Snapshot, value)
    return snapshot


def _unlocked(run: Run) -> Run:
    if run.state is not DeliveryState.ACQUIRED:
        return run
    return Run(run.first, run.last, DeliveryState.AVAILABLE, run.delivery_count)


def _read(schema: MessageClass, data: bytes) -> Any:
    return compile_reader(schema, schema)(data, _VERSION.size)[0]


def _with_version(version: int, entity: Any) -> bytes:
    parts = [_VERSION.pack(version)]
    schema: MessageClass = type(entity)
    compile_writer(schema)(entity, parts)
    return b"".join(parts)
