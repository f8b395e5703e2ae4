"""Kafka's record batch, format v2: what travels on the wire and what lies on disk, byte for byte.

    position  field                   type    covered by the checksum
           0  base_offset             int64   no
           8  batch_length            int32   no    bytes after this field
          12  partition_leader_epoch  int32   no
          16  magic                   int8    no    2
          17  crc                     uint32  -     CRC-32C of everything after it
          21  attributes              int16   yes   bits 0-2 codec, 3 append time, 4 transactional, 5 control,
                                                    6 delete horizon
          23  last_offset_delta       int32   yes
          27  base_timestamp_ms       int64   yes   or the delete horizon (see compaction.py)
          35  max_timestamp_ms        int64   yes
          43  producer_id             int64   yes   -1 for none
          51  producer_epoch          int16   yes   -1 for none
          53  base_sequence           int32   yes   -1 for none
          57  record_count            int32   yes
          61  records                         yes   compressed as a whole by the codec

Base offset and leader epoch lie outside the checksum so that a broker can place a batch in its log without
touching what the producer signed. No other change is made to a batch when it is appended, unless the topic's
settings ask for one (see intake.py), or later by compaction; then it is signed anew.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from crc32c import crc32c

from headrace.errors import BatchTooLarge, CorruptBatch
from headrace.log.compression import inflate
from headrace.log.record import Record, read_record, write_record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

HEADER_BYTES: Final = 61
LEADER_EPOCH: Final = 0
"""One broker leads every partition for ever, so there is one epoch."""

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
"""How records may be compressed; a codec's number is its place."""
NO_SEQUENCE: Final = -1
APPEND_TIME: Final = 0x08
"""The attribute of a batch whose records were all appended at its highest timestamp."""
TRANSACTIONAL: Final = 0x10
"""The attribute of a batch that is part of a transaction."""
CONTROL: Final = 0x20
"""The attribute of a batch that a broker writes about others."""
DELETE_HORIZON: Final = 0x40
"""The attribute of a batch whose base timestamp is the time at which its tombstones may go."""

RECORD_BYTES_MIN: Final = 7
"""A record of which every field is empty: six numbers of one byte each, and the attributes."""
COMPRESSED_RECORD_COUNT_MAX: Final = 10_000_000
"""What a compressed batch may say that it holds: 70 MB of empty records, more than any client gathers.

The broker does not unpack batches, so it takes the producer's word within this; without a limit, a few bytes
could use up two thousand million offsets.
"""

_HEADER: Final = Struct(">qiibIhiqqqhii")
_PLACEMENT: Final = Struct(">qii")
_PLACED_START: Final = Struct(">qiibI")
_SIGNED: Final = Struct(">hiqqqhii")
_MAGIC: Final = 2
_LENGTH_ENDS_AT: Final = 12
_PLACEMENT_ENDS_AT: Final = 16
_MAGIC_AT: Final = 16
_SIGNED_FROM: Final = 21
_SEQUENCE_COUNT: Final = 2**31
_CODEC_MASK: Final = 0x07
_NOT_PLAIN: Final = _CODEC_MASK | TRANSACTIONAL | CONTROL
_LENGTH_MIN: Final = HEADER_BYTES - _LENGTH_ENDS_AT


