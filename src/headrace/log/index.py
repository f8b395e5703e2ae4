"""The two sparse indexes of a segment, in Kafka's own formats, held in memory.

    offset index, 8 bytes an entry    relative offset uint32, position uint32
    time index, 12 bytes an entry     timestamp int64, relative offset uint32

An entry of the offset index names the last offset of a batch, relative to the segment's base, and the byte at
which that batch begins. An entry of the time index names the highest timestamp seen up to there and the last
offset of the first batch that has it. Both only ever go up.

An entry is made for a batch when more than `interval_bytes` of batches lie between it and the last entry, so
the indexes are a pure function of the batches and can be rebuilt from them at any time. The time index gets a
last entry when the segment is sealed; the files are written only then (see segment.py).
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from operator import lt
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from headrace.errors import CorruptBatch

if TYPE_CHECKING:
    from headrace.log.batch import BatchHeader

RELATIVE_OFFSET_MAX: Final = 2**31 - 1
NO_TIMESTAMP: Final = -1

_OFFSET_ENTRY: Final = Struct(">II")
_TIME_ENTRY: Final = Struct(">qI")
OFFSET_ENTRY_BYTES: Final = _OFFSET_ENTRY.size
TIME_ENTRY_BYTES: Final = _TIME_ENTRY.size


class TimeEntry(NamedTuple):
    """The highest timestamp up to an offset, which is the last of the first batch that has it."""

    timestamp_ms: int
    offset: int


class SegmentIndex:
    """Where batches begin and when they were made, for one segment. Grows in one thread."""

    __slots__ = (
        "_base_offset",
        "_interval_bytes",
        "_offsets",
        "_positions",
        "_time_offsets",
        "_timestamps",
        "_unindexed_bytes",
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
        self.max_timestamp = TimeEntry(NO_TIMESTAMP, base_offset)

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
        return len(self._offsets)

    @property
    def time_entry_count(self) -> int:
        """How many entries the time index has."""
        return len(self._timestamps)

    def floor_by_offset(self, offset: int) -> int:
        """A batch's position, as far back as needed to find there or later the batch that has the offset."""
        found = bisect_right(self._offsets, max(offset - self._base_offset, 0))
        return self._positions[found - 1] if found else 0

    def floor_by_position(self, position: int) -> int:
        """The last known position of a batch that begins at or before a position."""
        found = bisect_right(self._positions, position)
        return self._positions[found - 1] if found else 0

    def floor_by_timestamp(self, timestamp_ms: int) -> TimeEntry | None:
        """The last entry that is not past the time: no batch before its offset reaches that time."""
        found = bisect_right(self._timestamps, timestamp_ms)
        if not found:
            return None
        return TimeEntry(self._timestamps[found - 1], self._base_offset + self._time_offsets[found - 1])

    def seal(self) -> None:
        """Close the time index with the segment's highest timestamp."""
        self._add_time_entry()

    def encode_offsets(self) -> bytes:
        """The content of the `.index` file."""
        return b"".join(map(_OFFSET_ENTRY.pack, self._offsets, self._positions))

    def encode_times(self) -> bytes:
        """The content of the `.timeindex` file."""
        return b"".join(map(_TIME_ENTRY.pack, self._timestamps, self._time_offsets))

    @classmethod
    def decode(
        cls, base_offset: int, interval_bytes: int, *, offsets: bytes, times: bytes, segment_bytes: int
    ) -> SegmentIndex:
        """Read both files of a sealed segment; raise CorruptBatch when they can't be right."""
        if len(offsets) % _OFFSET_ENTRY.size or len(times) % _TIME_ENTRY.size:
            raise CorruptBatch("an index file ends in the middle of an entry")
        index = cls(base_offset, interval_bytes)
        for offset, position in _OFFSET_ENTRY.iter_unpack(offsets):
            index._offsets.append(offset)
            index._positions.append(position)
        for timestamp_ms, offset in _TIME_ENTRY.iter_unpack(times):
            index._timestamps.append(timestamp_ms)
            index._time_offsets.append(offset)
        if not all(map(_ascends, (index._offsets, index._positions, index._timestamps, index._time_offsets))):
            raise CorruptBatch("an index file is out of order")
        if index._positions and index._positions[-1] >= segment_bytes:
            raise CorruptBatch("an index file points past the end of its segment")
        if index._timestamps:
            index.max_timestamp = TimeEntry(index._timestamps[-1], base_offset + index._time_offsets[-1])
        return index

    def _add_time_entry(self) -> None:
        if self.max_timestamp.timestamp_ms > (self._timestamps[-1] if self._timestamps else NO_TIMESTAMP):
            self._timestamps.append(self.max_timestamp.timestamp_ms)
            self._time_offsets.append(self.max_timestamp.offset - self._base_offset)


def _ascends(values: array[int]) -> bool:
    return all(map(lt, values, values[1:]))
