"""Which transactions were aborted: a segment's `.txnindex`, in Kafka's own format.

    34 bytes an entry    version int16 = 0, producer id int64, first offset int64, last offset int64,
                         last stable offset int64

A transaction stands in the index of the segment that holds its marker, whose offset is the entry's last. The
last stable offset is what it was once this transaction had ended: no transaction that ended later begins
below it, so a search that has reached the end of its range there can stop.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING, Final

from headrace.errors import CorruptBatch

if TYPE_CHECKING:
    from collections.abc import Iterable

_ENTRY: Final = Struct(">hqqqq")
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
        for entry in self._entries:
            if entry.last_offset >= from_offset and entry.first_offset < below_offset:
                found.append(entry)
            if entry.last_stable_offset >= below_offset:
                return True
        return False

    def encode(self) -> bytes:
        """The content of the `.txnindex` file."""
        return b"".join(
            _ENTRY.pack(
                _VERSION, entry.producer_id, entry.first_offset, entry.last_offset, entry.last_stable_offset
            )
            for entry in self._entries
        )

    @classmethod
    def decode(cls, content: bytes, *, base_offset: int, next_offset: int) -> TransactionIndex:
        """Read the file of a segment with these offsets; raise CorruptBatch when it can't be right."""
        if len(content) % _ENTRY.size:
            raise CorruptBatch("a transaction index ends in the middle of an entry")
        entries = []
        marker_offset_min = base_offset
        for version, producer_id, first, last, stable in _ENTRY.iter_unpack(content):
            if version != _VERSION:
                raise CorruptBatch(f"a transaction index has version {version}; only {_VERSION} is known")
            if not (marker_offset_min <= last < next_offset and first < last and stable <= last + 1):
                raise CorruptBatch(f"a transaction index is wrong about the marker at offset {last}")
            marker_offset_min = last + 1
            entries.append(
                AbortedTransaction(
                    producer_id=producer_id, first_offset=first, last_offset=last, last_stable_offset=stable
                )
            )
        return cls(entries)
