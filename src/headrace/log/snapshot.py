"""What a partition knew of its producers at an offset: `<offset>.snapshot`, in Kafka's own format.

    version int16 = 1, CRC-32C uint32 of all that follows, entry count int32, then for each entry:
    producer id int64, epoch int16, last sequence int32, last offset int64, offset delta int32 (from the
    batch's first offset to its last), timestamp int64, coordinator epoch int32, first offset of the open
    transaction int64 (-1 for none)

Kafka keeps a producer's last batch; here each of the last five has an entry, the newest last. Kafka takes the
last entry of a producer, so it reads these files as its own. A producer whose epoch was raised by a marker
has no batch yet: its one entry has sequence and offset -1.

A snapshot is written for the base offset of each segment but the first when the segment before it is sealed,
and for the offset of each checkpoint (see checkpoint.py). What was known at an offset stays true whatever is
removed from the log: compaction and retention leave snapshots as they are, and one goes with the segment that
begins at its offset (see `snapshot_name`).
"""

from __future__ import annotations

import re
from itertools import groupby
from operator import itemgetter
from struct import Struct
from typing import TYPE_CHECKING, Final

from crc32c import crc32c

from headrace.errors import CorruptBatch
from headrace.log.batch import NO_SEQUENCE
from headrace.log.producers import Duplicate, FrozenProducers, Producer, WrittenBatch

if TYPE_CHECKING:
    from collections.abc import Iterator

SNAPSHOT_NAME: Final = re.compile(r"(\d{20})\.snapshot")

_HEADER: Final = Struct(">hI")
_COUNT: Final = Struct(">i")
_ENTRY: Final = Struct(">qhiqiqiq")
_VERSION: Final = 1
_NO_OFFSET: Final = -1
_SEQUENCE_COUNT: Final = 2**31

_Entry = tuple[int, int, int, int, int, int, int, int]


def snapshot_name(offset: int) -> str:
    """The name of the snapshot for an offset; that of a segment's base goes when the segment goes."""
    return f"{offset:020d}.snapshot"


def encode_snapshot(producers: FrozenProducers) -> bytes:
    """The content of a snapshot."""
    entries = [entry for each in producers.producers.items() for entry in _entries(*each, producers)]
    body = b"".join((_COUNT.pack(len(entries)), *(_ENTRY.pack(*entry) for entry in entries)))
    return _HEADER.pack(_VERSION, crc32c(body)) + body


def decode_snapshot(content: bytes) -> FrozenProducers:
    """Read a snapshot; raise CorruptBatch when it is not what was written."""
    if len(content) < _HEADER.size + _COUNT.size:
        raise CorruptBatch(f"a snapshot has {len(content)} bytes, fewer than its header")
    version, crc = _HEADER.unpack_from(content)
    if version != _VERSION:
        raise CorruptBatch(f"a snapshot has version {version}; only {_VERSION} is known")
    body = content[_HEADER.size :]
    if crc32c(body) != crc:
        raise CorruptBatch("a snapshot does not match its checksum")
    (count,) = _COUNT.unpack_from(body)
    if count * _ENTRY.size != len(body) - _COUNT.size:
        raise CorruptBatch(f"a snapshot of {len(content)} bytes says that it has {count} entries")
    entries: Iterator[_Entry] = _ENTRY.iter_unpack(body[_COUNT.size :])
    frozen = FrozenProducers(producers={}, open_transactions={})
    for producer_id, own in groupby(entries, itemgetter(0)):
        _thaw(producer_id, list(own), frozen)
    return frozen


def _entries(producer_id: int, producer: Producer, frozen: FrozenProducers) -> Iterator[_Entry]:
    transaction = frozen.open_transactions.get(producer_id, _NO_OFFSET)
    rest = producer.coordinator_epoch, transaction
    newest = len(producer.batches) - 1
    for number, batch in enumerate(producer.batches):
        written = batch.duplicate
        timestamp_ms = producer.last_timestamp_ms if number == newest else written.timestamp_ms
        offset_delta = written.last_offset - written.base_offset
        place = batch.last_sequence, written.last_offset, offset_delta, timestamp_ms
        yield (producer_id, producer.epoch, *place, *rest)
    if not producer.batches:
        place = NO_SEQUENCE, _NO_OFFSET, 0, producer.last_timestamp_ms
        yield (producer_id, producer.epoch, *place, *rest)


def _thaw(producer_id: int, entries: list[_Entry], frozen: FrozenProducers) -> None:
    _, epoch, _, _, _, timestamp_ms, coordinator_epoch, transaction = entries[-1]
    frozen.producers[producer_id] = Producer(
        epoch=epoch,
        batches=tuple(_batch(entry) for entry in entries if entry[2] != NO_SEQUENCE),
        coordinator_epoch=coordinator_epoch,
        last_timestamp_ms=timestamp_ms,
    )
    if transaction != _NO_OFFSET:
        frozen.open_transactions[producer_id] = transaction


def _batch(entry: _Entry) -> WrittenBatch:
    _, _, last_sequence, last_offset, offset_delta, timestamp_ms, _, _ = entry
    base_sequence = (last_sequence - offset_delta) % _SEQUENCE_COUNT
    return WrittenBatch(
        base_sequence, last_sequence, Duplicate(last_offset - offset_delta, last_offset, timestamp_ms)
    )