class BatchHeader(NamedTuple):
    """The fields of a batch, in the order in which they lie on disk.

    A tuple, because one is made for every batch that is written or walked over, at a third of the cost.
    """

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """The whole batch, header included."""
        return self.batch_length + _LENGTH_ENDS_AT

    @property
    def last_offset(self) -> int:
        """The offset of the last record."""
        return self.base_offset + self.last_offset_delta

    @property
    def last_sequence(self) -> int:
        """The last record's sequence number; sequences go on from 0 after 2**31 - 1."""
        return (self.base_sequence + self.last_offset_delta) % _SEQUENCE_COUNT

    @property
    def is_idempotent(self) -> bool:
        """Whether a producer id and sequence numbers protect the batch against being written twice."""
        return self.producer_id >= 0

    @property
    def has_append_time(self) -> bool:
        """Whether the broker's clock gave all records the batch's highest timestamp."""
        return bool(self.attributes & APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        """Whether the batch is part of a transaction."""
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        """Whether the batch is a transaction's marker, which only a broker writes."""
        return bool(self.attributes & CONTROL)

    @property
    def delete_horizon_ms(self) -> int | None:
        """When compaction may remove the batch's tombstones or its marker, if that was written down."""
        return self.base_timestamp_ms if self.attributes & DELETE_HORIZON else None

    @property
    def codec(self) -> str:
        """How the records are compressed: none, gzip, snappy, lz4, zstd, or the number of an unknown one."""
        number = self.attributes & _CODEC_MASK
        return CODECS[number] if number < len(CODECS) else str(number)


_new_header: Final = cast("Callable[[Iterable[int]], BatchHeader]", partial(tuple.__new__, BatchHeader))
"""What `BatchHeader._make` does, in one call: for those who know how many fields there are."""


class Batch(NamedTuple):
    """A batch that has been checked, and its bytes, which are not copied."""

    header: BatchHeader
    data: memoryview


def read_header(data: bytes | memoryview, position: int = 0) -> BatchHeader:
    """Read a header. Whether the batch's bytes are all there is for the caller to check."""
    remaining = len(data) - position
    if remaining < HEADER_BYTES:
        raise CorruptBatch(f"a batch header has {HEADER_BYTES} bytes; only {remaining} remain")
    magic = data[position + _MAGIC_AT]
    if magic != _MAGIC:
        raise CorruptBatch(f"a batch has magic {magic}; only format 2 is understood")
    header = _new_header(_HEADER.unpack_from(data, position))
    if header.batch_length < _LENGTH_MIN:
        raise CorruptBatch(f"a batch says that it has {header.size_bytes} bytes, less than its header")
    return header


def check_crc(header: BatchHeader, data: memoryview) -> None:
    """Raise unless the whole batch is what its producer signed."""
    crc = crc32c(data[_SIGNED_FROM:])
    if crc != header.crc:
        raise CorruptBatch(f"a batch has checksum {crc:#010x}, but says that it has {header.crc:#010x}")


def place_plain(
    records: bytes | memoryview, base_offset: int, size_bytes_max: int
) -> tuple[BatchHeader, list[bytes | memoryview]] | None:
    """Check and place records that are one batch, neither compressed nor of a transaction, in few steps.

    The header as placed, and the buffers of the batch at its place; None for all that is not as plain, or not
    right: `split_batches` says what it is then.
    """
    size_bytes = len(records)
    if not HEADER_BYTES < size_bytes <= size_bytes_max:
        return None
    fields = _HEADER.unpack_from(records)
    _, length, _, magic, crc, attributes, last_offset_delta, _, _, producer_id, epoch, sequence, count = (
        fields
    )
    signed = memoryview(records)[_SIGNED_FROM:]
    if (
        length + _LENGTH_ENDS_AT != size_bytes
        or magic != _MAGIC
        or attributes
        or (producer_id >= 0 and (epoch < 0 or sequence < 0))
        or last_offset_delta != count - 1
        or not 0 < count <= (size_bytes - HEADER_BYTES) // RECORD_BYTES_MIN
        or crc32c(signed) != crc
    ):
        return None
    start = _PLACED_START.pack(base_offset, length, LEADER_EPOCH, _MAGIC, crc)
    return _new_header((base_offset, length, LEADER_EPOCH, *fields[3:])), [start, signed]


def split_batches(
    records: bytes | memoryview, size_bytes_max: int, *, is_sequenced: bool = True
) -> list[Batch]:
    """Cut what a producer sent into batches, each of them checked in full.

    What the broker itself writes in the name of a producer has no sequence.
    """
    view = memoryview(records)
    if not view:
        raise CorruptBatch("there is no batch in the records")
    batches = []
    position, view_end = 0, len(view)
    while position < view_end:
        header = read_header(view, position)
        size_bytes = header.size_bytes
        end = position + size_bytes
        if size_bytes > size_bytes_max:
            raise BatchTooLarge(
                f"a batch has {header.size_bytes} bytes, more than the {size_bytes_max} that are taken; "
                "send smaller batches or raise the topic's max.message.bytes"
            )
        if end > view_end:
            raise CorruptBatch(
                f"a batch says that it has {header.size_bytes} bytes; {len(view) - position} remain"
            )
        data = view[position:end]
        if not _is_plain(header, size_bytes):
            _check_new(header, is_sequenced)
        check_crc(header, data)
        batches.append(Batch(header, data))
        position = end
    return batches


def _is_plain(header: BatchHeader, size_bytes: int) -> bool:
    """Whether nothing can be wrong with a batch of which `_check_new` knows: so it is with most."""
    count = header.record_count
    return (
        0 < count <= (size_bytes - HEADER_BYTES) // RECORD_BYTES_MIN
        and header.last_offset_delta == count - 1
        and not header.attributes & _NOT_PLAIN
        and (header.producer_id < 0 or (header.base_sequence >= 0 and header.producer_epoch >= 0))
    )


def _check_new(header: BatchHeader, is_sequenced: bool) -> None:
    """What holds for every batch of a producer. Compaction leaves batches for which it no longer does."""
    if header.record_count < 1:
        raise CorruptBatch(f"a batch says that it has {header.record_count} records")
    if header.last_offset_delta != header.record_count - 1:
        raise CorruptBatch(
            f"a batch has {header.record_count} records, but the last one's offset delta is "
            f"{header.last_offset_delta}"
        )
    if header.attributes & _CODEC_MASK >= len(CODECS):
        raise CorruptBatch(f"a batch is compressed with the unknown codec {header.codec}")
    if header.record_count > _record_count_max(header):
        raise CorruptBatch(
            f"a batch of {header.size_bytes} bytes says that it has {header.record_count} records; "
            f"it can have {_record_count_max(header)}"
        )
    if header.is_control:
        raise CorruptBatch("a batch is marked as a control batch, which only a broker may write")
    if header.is_transactional and not header.is_idempotent:
        raise CorruptBatch("a batch is part of a transaction but has no producer id")
    sequence_min = 0 if is_sequenced else NO_SEQUENCE
    if header.is_idempotent and (header.base_sequence < sequence_min or header.producer_epoch < 0):
        raise CorruptBatch(
            f"a batch of producer {header.producer_id} has epoch {header.producer_epoch} and "
            f"sequence {header.base_sequence}; both must be at least 0"
        )


def _record_count_max(header: BatchHeader) -> int:
    """How many records a batch of this size may hold."""
    if header.attributes & _CODEC_MASK:
        return COMPRESSED_RECORD_COUNT_MAX if header.size_bytes > HEADER_BYTES else 0
    return (header.size_bytes - HEADER_BYTES) // RECORD_BYTES_MIN


def with_base_offset(batch: Batch, base_offset: int) -> tuple[bytes, memoryview]:
    """Two buffers that, one after the other, are the batch at its place in the log. Only 16 bytes are new."""
    placement = _PLACEMENT.pack(base_offset, batch.header.batch_length, LEADER_EPOCH)
    return placement, batch.data[_PLACEMENT_ENDS_AT:]


def sign(header: BatchHeader, records: bytes | bytearray | memoryview) -> Batch:
    """A batch of these fields and records, with the length and the checksum that follow from them."""
    signed = _SIGNED.pack(*header[5:])
    crc = crc32c(records, crc32c(signed))
    length = HEADER_BYTES - _LENGTH_ENDS_AT + len(records)
    header = header._replace(batch_length=length, magic=_MAGIC, crc=crc)
    placement = _PLACEMENT.pack(header.base_offset, length, header.partition_leader_epoch)
    data = b"".join((placement, bytes((_MAGIC,)), crc.to_bytes(4, "big"), signed, records))
    return Batch(header, memoryview(data))


def place(header: BatchHeader, base_offset: int) -> BatchHeader:
    """The header as it reads once the batch lies at its place in the log."""
    return _new_header((base_offset, header.batch_length, LEADER_EPOCH, *header[3:]))


def encode_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    attributes: int = 0,
) -> bytes:
    """Make an uncompressed batch. Offsets go up from the base; `Record.offset` is not looked at."""
    base_timestamp_ms = records[0].timestamp_ms
    body = bytearray()
    for delta, record in enumerate(records):
        write_record(body, record, offset_delta=delta, base_timestamp_ms=base_timestamp_ms)
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=0,
        partition_leader_epoch=LEADER_EPOCH,
        magic=_MAGIC,
        crc=0,
        attributes=attributes,
        last_offset_delta=len(records) - 1,
        base_timestamp_ms=base_timestamp_ms,
        max_timestamp_ms=max(record.timestamp_ms for record in records),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )
    return bytes(sign(header, body).data)


def inflated_records(header: BatchHeader, data: bytes | memoryview) -> bytes | memoryview:
    """The records of a batch, decompressed where they are compressed, still in their encoding."""
    records = memoryview(data)[HEADER_BYTES : header.size_bytes]
    return inflate(header.codec, records) if header.attributes & _CODEC_MASK else records


def decode_records(data: bytes | memoryview) -> list[Record]:
    """The records of one batch, which must be all there is in the data."""
    header = read_header(data)
    if header.size_bytes != len(data):
        raise CorruptBatch(f"a batch says that it has {header.size_bytes} bytes; there are {len(data)}")
    body = inflated_records(header, data)
    records = []
    position = 0
    for _ in range(header.record_count):
        record, position = read_record(
            body,
            position,
            base_offset=header.base_offset,
            base_timestamp_ms=header.base_timestamp_ms,
        )
        if header.has_append_time:
            record = replace(record, timestamp_ms=header.max_timestamp_ms)
        records.append(record)
    if position != len(body):
        raise CorruptBatch(f"{len(body) - position} bytes follow the last record of a batch")
    return records
