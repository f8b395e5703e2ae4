"""A stretch of a partition: one file of batches, one after the other, and two sparse indexes over it.

    00000000000000000000.log         the batches; the name is the base offset
    00000000000000000000.index       written when the segment is sealed
    00000000000000000000.timeindex   written when the segment is sealed
    00000000000000000000.txnindex    written when the segment is sealed (see transaction_index.py)

A segment is active while it is the last, rolled once another has begun after it, and sealed when its batches
have been synced *and then* its index files written and synced. So whoever finds a `.index` knows that the
`.log` beside it was whole at that time. Until then the indexes live in memory only and an append costs one
write.

Batches that this process wrote, or checked when it recovered, are served as they are. Those of a segment that
was sealed by an earlier process are compared with their checksums when they are first read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from headrace.errors import CorruptBatch
from headrace.log.durable_file import read_whole, write_durably
from headrace.log.index import SegmentIndex
from headrace.log.scan import DATA_WINDOW_BYTES, HEADER_WINDOW_BYTES, FileScanner, check_batch, check_place
from headrace.log.transaction_index import TransactionIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from headrace.log.batch import BatchHeader
    from headrace.log.disk import Buffer, Disk
    from headrace.log.index import TimeEntry
    from headrace.log.open_files import OpenFiles

_Found = TypeVar("_Found")

BOUNDARIES_REMEMBERED: Final = 256
"""How many places between batches are remembered exactly, for readers that follow the writer."""


def segment_path(directory: Path, base_offset: int, suffix: str) -> Path:
    """The path of one of a segment's files."""
    return directory / f"{base_offset:020d}.{suffix}"


