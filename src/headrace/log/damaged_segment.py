"""Reading a segment in which damage was met: what is sound of it, found by a walk (see damage_walk.py).

A batch is checked each time that it is read, so this is slow, and right.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from headrace.errors import CorruptBatch
from headrace.log.damage_walk import DamageWalk, SoundBatch, read_around
from headrace.log.index import NO_TIMESTAMP
from headrace.log.scan import DATA_WINDOW_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.log.damage_walk import DamagedRange
    from headrace.log.disk import Disk
    from headrace.log.index import SegmentIndex
    from headrace.log.segment import Segment

logger: Final = logging.getLogger(__name__)


class DamagedSegment:
    """One segment, read around its damage. Belongs to the event loop's thread."""

    def __init__(self, segment: Segment, disk: Disk) -> None:
        self._segment = segment
        self._disk = disk

    def read(self, offset: int, size_bytes_max: int, below_offset: int) -> bytes:
        """Sound batches from the one that has the offset on; raises CorruptBatch when that is damaged."""
        walk = self._walk(self.sound_index(), offset)
        begin, end = read_around(walk, offset, size_bytes_max, below_offset)
        return self._disk.read(self._segment.open(), begin, end - begin)

    def first_batch_since(self, timestamp_ms: int, from_offset: int) -> bytes | None:
        """The first sound batch that reaches the offset and says that it has one so late."""
        index = self.sound_index()
        entry = index.floor_by_timestamp(timestamp_ms)
        offset = max(from_offset, self._segment.base_offset if entry is None else entry.offset)
        for each in self._walk(index, offset):
            if isinstance(each, SoundBatch):
                header = each.header
                if header.max_timestamp_ms >= timestamp_ms and header.last_offset >= from_offset:
                    return self._disk.read(self._segment.open(), each.position, header.size_bytes)
        return None

    def max_timestamp_since(self, from_offset: int) -> int:
        """The highest timestamp of all sound batches that reach the offset."""
        sound = (
            each.header
            for each in self._walk(self.sound_index(), from_offset)
            if isinstance(each, SoundBatch) and each.header.last_offset >= from_offset
        )
        return max((header.max_timestamp_ms for header in sound if header.record_count), default=NO_TIMESTAMP)

    def sound_index(self) -> SegmentIndex:
        """The indexes; where they are damaged, too, made of all batches that are sound."""
        segment = self._segment
        try:
            return segment.indexes.whole
        except CorruptBatch as error:
            logger.warning("the indexes of %s are made anew from its sound batches: %s", segment.path, error)
        index = segment.indexes.begin_anew()
        for each in self._walk(index, segment.base_offset):
            if isinstance(each, SoundBatch):
                index.add(each.header, each.position)
        index.seal()
        return index

    def _walk(self, index: SegmentIndex, offset: int) -> Iterator[SoundBatch | DamagedRange]:
        """From the last known boundary before an offset on."""
        segment = self._segment
        walk = DamageWalk(
            segment.scanner(DATA_WINDOW_BYTES),
            below_offset=segment.next_offset,
            written_bytes=segment.written_bytes,
            written_offset=segment.written_offset,
            next_boundary=index.next_boundary,
        )
        last_offset, position = index.floor_by_offset(offset - 1)
        return walk.walk(position, segment.base_offset, last_offset)
