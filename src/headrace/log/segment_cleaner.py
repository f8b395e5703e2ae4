"""The disk's side of compaction: reading the batches of sealed segments and writing those that are left.

Runs in a thread of its own. It opens files itself and touches nothing that the event loop uses; sealed
segments don't change, and only this thread removes them. After each batch it takes a breath (see cleaner.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from crc32c import crc32c

from headrace.config import MIB
from headrace.errors import CorruptBatch
from headrace.log.batch import Batch
from headrace.log.index import NO_TIMESTAMP, SegmentIndex
from headrace.log.index_files import IndexFiles
from headrace.log.scan import DATA_WINDOW_BYTES, HEADER_WINDOW_BYTES, FileScanner, check_place
from headrace.log.segment_swap import INDEX_SUFFIXES, cleaned_path, remove_cleaned
from headrace.log.transaction_index import Seal, TransactionIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from headrace.log.compaction import Compaction
    from headrace.log.disk import Buffer, Disk
    from headrace.log.segment import Segment

    Breathe = Callable[[], None]

WRITE_BYTES: Final = 1 * MIB
"""So much is gathered before it is written."""


def read_batches(disk: Disk, segments: Sequence[Segment], breathe: Breathe) -> Iterator[Batch]:
    """All batches of sealed segments, each compared with its checksum.

    Raises CorruptBatch, which names the file, the byte and the offset.
    """
    for segment in segments:
        file = disk.open(segment.path)
        try:
            scanner = FileScanner(disk, file, segment.size_bytes, DATA_WINDOW_BYTES)
            position, next_offset = 0, segment.base_offset
            while position < segment.size_bytes:
                try:
                    header = scanner.checked_header_at(position)
                    check_place(header, next_offset, gaps=True)
                except CorruptBatch as error:
                    raise CorruptBatch(
                        f"{segment.path}, byte {position}, offset {next_offset} or later: {error}"
                    ) from error
                yield Batch(header, scanner.bytes_at(position, header.size_bytes))
                breathe()
                next_offset = header.last_offset + 1
                position += header.size_bytes
        finally:
            disk.close(file)


def newest_timestamp_ms(disk: Disk, directory: Path, segment: Segment) -> int:
    """The highest timestamp of a sealed segment, from its index or, if that is damaged, from its batches."""
    try:
        index, _ = IndexFiles(disk, directory, segment.base_offset, 1).load_sealed()
    except CorruptBatch:
        return _newest_of_batches(disk, segment)
    return index.max_timestamp.timestamp_ms


def _newest_of_batches(disk: Disk, segment: Segment) -> int:
    file = disk.open(segment.path)
    try:
        scanner = FileScanner(disk, file, segment.size_bytes, HEADER_WINDOW_BYTES)
        position, newest_ms = 0, NO_TIMESTAMP
        while position < segment.size_bytes:
            header = scanner.header_at(position)
            newest_ms = max(newest_ms, header.max_timestamp_ms if header.record_count else NO_TIMESTAMP)
            position += header.size_bytes
    except CorruptBatch:
        # Nobody knows what is in the rest; the time at which the file was written has to do.
        return NO_TIMESTAMP
    else:
        return newest_ms
    finally:
        disk.close(file)


def first_timestamp_ms(disk: Disk, segment: Segment) -> int:
    """The timestamp of a sealed segment's first batch; NO_TIMESTAMP where there is none."""
    file = disk.open(segment.path)
    try:
        scanner = FileScanner(disk, file, segment.size_bytes, HEADER_WINDOW_BYTES)
        return scanner.header_at(0).max_timestamp_ms if segment.size_bytes else NO_TIMESTAMP
    except CorruptBatch:
        return NO_TIMESTAMP
    finally:
        disk.close(file)


@dataclass(slots=True)
class CleanedSegment:
    """What is left of some segments, in files that have their names for a time only."""

    file: int
    index: SegmentIndex
    last_offset: int
    """That of the last batch that is left; one less than the base offset where none is."""
    aborted: TransactionIndex = field(default_factory=TransactionIndex)
    size_bytes: int = 0
    is_changed: bool = False
    """Whether anything went."""


class SegmentCleaner:
    """Writes the batches that are left of a partition's segments."""

    def __init__(
        self, disk: Disk, directory: Path, compaction: Compaction, index_interval_bytes: int, breathe: Breathe
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._compaction = compaction
        self._index_interval_bytes = index_interval_bytes
        self._breathe = breathe

    def clean(self, segments: Sequence[Segment]) -> CleanedSegment:
        """Write all four files, durably but for their names. On an error, they are removed."""
        base_offset = segments[0].base_offset
        path = cleaned_path(self._directory, base_offset, "log")
        index = SegmentIndex(base_offset, self._index_interval_bytes)
        is_changed = len(segments) > 1
        cleaned = CleanedSegment(self._disk.open(path), index, base_offset - 1, is_changed=is_changed)
        try:
            self._disk.truncate(cleaned.file, 0)
            self._write_batches(segments, cleaned)
            self._disk.sync_file(cleaned.file)
            self._write_indexes(base_offset, cleaned)
        except Exception:
            self.discard(cleaned)
            raise
        return cleaned

    def discard(self, cleaned: CleanedSegment) -> None:
        """Remove what was written."""
        self._disk.close(cleaned.file)
        remove_cleaned(self._disk, self._directory, self._disk.names(self._directory))

    def _write_batches(self, segments: Sequence[Segment], cleaned: CleanedSegment) -> None:
        buffers: list[Buffer] = []
        waiting_bytes = 0
        still_aborted = self._compaction.transactions.still_aborted
        known_count = len(still_aborted)
        for batch in read_batches(self._disk, segments, self._breathe):
            left = self._compaction.filter(batch)
            cleaned.is_changed |= left is not batch
            if left is None:
                continue
            cleaned.index.add(left.header, cleaned.size_bytes)
            cleaned.size_bytes += left.header.size_bytes
            cleaned.last_offset = left.header.last_offset
            buffers.append(left.data)
            waiting_bytes += left.header.size_bytes
            if waiting_bytes >= WRITE_BYTES:
                self._disk.append(cleaned.file, buffers)
                buffers, waiting_bytes = [], 0
        if buffers:
            self._disk.append(cleaned.file, buffers)
        cleaned.index.seal()
        cleaned.aborted = TransactionIndex(still_aborted[known_count:])

    def _write_indexes(self, base_offset: int, cleaned: CleanedSegment) -> None:
        offsets, times = cleaned.index.encode_offsets(), cleaned.index.encode_times()
        seal = Seal(cleaned.size_bytes, cleaned.last_offset, crc32c(offsets), crc32c(times))
        transactions = cleaned.aborted.encode(seal)
        for suffix, content in zip(INDEX_SUFFIXES, (offsets, times, transactions), strict=True):
            file = self._disk.open(cleaned_path(self._directory, base_offset, suffix))
            try:
                self._disk.truncate(file, 0)
                self._disk.append(file, [content])
                self._disk.sync_file(file)
            finally:
                self._disk.close(file)
