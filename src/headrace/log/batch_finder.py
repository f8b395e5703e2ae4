"""Where in a segment's file a batch begins, and where a reader has to stop.

An index leads to the last place before the one that is sought, and the headers from there on to the place
itself. What an earlier process has written is not believed on sight: each step of the way is held against
what the index and the headers before it say, and CorruptBatch is raised where they disagree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import CorruptBatch
from headrace.log.scan import corrupt_at

if TYPE_CHECKING:
    from headrace.log.batch import BatchHeader
    from headrace.log.index import TimeEntry
    from headrace.log.scan import FileScanner
    from headrace.log.segment import Segment


class BatchFinder:
    """Finds batches of one segment through a scanner of its file."""

    __slots__ = ("_indexes", "_scanner", "_segment")

    def __init__(self, segment: Segment, scanner: FileScanner) -> None:
        self._segment = segment
        self._indexes = segment.indexes
        self._scanner = scanner

    def range(self, offset: int, size_bytes_max: int, below_offset: int) -> tuple[int, int]:
        """Where the batches begin and end that are to be read from an offset on."""
        stop = self.position_of(below_offset)
        start = self.position_of(offset)
        if start >= stop:
            return start, start
        return start, self._last_boundary(start, size_bytes_max, stop)

    def position_of(self, offset: int) -> int:
        """Where the first batch begins that reaches the offset; the segment's end when there is none."""
        segment, scanner = self._segment, self._scanner
        if offset >= segment.next_offset or not segment.size_bytes:
            return segment.size_bytes
        known = self._indexes.remembered(offset)
        if known is not None and known >= segment.trusted_from:
            return known
        if known is not None and scanner.header_at(known).base_offset == offset:
            return known
        return self._search(offset)

    def position_at(self, entry: TimeEntry) -> int:
        """Where the batch begins of which the time index speaks, if it speaks the truth."""
        position = self.position_of(entry.offset)
        if self._scanner.header_at(position).max_timestamp_ms != entry.timestamp_ms:
            raise corrupt_at(position, f"the time index is wrong about offset {entry.offset}")
        return position

    def check_successor(self, position: int, header: BatchHeader) -> None:
        """Check a batch that leaves a gap before it, as compaction does or a damaged base offset.

        The checksum does not cover the base offset; but a damaged one is hardly less than the next batch's.
        """
        after = position + header.size_bytes
        below_offset = self._segment.next_offset
        if after < self._segment.size_bytes:
            try:
                below_offset = self._scanner.header_at(after).base_offset
            except CorruptBatch:
                return
        if header.last_offset >= below_offset:
            raise corrupt_at(position, f"offset {header.last_offset} comes before {below_offset}")

    def _search(self, offset: int) -> int:
        segment, scanner = self._segment, self._scanner
        last_offset, position = self._indexes.whole.floor_by_offset(offset)
        header = scanner.header_at(position)
        if header.base_offset < segment.base_offset or header.last_offset_delta < 0:
            raise corrupt_at(position, f"a batch has offsets {header.base_offset} to {header.last_offset}")
        if last_offset not in {None, header.last_offset}:
            raise corrupt_at(position, f"the index has another batch there, which ends with {last_offset}")
        before = position
        while header.last_offset < offset:
            before, last_offset = position, header.last_offset
            position += header.size_bytes
            if position >= segment.size_bytes:
                # Compaction may have removed the last batches, and nobody has looked where the segment ends.
                self._check_before_gap(before)
                if last_offset < segment.written_offset:
                    raise corrupt_at(
                        position, f"the file ends; it went on to offset {segment.written_offset}"
                    )
                return segment.size_bytes
            header = scanner.header_at(position)
            if header.base_offset <= last_offset or header.last_offset_delta < 0:
                raise corrupt_at(position, f"offset {header.base_offset} comes after {last_offset}")
        if header.base_offset > offset and position < segment.trusted_from:
            self._check_before_gap(before)
            self.check_successor(position, header)
        return position

    def _check_before_gap(self, position: int) -> None:
        """Check the batch before a gap: compaction has left it, or it does not say how far it goes."""
        if position < self._segment.trusted_from:
            try:
                self._scanner.checked_header_at(position)
            except CorruptBatch as error:
                raise corrupt_at(position, str(error)) from error

    def _last_boundary(self, start: int, size_bytes_max: int, stop: int) -> int:
        """Where the last whole batch ends that fits; the first batch counts as fitting."""
        full = start + size_bytes_max
        if full >= stop:
            return stop
        scanner, indexes = self._scanner, self._indexes
        position = max(start, indexes.whole.floor_by_position(full))
        header = scanner.header_at(position)
        if position >= self._segment.trusted_from:
            # Whoever reads on begins there, unless more fits.
            indexes.remember(header.base_offset, position)
        while position == start or position + header.size_bytes <= full:
            position += header.size_bytes
            indexes.remember(header.last_offset + 1, position)
            if position >= full:
                break
            header = scanner.header_at(position)
        return position
