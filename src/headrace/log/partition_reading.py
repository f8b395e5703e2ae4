"""Reading a partition by offset: batches of the first segment that has the offset or something after it."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from headrace.errors import OffsetOutOfRange
from headrace.log.failure import storage_error

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from headrace.log.segment import Segment
    from headrace.log.segment_list import SegmentList
    from headrace.log.stored_batches import StoredBatches

_Found = TypeVar("_Found")


class PartitionReading:
    """Reads the segments of one partition. Belongs to the event loop's thread."""

    def __init__(
        self, directory: Path, segments: SegmentList, *, extent: Callable[[], tuple[int, int]]
    ) -> None:
        """`extent` tells the first offset that can be read and the one that the next record will get."""
        self._directory = directory
        self._segments = segments
        self._extent = extent

    def read(self, offset: int, *, size_bytes_max: int, below_offset: int | None) -> bytes:
        """Whole batches, the first of them the one that has the offset; empty at the end of the log."""
        return self._first_found(
            offset,
            below_offset,
            lambda segment, stop: segment.read(offset, size_bytes_max=size_bytes_max, below_offset=stop),
        )

    def lend(self, offset: int, *, size_bytes_max: int, below_offset: int | None) -> bytes | StoredBatches:
        """The same as `read`, but unread where there is much."""
        return self._first_found(
            offset,
            below_offset,
            lambda segment, stop: segment.lend(offset, size_bytes_max=size_bytes_max, below_offset=stop),
        )

    def _first_found(
        self, offset: int, below_offset: int | None, look: Callable[[Segment, int], _Found]
    ) -> _Found | bytes:
        start_offset, end_offset = self._extent()
        if not start_offset <= offset <= end_offset:
            raise OffsetOutOfRange(
                f"{self._directory.name} has offsets {start_offset} to {end_offset}, not {offset}"
            )
        stop = end_offset if below_offset is None else min(below_offset, end_offset)
        if offset >= stop:
            return b""
        try:
            for segment in self._segments.from_offset(offset):
                if found := look(segment, stop):
                    return found
        except OSError as error:
            raise storage_error(f"reading {self._directory} at offset {offset}", error) from error
        return b""