class Segment:
    """One segment. Grows and is read in one thread; `sync` and `write_indexes` may run in another."""

    def __init__(
        self, directory: Path, base_offset: int, *, disk: Disk, files: OpenFiles, index_interval_bytes: int
    ) -> None:
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.size_bytes = 0
        self.path = segment_path(directory, base_offset, "log")
        self.is_sealed = False
        self.name_is_durable = False
        self.begun_ms = 0
        """When this process made or found the segment; for those who have nothing better to go by."""
        self._first_timestamp_ms: int | None = None
        self._directory = directory
        self._disk = disk
        self._files = files
        self._index_interval_bytes = index_interval_bytes
        self._index: SegmentIndex | None = SegmentIndex(base_offset, index_interval_bytes)
        self._index_is_loaded = False
        self.transaction_index = TransactionIndex()
        self._file: int | None = None
        self._synced_bytes = 0
        self._boundaries: dict[int, int] = {}
        self._trusted = True
        self._checked_from = 0
        self._checked_to = 0

    def open(self) -> int:
        """The open file; it is made when it is first needed."""
        if self._file is None:
            self._file = self._files.open(self, self.path)
        else:
            self._files.used(self)
        return self._file

    @property
    def is_dirty(self) -> bool:
        """Whether batches have been written that are not known to be durable."""
        return self.size_bytes > self._synced_bytes

    @property
    def index(self) -> SegmentIndex:
        """Both indexes; those of a sealed segment are loaded when first needed."""
        return self._load_index() if self._index is None else self._index

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
        self._trusted = False
        self._index = None

    def append(self, headers: Sequence[BatchHeader], buffers: Sequence[Buffer]) -> None:
        """Write batches, given by their headers as placed and by their bytes, at the end."""
        self._disk.append(self.open(), buffers)
        for header in headers:
            self.index.add(header, self.size_bytes)
            self._remember(header.base_offset, self.size_bytes)
            self.size_bytes += header.size_bytes
        self.next_offset = headers[-1].last_offset + 1

    def read(self, offset: int, *, size_bytes_max: int, below_offset: int) -> bytes:
        """Whole batches from the one that has the offset on; none that reaches `below_offset`."""
        return self._with_sound_index(lambda: self._read(offset, size_bytes_max, below_offset))

    def first_batch_since(self, timestamp_ms: int, from_offset: int = 0) -> bytes | None:
        """The first batch that reaches the offset and says that it has a record at the time or later."""
        return self._with_sound_index(lambda: self._first_batch_since(timestamp_ms, from_offset))

    def max_timestamp(self) -> TimeEntry:
        """The highest timestamp of the segment, and the last offset of the first batch that has it."""
        return self._with_sound_index(lambda: self.index.max_timestamp)

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
        """Seal a rolled segment that has been synced."""
        times, offsets = self.index.encode_times(), self.index.encode_offsets()
        transactions = self.transaction_index.encode()
        write_durably(self._disk, segment_path(self._directory, self.base_offset, "txnindex"), transactions)
        write_durably(self._disk, segment_path(self._directory, self.base_offset, "timeindex"), times)
        write_durably(self._disk, segment_path(self._directory, self.base_offset, "index"), offsets)
        self.is_sealed = True

    def close(self) -> None:
        """Close the file; it is opened again when it is needed."""
        if self._file is not None:
            self._disk.close(self._file)
            self._file = None
            self._files.closed(self)

    def scanner(self, window_bytes: int) -> FileScanner:
        """A walk over the batches."""
        return FileScanner(self._disk, self.open(), self.size_bytes, window_bytes)

    def rebuild_index(self) -> None:
        """Make the indexes anew from the batches."""
        index = SegmentIndex(self.base_offset, self._index_interval_bytes)
        scanner = self.scanner(HEADER_WINDOW_BYTES)
        position = 0
        while position < self.size_bytes:
            try:
                header = scanner.header_at(position)
            except CorruptBatch as error:
                raise _corrupt(position, str(error)) from error
            index.add(header, position)
            position += header.size_bytes
        index.seal()
        self._index = index
        self._index_is_loaded = False
        self._boundaries.clear()

    def _with_sound_index(self, look_up: Callable[[], _Found]) -> _Found:
        """Look something up. Damage that is met may be the loaded index's: make that anew, and retry."""
        try:
            try:
                return look_up()
            except CorruptBatch:
                if not self._index_is_loaded:
                    raise
            self.rebuild_index()
            return look_up()
        except CorruptBatch as error:
            raise CorruptBatch(f"{self.path}: {error}") from error

    def _load_index(self) -> SegmentIndex:
        self._index_is_loaded = True
        offsets, times = (
            read_whole(self._disk, segment_path(self._directory, self.base_offset, suffix))
            for suffix in ("index", "timeindex")
        )
        self._index = SegmentIndex.decode(
            self.base_offset,
            self._index_interval_bytes,
            offsets=offsets,
            times=times,
            segment_bytes=self.size_bytes,
        )
        self._check_time_entry(self._index.max_timestamp)
        return self._index

    def _read(self, offset: int, size_bytes_max: int, below_offset: int) -> bytes:
        start = self._position_of(offset)
        stop = self._position_of(below_offset)
        if start >= stop:
            return b""
        end = self._last_boundary(start, size_bytes_max, stop)
        data = self._disk.read(self.open(), start, end - start)
        if len(data) < end - start:
            raise _corrupt(start + len(data), f"the file ends; it had {self.size_bytes} bytes")
        if not (self._trusted or self._checked_from <= start <= end <= self._checked_to):
            self._check(memoryview(data), start)
        return data

    def _position_of(self, offset: int) -> int:
        """Where the first batch begins that reaches the offset; the segment's end when there is none."""
        if offset >= self.next_offset:
            return self.size_bytes
        known = self._boundaries.get(offset)
        if known is not None:
            return known
        scanner = self.scanner(HEADER_WINDOW_BYTES)
        position = self.index.floor_by_offset(offset)
        header = scanner.header_at(position)
        if header.base_offset > offset and position > 0:
            raise _corrupt(position, f"the index leads past offset {offset}")
        while header.last_offset < offset:
            position += header.size_bytes
            header = scanner.header_at(position)
        return position

    def _last_boundary(self, start: int, size_bytes_max: int, stop: int) -> int:
        """Where the last whole batch ends that fits; the first batch counts as fitting."""
        full = start + size_bytes_max
        if full >= stop:
            return stop
        scanner = self.scanner(HEADER_WINDOW_BYTES)
        position = max(start, self.index.floor_by_position(full))
        header = scanner.header_at(position)
        while position == start or position + header.size_bytes <= full:
            position += header.size_bytes
            self._remember(header.last_offset + 1, position)
            if position >= full:
                break
            header = scanner.header_at(position)
        return position

    def _first_batch_since(self, timestamp_ms: int, from_offset: int) -> bytes | None:
        if self.index.max_timestamp.timestamp_ms < timestamp_ms:
            return None
        entry = self.index.floor_by_timestamp(timestamp_ms)
        position = 0 if entry is None else self._check_time_entry(entry)
        if from_offset > self.base_offset:
            position = max(position, self._position_of(from_offset))
        scanner = self.scanner(HEADER_WINDOW_BYTES)
        while position < self.size_bytes:
            header = scanner.header_at(position)
            if header.max_timestamp_ms >= timestamp_ms:
                return self._read(header.base_offset, 0, self.next_offset)
            position += header.size_bytes
        return None

    def _check_time_entry(self, entry: TimeEntry) -> int:
        """Where the batch begins of which the time index speaks, if it speaks the truth."""
        position = self._position_of(entry.offset)
        if self.scanner(HEADER_WINDOW_BYTES).header_at(position).max_timestamp_ms != entry.timestamp_ms:
            raise _corrupt(position, f"the time index is wrong about offset {entry.offset}")
        return position

    def _remember(self, offset: int, position: int) -> None:
        self._boundaries[offset] = position
        if len(self._boundaries) > BOUNDARIES_REMEMBERED:
            del self._boundaries[next(iter(self._boundaries))]

    def _check(self, data: memoryview, start: int) -> None:
        position = 0
        next_offset = self.base_offset
        while position < len(data):
            try:
                header = check_batch(data[position:])
                check_place(header, next_offset, gaps=True)
            except CorruptBatch as error:
                raise _corrupt(start + position, f"{error} (offset {next_offset} or later)") from error
            next_offset = header.last_offset + 1
            position += header.size_bytes
        end = start + len(data)
        if start == self._checked_to:
            self._checked_to = end
        else:
            self._checked_from, self._checked_to = start, end


def _corrupt(position: int, reason: str) -> CorruptBatch:
    return CorruptBatch(f"byte {position}: {reason}")
