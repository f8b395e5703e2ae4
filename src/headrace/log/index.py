"""The two sparse indexes of a segment, in Kafka's own formats, held in memory.

    offset index, 8 bytes an entry    relative offset uint32, position uint32
    time index, 12 bytes an entry     timestamp int64, relative offset uint32

An entry of the offset index names the last offset of a batch, relative to the segment's base, and the byte at
which that batch begins. An entry of the time index names the highest timestamp seen up to there and the last
offset of the first batch that has it. Both only ever go up.

An entry is made for a batch when more than `interval_bytes` of batches lie between it and the last entry, so
the indexes are a pure function of the batches and can be rebuilt from them at any time. The time index gets a
last entry when the segment is sealed. The files are written then and, as far as the indexes have got, at each
checkpoint (see segment.py).

An index can go on from a mark without the entries before it, as long as nobody looks anything up: that is how
a large segment is opened in no time.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right
from typing import TYPE_CHECKING, Final, NamedTuple

from headrace.errors import CorruptBatch

if TYPE_CHECKING:
    from headrace.log.batch import BatchHeader

RELATIVE_OFFSET_MAX: Final = 2**31 - 1
NO_TIMESTAMP: Final = -1

OFFSET_ENTRY_BYTES: Final = 8
TIME_ENTRY_BYTES: Final = 12
_WORD_BYTES: Final = 4


class TimeEntry(NamedTuple):
    """The highest timestamp up to an offset, which is the last of the first batch that has it."""

    timestamp_ms: int
    offset: int


class IndexMark(NamedTuple):
    """How far the indexes have got: all that is needed to go on from there."""

    offset_entry_count: int
    time_entry_count: int
    indexed_timestamp_ms: int
    """That of the last time entry."""
    max_timestamp: TimeEntry
    unindexed_bytes: int


class SegmentIndex:
    """Where batches begin and when they were made, for one segment. Grows in one thread."""

    __slots__ = (
        "_base_offset",
        "_indexed_timestamp_ms",
        "_interval_bytes",
        "_offset_entries_before",
        "_offsets",
        "_positions",
        "_time_entries_before",
        "_time_offsets",
        "_timestamps",
        "_unindexed_bytes",
        "is_sealed",
        "max_timestamp",
    )

    def __init__(self, base_offset: int, interval_bytes: int) -> None:
        self._base_offset = base_offset
        self._interval_bytes = interval_bytes
        self._unindexed_bytes = 0
        self._offsets = array("I")
        self._positions = array("I")
        self._timestamps = array("q")
        self._time_offsets = array("I")
        self._indexed_timestamp_ms = NO_TIMESTAMP
        self._offset_entries_before = 0
        self._time_entries_before = 0
        self.is_sealed = False
        self.max_timestamp = TimeEntry(NO_TIMESTAMP, base_offset)

    @classmethod
    def after(cls, mark: IndexMark, base_offset: int, interval_bytes: int) -> SegmentIndex:
        """Go on from a mark; the entries before it are wanting."""
        index = cls(base_offset, interval_bytes)
        index._offset_entries_before = mark.offset_entry_count
        index._time_entries_before = mark.time_entry_count
        index._indexed_timestamp_ms = mark.indexed_timestamp_ms
        index._unindexed_bytes = mark.unindexed_bytes
        index.max_timestamp = mark.max_timestamp
        return index

    @property
    def is_whole(self) -> bool:
        """Whether no entries are wanting."""
        return self._offset_entries_before == self._time_entries_before == 0

    @property
    def entries_before(self) -> tuple[int, int]:
        """How many entries of the offset index and of the time index are wanting at the beginning."""
        return self._offset_entries_before, self._time_entries_before

    @property
    def mark(self) -> IndexMark:
        """How far the indexes have got."""
        return IndexMark(
            self._offset_entries_before + len(self._offsets),
            self._time_entries_before + len(self._timestamps),
            self._indexed_timestamp_ms,
            self.max_timestamp,
            self._unindexed_bytes,
        )

    def add(self, header: BatchHeader, position: int) -> None:
        """Take note of the batch that begins at a position; batches come in their order.

        Compaction leaves batches without records; nothing happened at their time.
        """
        if header.max_timestamp_ms > self.max_timestamp.timestamp_ms and header.record_count:
            self.max_timestamp = TimeEntry(header.max_timestamp_ms, header.last_offset)
        if self._unindexed_bytes > self._interval_bytes:
            self._offsets.append(header.last_offset - self._base_offset)
            self._positions.append(position)
            self._add_time_entry()
            self._unindexed_bytes = 0
        self._unindexed_bytes += header.size_bytes

    @property
    def offset_entry_count(self) -> int:
        """How many entries the offset index has."""
        return self._offset_entries_before + len(self._offsets)

    @property
    def time_entry_count(self) -> int:
        """How many entries the time index has."""
        return self._time_entries_before + len(self._timestamps)

    def floor_by_offset(self, offset: int) -> tuple[int | None, int]:
        """A batch's position, as far back as needed to find there or later the batch that has the offset.

        Before it comes that batch's last offset; None where the position is the segment's beginning.
        """
        found = bisect_right(self._offsets, max(offset - self._base_offset, 0))
        return (
            (self._base_offset + self._offsets[found - 1], self._positions[found - 1]) if found else (None, 0)
        )

    def floor_by_position(self, position: int) -> int:
        """The last known position of a batch that begins at or before a position."""
        found = bisect_right(self._positions, position)
        return self._positions[found - 1] if found else 0

    def next_boundary(self, position: int) -> int | None:
        """The next known position of a batch after a position."""
        found = bisect_right(self._positions, position)
        return self._positions[found] if found < len(self._positions) else None

    def floor_by_timestamp(self, timestamp_ms: int) -> TimeEntry | None:
        """The last entry that is not past the time: no batch before its offset reaches that time."""
        found = bisect_right(self._timestamps, timestamp_ms)
        if not found:
            return None
        return TimeEntry(self._timestamps[found - 1], self._base_offset + self._time_offsets[found - 1])

    def seal(self) -> None:
        """Close the time index with the segment's highest timestamp."""
        self._add_time_entry()
        self.is_sealed = True

    def encode_offsets(self, begin: int = 0, end: int | None = None) -> bytes:
        """The content of the `.index` file, or some entries of it."""
        wanted = _slice(begin, end, self._offset_entries_before)
        return _interleaved(self._offsets[wanted], self._positions[wanted])

    def encode_times(self, begin: int = 0, end: int | None = None) -> bytes:
        """The content of the `.timeindex` file, or some entries of it."""
        wanted = _slice(begin, end, self._time_entries_before)
        high, low = _halves(self._timestamps[wanted])
        return _interleaved(high, low, self._time_offsets[wanted])

    @classmethod
    def joined(cls, later: SegmentIndex, *, offsets: bytes, times: bytes) -> SegmentIndex:
        """An index with the entries at the beginning that were wanting.

        Raises CorruptBatch when these can't be they.
        """
        index = cls(later._base_offset, later._interval_bytes)
        index._indexed_timestamp_ms = later._indexed_timestamp_ms
        index._unindexed_bytes = later._unindexed_bytes
        index.max_timestamp = later.max_timestamp
        index.is_sealed = later.is_sealed
        index._extend(offsets, times)
        if (len(index._offsets), len(index._timestamps)) != later.entries_before:
            raise CorruptBatch("an index file has fewer entries than were written")
        index._offsets += later._offsets
        index._positions += later._positions
        index._timestamps += later._timestamps
        index._time_offsets += later._time_offsets
        return index

    @classmethod
    def decode(
        cls, base_offset: int, interval_bytes: int, *, offsets: bytes, times: bytes, segment_bytes: int
    ) -> SegmentIndex:
        """Read both files of a sealed segment; raise CorruptBatch when they can't be right.

        Whether they are what was written, and so in order, their checksums say (see index_files.py): to walk
        over all entries would take most of the time that a large segment's first look-up takes.
        """
        index = cls(base_offset, interval_bytes)
        index._extend(offsets, times)
        index.is_sealed = True
        if index._positions and index._positions[-1] >= segment_bytes:
            raise CorruptBatch("an index file points past the end of its segment")
        if index._timestamps:
            index._indexed_timestamp_ms = index._timestamps[-1]
            index.max_timestamp = TimeEntry(index._timestamps[-1], base_offset + index._time_offsets[-1])
        return index

    def _extend(self, offsets: bytes, times: bytes) -> None:
        if len(offsets) % OFFSET_ENTRY_BYTES or len(times) % TIME_ENTRY_BYTES:
            raise CorruptBatch("an index file ends in the middle of an entry")
        relative_offsets, positions = _columns(offsets, 2)
        self._offsets += relative_offsets
        self._positions += positions
        high, low, relative_offsets = _columns(times, 3)
        self._timestamps += _joined(high, low)
        self._time_offsets += relative_offsets

    def _add_time_entry(self) -> None:
        if self.max_timestamp.timestamp_ms > self._indexed_timestamp_ms:
            self._indexed_timestamp_ms = self.max_timestamp.timestamp_ms
            self._timestamps.append(self.max_timestamp.timestamp_ms)
            self._time_offsets.append(self.max_timestamp.offset - self._base_offset)


