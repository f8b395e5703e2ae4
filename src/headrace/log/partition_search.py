"""Searching a partition: by time, and for the transactions that were aborted in it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from headrace.errors import CorruptBatch
from headrace.log.batch import read_header
from headrace.log.failure import storage_error
from headrace.log.index import NO_TIMESTAMP
from headrace.log.replay import rebuild_transaction_index
from headrace.log.timestamps import TimestampedOffset, first_record_since

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.log.disk import Disk
    from headrace.log.segment import Segment
    from headrace.log.segment_list import SegmentList
    from headrace.log.transaction_index import AbortedTransaction, TransactionIndex

logger: Final = logging.getLogger(__name__)


class PartitionSearch:
    """Searches the segments of one partition. Belongs to the event loop's thread."""

    def __init__(self, directory: Path, disk: Disk, segments: SegmentList) -> None:
        self._directory = directory
        self._disk = disk
        self._segments = segments

    def aborted_transactions(self, from_offset: int, below_offset: int) -> list[AbortedTransaction]:
        """Those aborted transactions that overlap a range of offsets, in the order of their markers."""
        found: list[AbortedTransaction] = []
        try:
            for segment in self._segments.from_offset(from_offset):
                if self._transaction_index(segment).collect(from_offset, below_offset, found):
                    break
        except OSError as error:
            raise storage_error(f"searching {self._directory} for aborted transactions", error) from error
        return found

    def offset_for_timestamp(self, timestamp_ms: int, start_offset: int) -> TimestampedOffset | None:
        """The first record from an offset on that has this timestamp or a later one."""
        try:
            for segment in self._segments:
                offset = start_offset
                while (batch := segment.first_batch_since(timestamp_ms, offset)) is not None:
                    if (found := first_record_since(batch, timestamp_ms, offset)) is not None:
                        return found
                    offset = read_header(batch).last_offset + 1
        except OSError as error:
            raise storage_error(f"searching {self._directory} by time", error) from error
        return None

    def max_timestamp(self, start_offset: int) -> TimestampedOffset | None:
        """The first record from an offset on that has the highest timestamp of those; None without any."""
        try:
            highest = max(segment.max_timestamp(start_offset) for segment in self._segments)
        except OSError as error:
            raise storage_error(f"searching {self._directory} by time", error) from error
        return None if highest == NO_TIMESTAMP else self.offset_for_timestamp(highest, start_offset)

    def _transaction_index(self, segment: Segment) -> TransactionIndex:
        """A segment's transaction index; one that is damaged is made again."""
        try:
            return segment.indexes.transactions
        except CorruptBatch as error:
            logger.warning("what was aborted in %s is learnt from its batches: %s", segment.path, error)
        segment.indexes.transactions = rebuild_transaction_index(
            self._disk, self._directory, self._segments.all, segment
        )
        return segment.indexes.transactions
