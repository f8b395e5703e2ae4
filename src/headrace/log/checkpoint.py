"""How much of a partition's last segment need not be looked at when it is opened: the file `checkpoint`.

    version int16 = 1, CRC-32C uint32 of all that follows, then
    base offset int64          the segment's
    size int64                 so many of its bytes are durable, and whole batches
    next offset int64          the offset after them; there is a snapshot of the producers for it
    offset entries int64       so many of them are in the segment's `.index`, which may have more
    time entries int64         the same for its `.timeindex`
    indexed timestamp int64    of the last time entry
    max timestamp int64        of all batches, and
    its offset int64
    unindexed bytes int64      since the last entry of the offset index
    checksums 2 x uint32       CRC-32C of those entries of the `.index` and of the `.timeindex`
    aborted transactions       entries as in a `.txnindex`, up to the end

It is written durably after all that it speaks of: after each `checkpoint_bytes` of appends, when a segment is
sealed (then for its successor, of which nothing is known yet), and when the log is closed in good order. It
never refers to a sealed segment for long, so no segment of which it speaks has been compacted. What was true
of a segment that only grows stays true, so the file is old at worst, never wrong. If it does not fit what is
found, because a person has cut the log, it is removed before anything is appended.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Final

from crc32c import crc32c

from headrace.errors import CorruptBatch
from headrace.log.index import IndexMark, TimeEntry
from headrace.log.transaction_index import AbortedTransaction, decode_entries, encode_entries

CHECKPOINT_NAME: Final = "checkpoint"

_HEADER: Final = Struct(">hI")
_FIELDS: Final = Struct(">9qII")
_VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """What is known of the beginning of a segment."""

    base_offset: int
    size_bytes: int
    next_offset: int
    index: IndexMark
    index_checksums: tuple[int, int]
    aborted: tuple[AbortedTransaction, ...]


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    """The content of the file."""
    index = checkpoint.index
    fields = _FIELDS.pack(
        checkpoint.base_offset,
        checkpoint.size_bytes,
        checkpoint.next_offset,
        index.offset_entry_count,
        index.time_entry_count,
        index.indexed_timestamp_ms,
        *index.max_timestamp,
        index.unindexed_bytes,
        *checkpoint.index_checksums,
    )
    body = fields + encode_entries(checkpoint.aborted)
    return _HEADER.pack(_VERSION, crc32c(body)) + body


def decode_checkpoint(content: bytes) -> Checkpoint:
    """Read the file; raise CorruptBatch when it is not what was written."""
    if len(content) < _HEADER.size + _FIELDS.size:
        raise CorruptBatch(f"a checkpoint has {len(content)} bytes, fewer than its fields")
    version, crc = _HEADER.unpack_from(content)
    if version != _VERSION:
        raise CorruptBatch(f"a checkpoint has version {version}; only {_VERSION} is known")
    body = content[_HEADER.size :]
    if crc32c(body) != crc:
        raise CorruptBatch("a checkpoint does not match its checksum")
    fields = _FIELDS.unpack_from(body)
    base, size_bytes, next_offset, offsets, times, indexed, *highest, unindexed, _, _ = fields
    return Checkpoint(
        base_offset=base,
        size_bytes=size_bytes,
        next_offset=next_offset,
        index=IndexMark(offsets, times, indexed, TimeEntry(*highest), unindexed),
        index_checksums=fields[-2:],
        aborted=tuple(decode_entries(body[_FIELDS.size :])),
    )
