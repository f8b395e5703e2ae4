"""Which transactions were aborted: a segment's `.txnindex`, in Kafka's own format.

    34 bytes an entry    version int16 = 0, producer id int64, first offset int64, last offset int64,
                         last stable offset int64
    at the end           the seal: size of the `.log` int64, its last offset int64, CRC-32C uint32 of the
                         `.index` and of the `.timeindex`, and then of all that comes before in this file

A transaction stands in the index of the segment that holds its marker, whose offset is the entry's last. The
last stable offset is what it was once this transaction had ended: no transaction that ended later begins
below it, so a search that has reached the end of its range there can stop.

The seal is ours: nothing else in these files would tell a wrong entry from a right one, or that one is
missing, or that a `.log` has lost its end. The last offset tells that also where something else has pushed
the end out, so that the size is what it was. The seal is shorter than an entry, and Kafka's readers stop
where no whole entry follows. Each sealed segment has the file, even if no transaction was aborted in it; so
one that is missing is noticed.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from crc32c import crc32c

from headrace.errors import CorruptBatch

if TYPE_CHECKING:
    from collections.abc import Iterable

_ENTRY: Final = Struct(">hqqqq")
_SEAL: Final = Struct(">qqII")
_CRC: Final = Struct(">I")
_VERSION: Final = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortedTransaction:
    """A transaction that was aborted: its producer's records from the first to the last offset are void."""

    producer_id: int
    first_offset: int
    last_offset: int
    """That of the marker."""
    last_stable_offset: int
    """What it was once this transaction had ended."""


class Seal(NamedTuple):
    """What a segment's files were when it was sealed."""

    log_bytes: int
    last_offset: int
    """That of the last batch; one less than the base offset where there is none."""
    offsets_crc: int
    times_crc: int


class TransactionIndex:
    """The aborted transactions whose markers lie in one segment, in their order. Grows in one thread."""

    __slots__ = ("_entries",)

    def __init__(self, entries: Iterable[AbortedTransaction] = ()) -> None:
        self._entries = list(entries)

    @property
    def entries(self) -> tuple[AbortedTransaction, ...]:
        """All of them."""
        return tuple(self._entries)

    def add(self, transaction: AbortedTransaction) -> None:
        """Take note of a transaction that was aborted."""
        self._entries.append(transaction)

    def collect(self, from_offset: int, below_offset: int, found: list[AbortedTransaction]) -> bool:
        """Add those that overlap a range of offsets; say whether later segments can't have any more."""
        # In the order of their markers, so those that ended before the range come first.
        first = bisect_left(self._entries, from_offset, key=attrgetter("last_offset"))
        for entry in islice(self._entries, first, None):
            if entry.first_offset < below_offset:
                found.append(entry)
            if entry.last_stable_offset >= below_offset:
                return True
        return False

    def encode(self, seal: Seal) -> bytes:
        """The content of the `.txnindex` file, with the segment's seal."""
        content = encode_entries(self._entries) + _SEAL.pack(*seal)
        return content + _CRC.pack(crc32c(content))

    @classmethod
    def decode(cls, content: bytes) -> tuple[TransactionIndex, Seal]:
        """Read the file and the seal in it; raise CorruptBatch when it is not what was written."""
        if len(content) < _SEAL.size + _CRC.size:
            raise CorruptBatch(f"a transaction index has {len(content)} bytes, fewer than its seal")
        checked = content[: -_CRC.size]
        if _CRC.pack(crc32c(checked)) != content[-_CRC.size :]:
            raise CorruptBatch("a transaction index does not match its checksum")
        entries = checked[: -_SEAL.size]
        return cls(decode_entries(entries)), Seal(*_SEAL.unpack_from(checked, len(entries)))


def encode_entries(transactions: Iterable[AbortedTransaction]) -> bytes:
    """Entries one after the other."""
    return b"".join(
        _ENTRY.pack(_VERSION, each.producer_id, each.first_offset, each.last_offset, each.last_stable_offset)
        for each in transactions
    )


def decode_entries(content: bytes) -> list[AbortedTransaction]:
    """Read entries; their checksum has been checked."""
    if len(content) % _ENTRY.size:
        raise CorruptBatch("a transaction index ends in the middle of an entry")
    entries = []
    for version, producer_id, first_offset, last_offset, last_stable_offset in _ENTRY.iter_unpack(content):
        if version != _VERSION:
            raise CorruptBatch(f"a transaction index has version {version}; only {_VERSION} is known")
        entries.append(
            AbortedTransaction(
                producer_id=producer_id,
                first_offset=first_offset,
                last_offset=last_offset,
                last_stable_offset=last_stable_offset,
            )
        )
    return entries
