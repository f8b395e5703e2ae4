"""The segments of a partition in the order of their offsets; the last of them is active."""

from __future__ import annotations

from bisect import bisect_right
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from headrace.log.segment import Segment
    from headrace.log.segment_cleaner import CleanedSegment


class SegmentList:
    """Changes on one thread, that of the event loop; may be looked at on any, but for `unsealed`.

    Which segments are unsealed changes on two threads: that of the loop, which begins them, and the one that
    seals them.
    """

    def __init__(self, segments: Sequence[Segment], new_segment: Callable[[int], Segment]) -> None:
        """There is at least one; `new_segment` makes one for a base offset."""
        self._segments = list(segments)
        self._new_segment = new_segment
        self._base_offsets = [segment.base_offset for segment in segments]
        self._unsealed = [segment for segment in segments if not segment.is_sealed]
        self._unsealed_lock = Lock()
        self.deleted: list[Segment] = []
        """Segments that nobody reads any more, and whose files may still be there."""

    def __iter__(self) -> Iterator[Segment]:
        return iter(tuple(self._segments))

    @property
    def all(self) -> tuple[Segment, ...]:
        """All of them as they are now."""
        return tuple(self._segments)

    @property
    def active(self) -> Segment:
        """The one that is written to."""
        return self._segments[-1]

    @property
    def base_offset(self) -> int:
        """Where the first one begins."""
        return self._base_offsets[0]

    @property
    def base_offsets(self) -> tuple[int, ...]:
        """Where each of them begins."""
        return tuple(self._base_offsets)

    def from_offset(self, offset: int) -> list[Segment]:
        """The one that has the offset, if it is anywhere, and all after it."""
        return self._segments[max(bisect_right(self._base_offsets, offset) - 1, 0) :]

    def begin(self, base_offset: int) -> Segment:
        """Begin a new segment, which is the active one then."""
        segment = self._new_segment(base_offset)
        self._segments.append(segment)
        self._base_offsets.append(base_offset)
        with self._unsealed_lock:
            self._unsealed.append(segment)
        return segment

    @property
    def unsealed(self) -> list[Segment]:
        """Those that are not sealed; all but the last wait for that."""
        with self._unsealed_lock:
            return list(self._unsealed)

    def sealed(self, segment: Segment) -> None:
        """Note that one was sealed."""
        with self._unsealed_lock:
            self._unsealed.remove(segment)

    def delete_below(self, offset: int) -> None:
        """Give up the segments that end below an offset."""
        count = bisect_right(self._base_offsets, offset) - 1
        # What is not sealed yet is still being written to by others; it goes another time.
        count = next((n for n, each in enumerate(self._segments[:count]) if not each.is_sealed), count)
        for segment in self._segments[:count]:
            segment.close()
        self.deleted += self._segments[:count]
        del self._segments[:count]
        del self._base_offsets[:count]

    def replace(self, replaced: Sequence[Segment], cleaned: CleanedSegment) -> Segment | None:
        """Let a compacted segment take the place of others; None when these are not all there any more."""
        first = bisect_right(self._base_offsets, replaced[0].base_offset) - 1
        end = first + len(replaced)
        if first < 0 or self._segments[first:end] != list(replaced):
            return None
        segment = self._new_segment(replaced[0].base_offset)
        segment.adopt_cleaned(
            cleaned.file,
            cleaned.index,
            cleaned.aborted,
            size_bytes=cleaned.size_bytes,
            next_offset=self._base_offsets[end],
        )
        self._segments[first:end] = [segment]
        self._base_offsets[first:end] = [segment.base_offset]
        for each in replaced:
            each.close()
        return segment
