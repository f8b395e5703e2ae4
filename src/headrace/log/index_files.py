"""The files beside a segment's batches: `.index`, `.timeindex` and `.txnindex`, as they lie on disk.

The first two grow at each checkpoint and are complete when the segment is sealed; the third is written then,
with the seal over all of them (see segment.py). What is in the files of an unsealed segment counts only as
far as the last checkpoint says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from crc32c import crc32c

from headrace.errors import CorruptBatch
from headrace.log.durable_file import read_whole, write_whole
from headrace.log.index import OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES, SegmentIndex
from headrace.log.transaction_index import Seal, TransactionIndex

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.log.disk import Disk
    from headrace.log.index import IndexMark


def segment_path(directory: Path, base_offset: int, suffix: str) -> Path:
    """The path of one of a segment's files."""
    return directory / f"{base_offset:020d}.{suffix}"


class _Written(NamedTuple):
    """What is in the files of both indexes."""

    offset_entry_count: int
    time_entry_count: int
    offsets_crc: int
    times_crc: int


_NOTHING_WRITTEN: Final = _Written(0, 0, 0, 0)


class IndexFiles:
    """The index files of one segment. Written by one thread at a time, and read by that of the event loop."""

    def __init__(self, disk: Disk, directory: Path, base_offset: int, interval_bytes: int) -> None:
        self._disk = disk
        self._directory = directory
        self._base_offset = base_offset
        self._interval_bytes = interval_bytes
        self._written = _NOTHING_WRITTEN
        self._are_sound = True
        self._beginning_checksums = (0, 0)

    def adopt(self, index: SegmentIndex, checksums: tuple[int, int]) -> None:
        """Go on with what a checkpoint of an earlier process left of the entries before those in memory."""
        self._written = _Written(*index.entries_before, *checksums)
        self._beginning_checksums = checksums

    def distrust(self) -> None:
        """Write all anew the next time, because the indexes were made anew."""
        self._are_sound = False

    def write_entries(self, index: SegmentIndex, mark: IndexMark) -> tuple[int, int]:
        """Add to the files the entries up to a mark, durably but for the files' names.

        Returns the checksums of all entries that are in them now.
        """
        before = self._written if self._are_sound else _NOTHING_WRITTEN
        offsets = index.encode_offsets(before.offset_entry_count, mark.offset_entry_count)
        times = index.encode_times(before.time_entry_count, mark.time_entry_count)
        self._extend("index", before.offset_entry_count * OFFSET_ENTRY_BYTES, offsets)
        self._extend("timeindex", before.time_entry_count * TIME_ENTRY_BYTES, times)
        checksums = crc32c(offsets, before.offsets_crc), crc32c(times, before.times_crc)
        self._written = _Written(mark.offset_entry_count, mark.time_entry_count, *checksums)
        return checksums

    def write_seal(self, transactions: TransactionIndex, seal: Seal) -> None:
        """Write the last of the files, durably but for its name."""
        write_whole(self._disk, self._path("txnindex"), transactions.encode(seal))

    def load_sealed(self) -> tuple[SegmentIndex, Seal]:
        """Both indexes of a sealed segment; raises CorruptBatch when they are not what was written."""
        offsets, times = (read_whole(self._disk, self._path(suffix)) for suffix in ("index", "timeindex"))
        _, seal = self.load_transactions()
        if (crc32c(offsets), crc32c(times)) != (seal.offsets_crc, seal.times_crc):
            raise CorruptBatch("an index file does not match its checksum")
        index = SegmentIndex.decode(
            self._base_offset,
            self._interval_bytes,
            offsets=offsets,
            times=times,
            segment_bytes=seal.log_bytes,
        )
        return index, seal

    def load_transactions(self) -> tuple[TransactionIndex, Seal]:
        """The transactions that were aborted in a sealed segment, and the seal.

        Raises CorruptBatch when the file is not what was written.
        """
        return TransactionIndex.decode(read_whole(self._disk, self._path("txnindex")))

    def load_beginning(self, index: SegmentIndex) -> SegmentIndex:
        """The indexes of an unsealed segment with what a checkpoint left of them in the files.

        Raises CorruptBatch when that is not what was written.
        """
        offset_entry_count, time_entry_count = index.entries_before
        offsets = self._read("index", offset_entry_count * OFFSET_ENTRY_BYTES)
        times = self._read("timeindex", time_entry_count * TIME_ENTRY_BYTES)
        if (crc32c(offsets), crc32c(times)) != self._beginning_checksums:
            raise CorruptBatch("an index file does not match its checksum")
        return SegmentIndex.joined(index, offsets=offsets, times=times)

    def _path(self, suffix: str) -> Path:
        return segment_path(self._directory, self._base_offset, suffix)

    def _read(self, suffix: str, size_bytes: int) -> bytes:
        """The beginning of a file; nothing where the file is missing."""
        file = self._disk.open(self._path(suffix))
        try:
            return self._disk.read(file, 0, size_bytes)
        finally:
            self._disk.close(file)

    def _extend(self, suffix: str, size_bytes: int, data: bytes) -> None:
        """Put bytes into a file at a place, in place of all that comes after it, and sync."""
        file = self._disk.open(self._path(suffix))
        try:
            # Where somebody has cut the file, zeros come in between; they are found out when it is loaded.
            if self._disk.size_bytes(file) != size_bytes:
                self._disk.truncate(file, size_bytes)
            self._disk.append(file, [data])
            self._disk.sync_file(file)
        finally:
            self._disk.close(file)
