"""Walking over the batches of a file, a window at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.errors import CorruptBatch
from headrace.log.batch import HEADER_BYTES, LEADER_EPOCH, BatchHeader, check_crc, read_header

if TYPE_CHECKING:
    from headrace.log.disk import Disk

HEADER_WINDOW_BYTES: Final = 4096
"""Enough for many small batches; little enough to be cheap when each large batch needs a read of its own."""
DATA_WINDOW_BYTES: Final = 1024 * 1024


class FileScanner:
    """Reads a file's first `end` bytes through a window that moves along."""

    __slots__ = ("_disk", "_file", "_view", "_view_at", "_window_bytes", "end")

    def __init__(self, disk: Disk, file: int, end: int, window_bytes: int) -> None:
        self._disk = disk
        self._file = file
        self._window_bytes = window_bytes
        self._view = memoryview(b"")
        self._view_at = 0
        self.end = end

    def bytes_at(self, position: int, size_bytes: int) -> memoryview:
        """Bytes of the file; fewer than asked for only at its end."""
        begin = position - self._view_at
        if begin < 0 or begin + size_bytes > len(self._view):
            wanted = min(max(size_bytes, self._window_bytes), self.end - position)
            self._view = memoryview(self._disk.read(self._file, position, wanted))
            self._view_at = position
            begin = 0
        return self._view[begin : begin + size_bytes]

    def header_at(self, position: int) -> BatchHeader:
        """The header of the batch that begins at a position and must end within the file."""
        header = read_header(self.bytes_at(position, HEADER_BYTES))
        if header.size_bytes > self.end - position:
            raise CorruptBatch(
                f"a batch says that it has {header.size_bytes} bytes; {self.end - position} remain"
            )
        return header

    def checked_header_at(self, position: int) -> BatchHeader:
        """The same, the whole batch compared with its checksum."""
        header = self.header_at(position)
        check_crc(header, self.bytes_at(position, header.size_bytes))
        return header


def check_batch(data: memoryview) -> BatchHeader:
    """Check the batch with which the data begins: its layout and its checksum."""
    header = read_header(data)
    if header.size_bytes > len(data):
        raise CorruptBatch(f"a batch says that it has {header.size_bytes} bytes; {len(data)} remain")
    check_crc(header, data[: header.size_bytes])
    return header


def check_place(
    header: BatchHeader, next_offset: int, *, gaps: bool, below_offset: int | None = None
) -> None:
    """Check what the checksum does not cover: that the batch belongs where it lies."""
    if below_offset is not None and header.last_offset >= below_offset:
        raise CorruptBatch(f"a batch has last offset {header.last_offset}, not below {below_offset}")
    if header.partition_leader_epoch != LEADER_EPOCH:
        raise CorruptBatch(f"a batch has leader epoch {header.partition_leader_epoch}, not {LEADER_EPOCH}")
    if header.last_offset_delta < 0:
        raise CorruptBatch(f"a batch has last offset delta {header.last_offset_delta}")
    if header.base_offset < next_offset or (header.base_offset > next_offset and not gaps):
        raise CorruptBatch(f"a batch has base offset {header.base_offset} where {next_offset} was expected")


def corrupt_at(position: int, reason: str) -> CorruptBatch:
    """The error that names a place in a file."""
    return CorruptBatch(f"byte {position}: {reason}")
