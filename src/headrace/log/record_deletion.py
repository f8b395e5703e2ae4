"""Moving a log's start: records below it are deleted (see log_start.py).

    begin, on the loop's thread     checks the offset
    run, on any thread              writes the new start, durably
    finish, on the loop's thread    readers find the log beginning there; whole segments are given up
    remove files, on any thread     those of the segments that were given up, some time later

A reader in the middle of a segment is not disturbed: what it was given stays as it is, and what it asks for
next is there or OFFSET_OUT_OF_RANGE.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING

from headrace.failpoints import hit
from headrace.log.change import Change
from headrace.log.log_start import remove_segments, write_log_start

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from headrace.log.segment_list import SegmentList
    from headrace.log.storage import Storage


class LogStart:
    """Where one partition begins. Belongs to the event loop's thread, but for what is said otherwise."""

    def __init__(self, directory: Path, storage: Storage, segments: SegmentList, offset: int) -> None:
        self.names_lock = Lock()
        """Held by whoever removes or renames segments' files, or moves the log's start."""
        self.offset = offset
        """What was deleted lies below it. The first segment may begin later."""
        self._durable_offset = offset
        self._directory = directory
        self._disk = storage.disk
        self._fail_stop = storage.fail_stop
        self._segments = segments

    def begin_move(self, offset: int, require_open: Callable[[], None]) -> Change[int]:
        """Let the log begin at an offset, or where it begins now if that is later."""

        def work() -> Callable[[], int]:
            require_open()
            if offset > self._durable_offset:
                hit("log.start")
                write_log_start(self._disk, self._directory, offset)
                hit("log.started")
                self._durable_offset = offset
            return publish

        def publish() -> int:
            self.offset = max(self.offset, offset)
            self._segments.delete_below(self.offset)
            return max(self.offset, self._segments.base_offset)

        return Change(
            f"deleting records of {self._directory}", work, lock=self.names_lock, fail_stop=self._fail_stop
        )

    def remove_files(self) -> int:
        """Another thread's work, with the lock: remove files of deleted segments; return how many bytes."""
        deleted = tuple(self._segments.deleted)
        if not deleted:
            return 0
        try:
            self.make_active_file()
            remove_segments(self._disk, self._directory, (each.base_offset for each in deleted))
        except OSError as error:
            raise self._fail_stop.fail(f"removing files of {self._directory}", error) from error
        del self._segments.deleted[: len(deleted)]
        return sum(segment.size_bytes for segment in deleted)

    def make_active_file(self) -> None:
        """Another thread's work: make sure that a segment is found after those that go.

        It says where the log goes on.
        """
        file = self._disk.open(self._segments.active.path)
        self._disk.close(file)
        self._disk.sync_directory(self._directory)