def _slice(begin: int, end: int | None, entries_before: int) -> slice:
    assert begin >= entries_before, "entries are wanted that have not been loaded"
    return slice(begin - entries_before, None if end is None else end - entries_before)


# Entries are encoded and decoded by whole columns of four bytes each: there may be hundreds of thousands.
_IS_LITTLE_ENDIAN: Final = sys.byteorder == "little"


def _interleaved(*columns: array[int]) -> bytes:
    """Columns as the bytes of rows, big-endian."""
    words = array("I", bytes(_WORD_BYTES * len(columns) * len(columns[0])))
    for number, column in enumerate(columns):
        words[number :: len(columns)] = column
    if _IS_LITTLE_ENDIAN:
        words.byteswap()
    return words.tobytes()


def _columns(rows: bytes, column_count: int) -> list[array[int]]:
    """The other way round."""
    words = array("I", rows)
    if _IS_LITTLE_ENDIAN:
        words.byteswap()
    return [words[number::column_count] for number in range(column_count)]


def _halves(numbers: array[int]) -> tuple[array[int], array[int]]:
    """The high and the low halves of numbers of eight bytes."""
    words = array("I", numbers.tobytes())
    first, second = words[0::2], words[1::2]
    return (second, first) if _IS_LITTLE_ENDIAN else (first, second)


def _joined(high: array[int], low: array[int]) -> array[int]:
    """The other way round."""
    words = array("I", bytes(2 * _WORD_BYTES * len(high)))
    words[0::2], words[1::2] = (low, high) if _IS_LITTLE_ENDIAN else (high, low)
    return array("q", words.tobytes())
