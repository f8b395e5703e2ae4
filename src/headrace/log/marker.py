"""The marker that ends a transaction in a partition: Kafka's control batch with one record (EndTxnMarker).

    key     version int16 = 0, type int16: 0 abort, 1 commit
    value   version int16 = 0, coordinator epoch int32

The batch carries the producer's id and epoch, is marked as transactional and as a control batch, and has no
sequence. Only a broker writes it. Kafka has control records of other types, which say nothing about
transactions; and compaction may leave a control batch without its record.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headrace.errors import CorruptBatch
from headrace.log.batch import CONTROL, NO_SEQUENCE, TRANSACTIONAL, decode_records, encode_batch
from headrace.log.record import Record

if TYPE_CHECKING:
    from headrace.log.batch import BatchHeader

_KEY: Final = struct.Struct(">hh")
_VALUE: Final = struct.Struct(">hi")
_VERSION: Final = 0
_ABORT: Final = 0
_COMMIT: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """How a transaction ended, and at which epoch of its coordinator."""

    commits: bool
    coordinator_epoch: int
    is_settled: bool = False
    """Whether no crash can change the outcome any more, not even by taking this marker: its writer, who knows
    that, would write it again. It is not in the record."""


def encode_marker(marker: Marker, *, producer_id: int, producer_epoch: int, timestamp_ms: int) -> bytes:
    """Make the control batch."""
    record = Record(
        timestamp_ms=timestamp_ms,
        key=_KEY.pack(_VERSION, _COMMIT if marker.commits else _ABORT),
        value=_VALUE.pack(_VERSION, marker.coordinator_epoch),
    )
    return encode_batch(
        [record],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=NO_SEQUENCE,
        attributes=TRANSACTIONAL | CONTROL,
    )


def decode_marker(header: BatchHeader, batch: bytes | memoryview) -> Marker | None:
    """The marker in a control batch; None when it holds none, or something else."""
    if header.record_count == 0:
        return None
    record = decode_records(batch)[0]
    try:
        _, kind = _KEY.unpack_from(record.key or b"")
        if kind not in {_ABORT, _COMMIT}:
            return None
        _, coordinator_epoch = _VALUE.unpack_from(record.value or b"")
    except struct.error as error:
        raise CorruptBatch(f"the control batch at offset {header.base_offset} is cut short") from error
    return Marker(commits=kind == _COMMIT, coordinator_epoch=coordinator_epoch)
