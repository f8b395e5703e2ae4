"""Reading one segment: by offset, by time, read at once or lent.

Batches that this process wrote, or checked when it recovered, are served as they are. Those of a segment that
was sealed by an earlier process, and those before a checkpoint of an earlier process, are compared with their
checksums when they are first read.

Damage that is met first may be that of a loaded index: it is made anew from the batches, and the reader tries
once more. Damage that is met then is the batches' own, and the segment is read around it from now on (see
damaged_segment.py).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, TypeVar

from headrace.errors import CorruptBatch
from headrace.log.batch_finder import BatchFinder
from headrace.log.damaged_segment import DamagedSegment
from headrace.log.index import NO_TIMESTAMP
from headrace.log.scan import HEADER_WINDOW_BYTES, check_batch, check_place, corrupt_at
from headrace.log.stored_batches import StoredBatches

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.log.segment import Segment
    from headrace.log.storage import Storage

logger: Final = logging.getLogger(__name__)

_Found = TypeVar("_Found")


class SegmentReading:
    """Reads one segment. Belongs to the event loop's thread."""

    def __init__(self, segment: Segment, storage: Storage) -> None:
        self._segment = segment
        self._indexes = segment.indexes
        self._disk = storage.disk
        self._lending = storage.lending
        self._damaged = DamagedSegment(segment, storage.disk)
        self._checked_from = 0
        self._checked_to = 0

    def read(self, offset: int, size_bytes_max: int, below_offset: int) -> bytes:
        """Whole batches from the one that has the offset on; none that reaches `below_offset`."""
        return self._look_up(
            lambda: self._read_range(*self._finder().range(offset, size_bytes_max, below_offset)),
            lambda: self._damaged.read(offset, size_bytes_max, below_offset),
        )

    def lend(self, offset: int, size_bytes_max: int, below_offset: int) -> bytes | StoredBatches:
        """The same batches as `read`, unread where there are many and nothing about them is to be checked."""
        return self._look_up(
            lambda: self._lend_range(*self._finder().range(offset, size_bytes_max, below_offset)),
            lambda: self._damaged.read(offset, size_bytes_max, below_offset),
        )

    def first_batch_since(self, timestamp_ms: int, from_offset: int) -> bytes | None:
        """The first batch that reaches the offset and says that it has a record at the time or later."""
        # Who looks for a moment in a large log passes by many segments: each must cost next to nothing.
        known = self._indexes.known
        if (
            known is not None
            and known.max_timestamp.timestamp_ms < timestamp_ms
            and known.is_whole
            and not self._segment.is_damaged
        ):
            return None
        return self._look_up(
            lambda: self._first_batch_since(timestamp_ms, from_offset),
            lambda: self._damaged.first_batch_since(timestamp_ms, from_offset),
        )

    def max_timestamp(self, from_offset: int) -> int:
        """The highest timestamp of all batches that reach the offset; NO_TIMESTAMP when none has one."""
        if from_offset > self._segment.base_offset:
            return self._look_up(
                lambda: self._max_timestamp_since(from_offset),
                lambda: self._damaged.max_timestamp_since(from_offset),
            )
        known = self._indexes.known
        if known is not None:
            return known.max_timestamp.timestamp_ms
        return self._look_up(
            lambda: self._indexes.whole.max_timestamp.timestamp_ms,
            lambda: self._damaged.sound_index().max_timestamp.timestamp_ms,
        )

    def _look_up(self, look_up: Callable[[], _Found], look_around: Callable[[], _Found]) -> _Found:
        """Look something up and, where damage is met, look around it."""
        segment = self._segment
        if not segment.is_damaged:
            damage = None
            try:
                found = self._with_sound_index(look_up)
            except CorruptBatch as error:
                damage = error
            # A file that has lost its end looks sound up to there.
            if damage is None and not segment.is_damaged:
                return found
            if damage is not None:
                logger.error("%s is damaged, and read around that from now on: %s", segment.path, damage)
            segment.is_damaged = True
        try:
            return look_around()
        except CorruptBatch as error:
            raise CorruptBatch(f"{segment.path}: {error}") from error

    def _with_sound_index(self, look_up: Callable[[], _Found]) -> _Found:
        try:
            if self._indexes.known is None:
                # This holds the file's end against what it was, too.
                self._indexes.load_sealed()
            return look_up()
        except CorruptBatch as error:
            if not self._indexes.are_loaded:
                raise
            logger.warning("the indexes of %s are made anew from its batches: %s", self._segment.path, error)
        self._indexes.rebuild()
        return look_up()

    def _finder(self) -> BatchFinder:
        return BatchFinder(self._segment, self._segment.scanner(HEADER_WINDOW_BYTES))

    def _lend_range(self, start: int, end: int) -> bytes | StoredBatches:
        if (
            end - start < self._lending.size_bytes_min
            or not self._segment.may_lend
            or not self._is_checked(start, end)
            or self._disk.size_bytes(self._segment.open()) < end
        ):
            return self._read_range(start, end)
        piece_bytes = self._lending.piece_bytes
        return StoredBatches(self._segment, self._disk, start, end - start, piece_bytes=piece_bytes)

    def _read_range(self, start: int, end: int) -> bytes:
        if start == end:
            return b""
        data = self._disk.read(self._segment.open(), start, end - start)
        if len(data) < end - start:
            raise corrupt_at(start + len(data), f"the file ends; it had {self._segment.size_bytes} bytes")
        if not self._is_checked(start, end):
            self._check(memoryview(data), start)
        return data

    def _is_checked(self, start: int, end: int) -> bool:
        """Whether nobody has to compare what lies there with its checksums."""
        return start >= self._segment.trusted_from or self._checked_from <= start <= end <= self._checked_to

    def _check(self, data: memoryview, start: int) -> None:
        segment = self._segment
        position = 0
        next_offset = segment.base_offset
        while position < len(data):
            try:
                header = check_batch(data[position:])
                check_place(header, next_offset, gaps=True, below_offset=segment.next_offset)
            except CorruptBatch as error:
                raise corrupt_at(start + position, f"{error} (offset {next_offset} or later)") from error
            next_offset = header.last_offset + 1
            last_at = position
            position += header.size_bytes
        self._finder().check_successor(start + last_at, header)
        end = start + len(data)
        if start == self._checked_to:
            self._checked_to = end
        else:
            self._checked_from, self._checked_to = start, end

    def _first_batch_since(self, timestamp_ms: int, from_offset: int) -> bytes | None:
        segment, index = self._segment, self._indexes.whole
        if index.max_timestamp.timestamp_ms < timestamp_ms:
            return None
        entry = index.floor_by_timestamp(timestamp_ms)
        scanner = segment.scanner(HEADER_WINDOW_BYTES)
        finder = BatchFinder(segment, scanner)
        position = 0 if entry is None else finder.position_at(entry)
        if from_offset > segment.base_offset:
            position = max(position, finder.position_of(from_offset))
        while position < segment.size_bytes:
            header = scanner.header_at(position)
            if header.max_timestamp_ms >= timestamp_ms:
                return self._read_range(*finder.range(header.base_offset, 0, segment.next_offset))
            position += header.size_bytes
        return None

    def _max_timestamp_since(self, from_offset: int) -> int:
        scanner = self._segment.scanner(HEADER_WINDOW_BYTES)
        position = BatchFinder(self._segment, scanner).position_of(from_offset)
        highest = NO_TIMESTAMP
        while position < self._segment.size_bytes:
            header = scanner.header_at(position)
            highest = max(highest, header.max_timestamp_ms if header.record_count else NO_TIMESTAMP)
            position += header.size_bytes
        return highest
