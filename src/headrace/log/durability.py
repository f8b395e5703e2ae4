"""What of a partition would survive a loss of power, and how it comes to.

A sync takes the unsealed segments in their order: those that were rolled are sealed, too, and so the next
start need not look at them. Only then is everything below the end, as it was before the sync, durable. One
sync runs at a time, on any thread, while the event loop goes on appending.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING

from headrace.failpoints import hit

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from headrace.log.checkpoints import Checkpoints
    from headrace.log.failure import FailStop
    from headrace.log.segment import Segment
    from headrace.log.segment_list import SegmentList


class Durability:
    """The durable part of one partition. Its methods may be called on any thread."""

    def __init__(
        self,
        directory: Path,
        segments: SegmentList,
        checkpoints: Checkpoints,
        fail_stop: FailStop,
        *,
        end_offset: Callable[[], int],
        require_open: Callable[[], None],
    ) -> None:
        self._directory = directory
        self._segments = segments
        self._checkpoints = checkpoints
        self._fail_stop = fail_stop
        self._end_offset = end_offset
        self._require_open = require_open
        self.lock = Lock()
        """Held while a sync runs."""
        # Not from the log's start, which may be the end of a segment that has to be synced.
        self.offset = segments.base_offset
        """All records below this offset would survive a loss of power."""

    def sync(self) -> None:
        """Make durable what was appended before the call."""
        with self.lock:
            self._require_open()
            self._fail_stop.check()
            # The order matters: a batch below this offset has been written, to a segment that is listed.
            end_offset = self._end_offset()
            unsealed = self._segments.unsealed
            if end_offset == self.offset and len(unsealed) == 1:
                return
            try:
                hit("log.sync")
                self._sync_segments(unsealed)
                hit("log.synced")
            except OSError as error:
                raise self._fail_stop.fail(f"syncing {self._directory}", error) from error
            self.offset = end_offset

    def checkpoint(self) -> None:
        """Sync, and write the checkpoint that is due."""
        # One that is captured while the sync runs speaks of more than that sync makes durable.
        captured = self._checkpoints.captured
        self.sync()
        try:
            self._checkpoints.write(captured, self._segments.base_offsets)
        except OSError as error:
            raise self._fail_stop.fail(f"making a checkpoint of {self._directory}", error) from error

    def _sync_segments(self, unsealed: list[Segment]) -> None:
        """Sync segments in their order; all but the last have been rolled, and are sealed."""
        for segment in unsealed[:-1]:
            segment.sync()
            self._seal(segment)
            self._segments.sealed(segment)
        unsealed[-1].sync()

    def _seal(self, segment: Segment) -> None:
        successor = next(each for each in self._segments if each.base_offset > segment.base_offset)
        self._checkpoints.seal(segment, successor, self._segments.base_offsets)
