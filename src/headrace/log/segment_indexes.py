"""What is known of where a segment's batches lie: its indexes, and the places that were met last.

The indexes of a segment that this process writes grow in memory. Those that an earlier process has left in
files are loaded when they are first needed: all of a sealed segment's, and of one that was not sealed those
that its last checkpoint speaks of. What is damaged is made anew from the batches.

Readers that follow the writer, or go on where they were, ask for the same few places again and again. Those
are remembered exactly, so that nothing has to be searched for them.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from headrace.errors import CorruptBatch
from headrace.log.index import SegmentIndex
from headrace.log.index_files import IndexFiles
from headrace.log.scan import HEADER_WINDOW_BYTES, check_place, corrupt_at
from headrace.log.transaction_index import Seal, TransactionIndex

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.log.batch import BatchHeader
    from headrace.log.checkpoint import Checkpoint
    from headrace.log.disk import Disk
    from headrace.log.index import IndexMark
    from headrace.log.segment import Segment

logger: Final = logging.getLogger(__name__)

BOUNDARIES_REMEMBERED: Final = 256
"""How many places between batches are remembered exactly."""


class SegmentIndexes:
    """The indexes of one segment. Grow and are asked in one thread; what writes files may run in another."""

    def __init__(self, segment: Segment, disk: Disk, directory: Path, interval_bytes: int) -> None:
        self._segment = segment
        self._interval_bytes = interval_bytes
        self._files = IndexFiles(disk, directory, segment.base_offset, interval_bytes)
        self._index: SegmentIndex | None = self._empty()
        self._transactions: TransactionIndex | None = TransactionIndex()
        self._boundaries: dict[int, int] = {}
        self.are_loaded = False
        """Whether they come from files, so that it may be they that are damaged."""

    def adopt_sealed(self) -> None:
        """Take over those of a segment that an earlier process sealed."""
        self._index = None
        self._transactions = None

    def adopt_cleaned(self, index: SegmentIndex, aborted: TransactionIndex) -> None:
        """Take over those that compaction has made."""
        self._index = index
        self._transactions = aborted

    def adopt_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Go on behind what a checkpoint of an earlier process speaks of."""
        self._index = SegmentIndex.after(checkpoint.index, self._segment.base_offset, self._interval_bytes)
        self._files.adopt(self._index, checkpoint.index_checksums)
        self._transactions = TransactionIndex(checkpoint.aborted)

    @property
    def known(self) -> SegmentIndex | None:
        """What is in memory of offsets and times. May be asked on any thread."""
        return self._index

    @property
    def growing(self) -> SegmentIndex:
        """Offsets and times of an unsealed segment; their beginning may be wanting."""
        assert self._index is not None, "the indexes of a sealed segment don't grow"
        return self._index

    @property
    def whole(self) -> SegmentIndex:
        """Offsets and times, of all batches; raises CorruptBatch when a sealed segment's are damaged."""
        if self._index is None:
            return self.load_sealed()
        return self._index if self._index.is_whole else self._load_beginning(self._index)

    @property
    def transactions(self) -> TransactionIndex:
        """The transactions that were aborted here; raises CorruptBatch when the file is damaged."""
        if self._transactions is None:
            self._transactions, _ = self._files.load_transactions()
        return self._transactions

    @transactions.setter
    def transactions(self, index: TransactionIndex) -> None:
        self._transactions = index

    def add(self, header: BatchHeader, position: int) -> None:
        """Note where a batch begins that was written behind all others."""
        assert self._index is not None, "the indexes of a sealed segment don't grow"
        self._index.add(header, position)
        self.remember(header.base_offset, position)

    def remember(self, offset: int, position: int) -> None:
        """Remember where the batch begins that begins with an offset."""
        self._boundaries[offset] = position
        if len(self._boundaries) > BOUNDARIES_REMEMBERED:
            del self._boundaries[next(iter(self._boundaries))]

    def remembered(self, offset: int) -> int | None:
        """Where the batch begins that begins with an offset, if that is remembered."""
        return self._boundaries.get(offset)

    def write(self, size_bytes: int) -> None:
        """Write all that a sealed segment of that size has beside its batches, which have been synced.

        It is sealed once the directory has been synced, too.
        """
        # The other thread may put another one in its place, with the same entries and more of them loaded.
        index = self.growing
        checksums = self.write_entries(index, index.mark)
        last_offset = self._segment.next_offset - 1
        self._files.write_seal(self.transactions, Seal(size_bytes, last_offset, *checksums))

    def write_entries(self, index: SegmentIndex, mark: IndexMark) -> tuple[int, int]:
        """Add to the files the entries up to a mark, durably but for the files' names.

        Returns the checksums of all entries that are in them now.
        """
        return self._files.write_entries(index, mark)

    def load_sealed(self) -> SegmentIndex:
        """Load offsets and times of a sealed segment, and hold its end against what it was."""
        self.are_loaded = True
        self._index, seal = self._files.load_sealed()
        self._segment.compare_with(seal)
        return self._index

    def rebuild(self) -> None:
        """Make offsets and times anew from the batches."""
        segment = self._segment
        is_sealed = self._index is None or self._index.is_sealed
        index = self._empty()
        scanner = segment.scanner(HEADER_WINDOW_BYTES)
        position, next_offset = 0, segment.base_offset
        while position < segment.size_bytes:
            try:
                header = scanner.header_at(position)
                check_place(header, next_offset, gaps=True, below_offset=segment.next_offset)
            except CorruptBatch as error:
                raise corrupt_at(position, str(error)) from error
            index.add(header, position)
            next_offset = header.last_offset + 1
            position += header.size_bytes
        if is_sealed:
            index.seal()
        self._index = index
        self.are_loaded = False
        self._files.distrust()
        self._boundaries.clear()

    def begin_anew(self) -> SegmentIndex:
        """Offsets and times that know of no batch yet, in place of damaged ones."""
        self._index = self._empty()
        self.are_loaded = False
        return self._index

    def _load_beginning(self, index: SegmentIndex) -> SegmentIndex:
        """Load what the last checkpoint has left in the files; where that is damaged, make all anew."""
        try:
            self._index = self._files.load_beginning(index)
        except CorruptBatch as error:
            logger.warning("the indexes of %s are made anew from its batches: %s", self._segment.path, error)
            self.rebuild()
        else:
            self.are_loaded = True
        return self.growing

    def _empty(self) -> SegmentIndex:
        return SegmentIndex(self._segment.base_offset, self._interval_bytes)
