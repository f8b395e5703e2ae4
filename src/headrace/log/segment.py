"""A stretch of a partition: one file of batches, one after the other, and two sparse indexes over it.

    00000000000000000000.log         the batches; the name is the base offset
    00000000000000000000.index       grows at each checkpoint, complete when the segment is sealed
    00000000000000000000.timeindex   the same
    00000000000000000000.txnindex    written when the segment is sealed (see transaction_index.py)

A segment is active while it is the last, rolled once another has begun after it, and sealed when its batches
have been synced *and then* its index files written and synced, the `.txnindex` last. So whoever finds all
three knows that they and the `.log` beside them were whole at that time. Until then the indexes live in
memory, and what of them is in files counts only as far as the checkpoint says (see segment_indexes.py). An
append costs one write.

How it is read, see segment_reading.py.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from headrace.failpoints import hit, is_armed
from headrace.log.index_files import segment_path
from headrace.log.scan import DATA_WINDOW_BYTES, HEADER_WINDOW_BYTES, FileScanner
from headrace.log.segment_indexes import SegmentIndexes
from headrace.log.segment_reading import SegmentReading

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from headrace.log.batch import BatchHeader
    from headrace.log.checkpoint import Checkpoint
    from headrace.log.disk import Buffer
    from headrace.log.index import SegmentIndex
    from headrace.log.storage import Storage
    from headrace.log.stored_batches import StoredBatches
    from headrace.log.transaction_index import Seal, TransactionIndex

logger: Final = logging.getLogger(__name__)


class Segment:
    """One segment. Grows and is read in one thread; `sync` and `write_indexes` may run in another."""

    def __init__(
        self, directory: Path, base_offset: int, *, storage: Storage, index_interval_bytes: int
    ) -> None:
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.size_bytes = 0
        self.path = segment_path(directory, base_offset, "log")
        self.is_sealed = False
        self.name_is_durable = False
        self.begun_ms = 0
        """When this process made or found the segment; for those who have nothing better to go by."""
        self.is_pinned = False
        """Whether the file has to stay open because it does not have its name yet."""
        self.may_lend = True
        """Whether batches may be given out unread (see stored_batches.py)."""
        self.is_damaged = False
        """Whether damage was met, so that the segment is read around it."""
        self.trusted_from = 0
        """What lies before it was written by an earlier process, and nobody has checked it."""
        self.written_bytes = 0
        """What an earlier process has written; 0 where that is not known."""
        self.written_offset = -1
        """The last offset of what an earlier process has written; -1 where that is not known."""
        self._first_timestamp_ms: int | None = None
        self._directory = directory
        self._disk = storage.disk
        self._files = storage.files
        self._file: int | None = None
        self._synced_bytes = 0
        self.indexes = SegmentIndexes(self, storage.disk, directory, index_interval_bytes)
        self._reading = SegmentReading(self, storage)

    def open(self) -> int:
        """The open file; it is made when it is first needed."""
        if self._file is None:
            self._file = self._files.open(self, self.path)
        else:
            self._files.used(self)
        return self._file

    @property
    def is_dirty(self) -> bool:
        """Whether batches have been written that are not known to be durable, or can't be found by name."""
        return self.is_pinned or self.size_bytes > self._synced_bytes

    @property
    def first_timestamp_ms(self) -> int:
        """The highest timestamp of the first batch, of which there must be one."""
        if self._first_timestamp_ms is None:
            self._first_timestamp_ms = self.scanner(HEADER_WINDOW_BYTES).header_at(0).max_timestamp_ms
        return self._first_timestamp_ms

    def adopt(self, *, size_bytes: int, next_offset: int, durable_bytes: int) -> None:
        """Take over what recovery found in an unsealed segment, whose index it has built.

        So many of the bytes are known to be durable. The rest is written again, so that the next sync has
        something to do.
        """
        self.size_bytes = size_bytes
        self.next_offset = next_offset
        self._synced_bytes = durable_bytes
        self.name_is_durable = durable_bytes > 0
        for position in range(durable_bytes, size_bytes, DATA_WINDOW_BYTES):
            wanted = min(DATA_WINDOW_BYTES, size_bytes - position)
            self._disk.rewrite(self.open(), position, self._disk.read(self.open(), position, wanted))

    def adopt_sealed(self, *, size_bytes: int, next_offset: int) -> None:
        """Take over a segment that an earlier process sealed."""
        self.adopt(size_bytes=size_bytes, next_offset=next_offset, durable_bytes=size_bytes)
        self.is_sealed = True
        self.name_is_durable = True
        self.trusted_from = size_bytes
        self.indexes.adopt_sealed()

    def adopt_cleaned(
        self, file: int, index: SegmentIndex, aborted: TransactionIndex, *, size_bytes: int, next_offset: int
    ) -> None:
        """Take over what compaction has written and synced, in an open file that has another name as yet."""
        self.size_bytes = self._synced_bytes = size_bytes
        self.next_offset = next_offset
        self.is_sealed = True
        self.name_is_durable = True
        self.is_pinned = True
        self.indexes.adopt_cleaned(index, aborted)
        self._file = file
        self._files.adopt(self)

    def adopt_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Take over the beginning of an unsealed segment, of which an earlier process made a checkpoint."""
        self.size_bytes = checkpoint.size_bytes
        self.next_offset = checkpoint.next_offset
        self.trusted_from = checkpoint.size_bytes
        self.indexes.adopt_checkpoint(checkpoint)

    def compare_with(self, seal: Seal) -> None:
        """Hold the file's size against what it had when the segment was sealed."""
        self.written_bytes = written_bytes = seal.log_bytes
        self.written_offset = seal.last_offset
        if self.size_bytes < written_bytes:
            self.is_damaged = True
            logger.error(
                "%s has lost its end: it has %d bytes and had %d", self.path, self.size_bytes, written_bytes
            )
        elif self.size_bytes > written_bytes:
            logger.warning(
                "%s has %d bytes at its end that are not its own", self.path, self.size_bytes - written_bytes
            )
            self.size_bytes = self._synced_bytes = written_bytes

    def append(self, headers: Sequence[BatchHeader], buffers: Sequence[Buffer]) -> None:
        """Write batches, given by their headers as placed and by their bytes, at the end."""
        hit("log.append")
        if is_armed("log.append.half"):
            data = b"".join(buffers)
            self._disk.append(self.open(), [data[: len(data) // 2]])
        hit("log.append.half")
        self._disk.append(self._file if self._file is not None else self.open(), buffers)
        hit("log.appended")
        indexes = self.indexes
        position = self.size_bytes
        if not position:
            self._first_timestamp_ms = headers[0].max_timestamp_ms
        for header in headers:
            indexes.add(header, position)
            position += header.size_bytes
        self.size_bytes = position
        self.next_offset = headers[-1].last_offset + 1

    def read(self, offset: int, *, size_bytes_max: int, below_offset: int) -> bytes:
        """Whole batches from the one that has the offset on; none that reaches `below_offset`."""
        return self._reading.read(offset, size_bytes_max, below_offset)

    def lend(self, offset: int, *, size_bytes_max: int, below_offset: int) -> bytes | StoredBatches:
        """The same batches as `read`, unread where there are many and nothing about them is to be checked."""
        return self._reading.lend(offset, size_bytes_max, below_offset)

    def first_batch_since(self, timestamp_ms: int, from_offset: int = 0) -> bytes | None:
        """The first batch that reaches the offset and says that it has a record at the time or later."""
        return self._reading.first_batch_since(timestamp_ms, from_offset)

    def max_timestamp(self, from_offset: int = 0) -> int:
        """The highest timestamp of all batches that reach the offset; NO_TIMESTAMP when none has one."""
        return self._reading.max_timestamp(from_offset)

    def sync(self) -> None:
        """Make all that has been written durable, and the file's name too."""
        written_bytes = self.size_bytes
        if written_bytes > self._synced_bytes:
            if not self.name_is_durable:
                # First, because it may be refused: then all is still to be done.
                self._disk.sync_directory(self._directory)
                self.name_is_durable = True
            assert self._file is not None, "a file with unsynced writes stays open"
            self._disk.sync_file(self._file)
            self._synced_bytes = written_bytes

    def write_indexes(self) -> None:
        """Write what a sealed segment has beside its batches, which have been synced."""
        self.indexes.write(self.size_bytes)

    def close(self) -> None:
        """Close the file; it is opened again when it is needed."""
        if self._file is not None:
            self._disk.close(self._file)
            self._file = None
            self._files.closed(self)

    def scanner(self, window_bytes: int) -> FileScanner:
        """A walk over the batches."""
        return FileScanner(self._disk, self.open(), self.size_bytes, window_bytes)
