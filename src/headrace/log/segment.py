"""A stretch of a partition: one file of batches, one after the other, and two sparse indexes over it.

    00000000000000000000.log         the batches; the name is the base offset
    00000000000000000000.index       grows at each checkpoint, complete when the segment is sealed
    00000000000000000000.timeindex   the same
    00000000000000000000.txnindex    written when the segment is sealed (see transaction_index.py)

A segment is active while it is the last, rolled once another has begun after it, and sealed when its batches
have been synced *and then* its index files written and synced, the `.txnindex` last. So whoever finds all
three knows that they and the `.log` beside them were whole at that time. Until then the indexes live in
memory, and what of them is in files counts only as far as the checkpoint says (see checkpoint.py). An append
costs one write.

Batches that this process wrote, or checked when it recovered, are served as they are. Those of a segment that
was sealed by an earlier process, and those before a checkpoint of an earlier process, are compared with their
checksums when they are first read. Once damage was met, a segment is read around it (see damage_walk.py).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, TypeVar

from headrace.config import KIB
from headrace.errors import CorruptBatch
from headrace.failpoints import hit, is_armed
from headrace.log.damage_walk import DamageWalk, SoundBatch, read_around
from headrace.log.index import NO_TIMESTAMP, SegmentIndex
from headrace.log.index_files import IndexFiles, segment_path
from headrace.log.scan import DATA_WINDOW_BYTES, HEADER_WINDOW_BYTES, FileScanner, check_batch, check_place
from headrace.log.stored_batches import StoredBatches
from headrace.log.transaction_index import Seal, TransactionIndex

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from headrace.log.batch import BatchHeader
    from headrace.log.checkpoint import Checkpoint
    from headrace.log.damage_walk import DamagedRange
    from headrace.log.disk import Buffer, Disk
    from headrace.log.index import IndexMark, TimeEntry
    from headrace.log.open_files import OpenFiles

logger: Final = logging.getLogger(__name__)

_Found = TypeVar("_Found")

BOUNDARIES_REMEMBERED: Final = 256
"""How many places between batches are remembered exactly, for readers that follow the writer."""
LENT_BYTES_MIN: Final = 256 * KIB
"""Less is read at once: it is cheaper."""


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
        self._index_files = IndexFiles(disk, directory, base_offset, index_interval_bytes)
        self._transaction_index: TransactionIndex | None = TransactionIndex()
        self._file: int | None = None
        self.is_pinned = False
        """Whether the file has to stay open because it does not have its name yet."""
        self.may_lend = True
        """Whether batches may be given out unread (see stored_batches.py)."""
        self._synced_bytes = 0
        self._boundaries: dict[int, int] = {}
        self._trusted_from = 0
        self._is_damaged = False
        self._written_bytes = 0
        """What an earlier process has written; 0 where that is not known."""
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
        """Whether batches have been written that are not known to be durable, or can't be found by name."""
        return self.is_pinned or self.size_bytes > self._synced_bytes

    @property
    def index(self) -> SegmentIndex:
        """Both indexes; what an earlier process has written of them is loaded when first needed."""
        if self._index is None:
            return self._load_index()
        return self._index if self._index.is_whole else self._load_beginning(self._index)

    @property
    def known_index(self) -> SegmentIndex | None:
        """What is in memory of both indexes. May be asked on any thread."""
        return self._index

    @property
    def transaction_index(self) -> TransactionIndex:
        """The transactions that were aborted here; raises CorruptBatch when the file is damaged."""
        if self._transaction_index is None:
            self._transaction_index, _ = self._index_files.load_transactions()
        return self._transaction_index

    @transaction_index.setter
    def transaction_index(self, index: TransactionIndex) -> None:
        self._transaction_index = index

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
        self._trusted_from = size_bytes
        self._index = None
        self._transaction_index = None

    def adopt_cleaned(
        self, file: int, index: SegmentIndex, aborted: TransactionIndex, *, size_bytes: int, next_offset: int
    ) -> None:
        """Take over what compaction has written and synced, in an open file that has another name as yet."""
        self.size_bytes = self._synced_bytes = size_bytes
        self.next_offset = next_offset
        self.is_sealed = True
        self.name_is_durable = True
        self.is_pinned = True
        self._index = index
        self._transaction_index = aborted
        self._file = file
        self._files.adopt(self)

    def adopt_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Take over the beginning of an unsealed segment, of which an earlier process made a checkpoint."""
        self.size_bytes = checkpoint.size_bytes
        self.next_offset = checkpoint.next_offset
        self._trusted_from = checkpoint.size_bytes
        self._index = SegmentIndex.after(checkpoint.index, self.base_offset, self._index_interval_bytes)
        self._index_files.adopt(self._index, checkpoint.index_checksums)
        self._transaction_index = TransactionIndex(checkpoint.aborted)

    def append(self, headers: Sequence[BatchHeader], buffers: Sequence[Buffer]) -> None:
        """Write batches, given by their headers as placed and by their bytes, at the end."""
        hit("log.append")
        if is_armed("log.append.half"):
            data = b"".join(buffers)
            self._disk.append(self.open(), [data[: len(data) // 2]])
        hit("log.append.half")
        self._disk.append(self._file if self._file is not None else self.open(), buffers)
        hit("log.appended")
        index = self.growing_index
        position = self.size_bytes
        if not position:
            self._first_timestamp_ms = headers[0].max_timestamp_ms
        for header in headers:
            index.add(header, position)
            self._remember(header.base_offset, position)
            position += header.size_bytes
        self.size_bytes = position
        self.next_offset = headers[-1].last_offset + 1

    @property
    def growing_index(self) -> SegmentIndex:
        """The indexes of an unsealed segment; their beginning may be wanting."""
        assert self._index is not None, "the indexes of a sealed segment don't grow"
        return self._index

    def read(self, offset: int, *, size_bytes_max: int, below_offset: int) -> bytes:
        """Whole batches from the one that has the offset on; none that reaches `below_offset`."""
        return self._look_up(
            lambda: self._read(offset, size_bytes_max, below_offset),
            lambda: self._read_around(offset, size_bytes_max, below_offset),
        )

    def lend(self, offset: int, *, size_bytes_max: int, below_offset: int) -> bytes | StoredBatches:
        """The same batches as `read`, unread where there are many and nothing about them is to be checked."""
        return self._look_up(
            lambda: self._lend(offset, size_bytes_max, below_offset),
            lambda: self._read_around(offset, size_bytes_max, below_offset),
        )

    def first_batch_since(self, timestamp_ms: int, from_offset: int = 0) -> bytes | None:
        """The first batch that reaches the offset and says that it has a record at the time or later."""
        return self._look_up(
            lambda: self._first_batch_since(timestamp_ms, from_offset),
            lambda: self._first_sound_batch_since(timestamp_ms, from_offset),
        )

    def max_timestamp(self, from_offset: int = 0) -> int:
        """The highest timestamp of all batches that reach the offset; NO_TIMESTAMP when none has one."""
        if from_offset > self.base_offset:
            return self._look_up(
                lambda: self._max_timestamp_since(from_offset),
                lambda: self._max_sound_timestamp_since(from_offset),
            )
        if self._index is not None:
            return self._index.max_timestamp.timestamp_ms
        return self._look_up(
            lambda: self.index.max_timestamp.timestamp_ms,
            lambda: self._sound_index().max_timestamp.timestamp_ms,
        )

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
        """Write what a sealed segment has beside its batches, which have been synced.

        It is sealed once the directory has been synced, too.
        """
        index = self.growing_index
        checksums = self.write_index_entries(index, index.mark)
        self._index_files.write_seal(self.transaction_index, Seal(self.size_bytes, *checksums))

    def write_index_entries(self, index: SegmentIndex, mark: IndexMark) -> tuple[int, int]:
        """Add to the files the entries up to a mark, durably but for the files' names.

        Returns the checksums of all entries that are in them now.
        """
        return self._index_files.write_entries(index, mark)

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
        is_sealed = self._index is None or self._index.is_sealed
        index = SegmentIndex(self.base_offset, self._index_interval_bytes)
        scanner = self.scanner(HEADER_WINDOW_BYTES)
        position, next_offset = 0, self.base_offset
        while position < self.size_bytes:
            try:
                header = scanner.header_at(position)
                check_place(header, next_offset, gaps=True, below_offset=self.next_offset)
            except CorruptBatch as error:
                raise _corrupt(position, str(error)) from error
            index.add(header, position)
            next_offset = header.last_offset + 1
            position += header.size_bytes
        if is_sealed:
            index.seal()
        self._index = index
        self._index_is_loaded = False
        self._index_files.distrust()
        self._boundaries.clear()

    def _look_up(self, look_up: Callable[[], _Found], look_around: Callable[[], _Found]) -> _Found:
        """Look something up and, where damage is met, look around it.

        Damage that is met first may be the loaded index's: make that anew, and retry.
        """
        if not self._is_damaged:
            damage = None
            try:
                found = self._with_sound_index(look_up)
            except CorruptBatch as error:
                damage = error
            # A file that has lost its end looks sound up to there.
            if damage is None and not self._is_damaged:
                return found
            if damage is not None:
                logger.error("%s is damaged, and read around that from now on: %s", self.path, damage)
            self._is_damaged = True
        try:
            return look_around()
        except CorruptBatch as error:
            raise CorruptBatch(f"{self.path}: {error}") from error

    def _with_sound_index(self, look_up: Callable[[], _Found]) -> _Found:
        try:
            if self._index is None:
                # This holds the file's size against what it was, too.
                self._load_index()
            return look_up()
        except CorruptBatch as error:
            if not self._index_is_loaded:
                raise
            logger.warning("the indexes of %s are made anew from its batches: %s", self.path, error)
        self.rebuild_index()
        return look_up()

    def _load_index(self) -> SegmentIndex:
        self._index_is_loaded = True
        self._index, seal = self._index_files.load_sealed()
        self._compare_size(seal.log_bytes)
        return self._index

    def _compare_size(self, written_bytes: int) -> None:
        """Hold the file's size against what it had when the segment was sealed."""
        self._written_bytes = written_bytes
        if self.size_bytes < written_bytes:
            self._is_damaged = True
            logger.error(
                "%s has lost its end: it has %d bytes and had %d", self.path, self.size_bytes, written_bytes
            )
        elif self.size_bytes > written_bytes:
            logger.warning(
                "%s has %d bytes at its end that are not its own", self.path, self.size_bytes - written_bytes
            )
            self.size_bytes = self._synced_bytes = written_bytes

    def _load_beginning(self, index: SegmentIndex) -> SegmentIndex:
        """Load what the last checkpoint has left in the files; where that is damaged, make all anew."""
        try:
            self._index = self._index_files.load_beginning(index)
        except CorruptBatch as error:
            logger.warning("the indexes of %s are made anew from its batches: %s", self.path, error)
            self.rebuild_index()
        else:
            self._index_is_loaded = True
        return self.growing_index

    def _read(self, offset: int, size_bytes_max: int, below_offset: int) -> bytes:
        scanner = self.scanner(HEADER_WINDOW_BYTES)
        return self._read_range(*self._range(scanner, offset, size_bytes_max, below_offset))

    def _lend(self, offset: int, size_bytes_max: int, below_offset: int) -> bytes | StoredBatches:
        scanner = self.scanner(HEADER_WINDOW_BYTES)
        start, end = self._range(scanner, offset, size_bytes_max, below_offset)
        if (
            end - start < LENT_BYTES_MIN
            or not self.may_lend
            or not self._is_checked(start, end)
            or self._disk.size_bytes(self.open()) < end
        ):
            return self._read_range(start, end)
        return StoredBatches(self, self._disk, start, end - start)

    def _range(
        self, scanner: FileScanner, offset: int, size_bytes_max: int, below_offset: int
    ) -> tuple[int, int]:
        """Where the batches begin and end that are to be read."""
        stop = self._position_of(scanner, below_offset)
        start = self._position_of(scanner, offset)
        if start >= stop:
            return start, start
        return start, self._last_boundary(scanner, start, size_bytes_max, stop)

    def _is_checked(self, start: int, end: int) -> bool:
        """Whether nobody has to compare what lies there with its checksums."""
        return start >= self._trusted_from or self._checked_from <= start <= end <= self._checked_to

    def _read_range(self, start: int, end: int) -> bytes:
        if start == end:
            return b""
        data = self._disk.read(self.open(), start, end - start)
        if len(data) < end - start:
            raise _corrupt(start + len(data), f"the file ends; it had {self.size_bytes} bytes")
        if not self._is_checked(start, end):
            self._check(memoryview(data), start)
        return data

    def _position_of(self, scanner: FileScanner, offset: int) -> int:
        """Where the first batch begins that reaches the offset; the segment's end when there is none."""
        if offset >= self.next_offset or not self.size_bytes:
            return self.size_bytes
        known = self._boundaries.get(offset)
        if known is not None and known >= self._trusted_from:
            return known
        if known is not None and scanner.header_at(known).base_offset == offset:
            return known
        last_offset, position = self.index.floor_by_offset(offset)
        header = scanner.header_at(position)
        if header.base_offset < self.base_offset or header.last_offset_delta < 0:
            raise _corrupt(position, f"a batch has offsets {header.base_offset} to {header.last_offset}")
        if last_offset not in {None, header.last_offset}:
            raise _corrupt(position, f"the index has another batch there, which ends with {last_offset}")
        before = position
        while header.last_offset < offset:
            before, last_offset = position, header.last_offset
            position += header.size_bytes
            if position >= self.size_bytes:
                # Compaction may have removed the last batches, and nobody has looked where the segment ends.
                self._check_before_gap(scanner, before)
                return self.size_bytes
            header = scanner.header_at(position)
            if header.base_offset <= last_offset or header.last_offset_delta < 0:
                raise _corrupt(position, f"offset {header.base_offset} comes after {last_offset}")
        if header.base_offset > offset and position < self._trusted_from:
            self._check_before_gap(scanner, before)
            self._check_successor(scanner, position, header)
        return position

    def _check_before_gap(self, scanner: FileScanner, position: int) -> None:
        """Check the batch before a gap: compaction has left it, or it does not say how far it goes."""
        if position < self._trusted_from:
            try:
                scanner.checked_header_at(position)
            except CorruptBatch as error:
                raise _corrupt(position, str(error)) from error

    def _check_successor(self, scanner: FileScanner, position: int, header: BatchHeader) -> None:
        """Check a batch that leaves a gap before it, as compaction does or a damaged base offset.

        The checksum does not cover the base offset; but a damaged one is hardly less than the next batch's.
        """
        after = position + header.size_bytes
        below_offset = self.next_offset
        if after < self.size_bytes:
            try:
                below_offset = scanner.header_at(after).base_offset
            except CorruptBatch:
                return
        if header.last_offset >= below_offset:
            raise _corrupt(position, f"offset {header.last_offset} comes before {below_offset}")

    def _last_boundary(self, scanner: FileScanner, start: int, size_bytes_max: int, stop: int) -> int:
        """Where the last whole batch ends that fits; the first batch counts as fitting."""
        full = start + size_bytes_max
        if full >= stop:
            return stop
        position = max(start, self.index.floor_by_position(full))
        header = scanner.header_at(position)
        if position >= self._trusted_from:
            # Whoever reads on begins there, unless more fits.
            self._remember(header.base_offset, position)
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
        scanner = self.scanner(HEADER_WINDOW_BYTES)
        position = 0 if entry is None else self._check_time_entry(scanner, entry)
        if from_offset > self.base_offset:
            position = max(position, self._position_of(scanner, from_offset))
        while position < self.size_bytes:
            header = scanner.header_at(position)
            if header.max_timestamp_ms >= timestamp_ms:
                return self._read_range(*self._range(scanner, header.base_offset, 0, self.next_offset))
            position += header.size_bytes
        return None

    def _max_timestamp_since(self, from_offset: int) -> int:
        scanner = self.scanner(HEADER_WINDOW_BYTES)
        position = self._position_of(scanner, from_offset)
        highest = NO_TIMESTAMP
        while position < self.size_bytes:
            header = scanner.header_at(position)
            highest = max(highest, header.max_timestamp_ms if header.record_count else NO_TIMESTAMP)
            position += header.size_bytes
        return highest

    def _check_time_entry(self, scanner: FileScanner, entry: TimeEntry) -> int:
        """Where the batch begins of which the time index speaks, if it speaks the truth."""
        position = self._position_of(scanner, entry.offset)
        if scanner.header_at(position).max_timestamp_ms != entry.timestamp_ms:
            raise _corrupt(position, f"the time index is wrong about offset {entry.offset}")
        return position

    def _read_around(self, offset: int, size_bytes_max: int, below_offset: int) -> bytes:
        walk = self._walk_around(self._sound_index(), offset)
        begin, end = read_around(walk, offset, size_bytes_max, below_offset)
        return self._disk.read(self.open(), begin, end - begin)

    def _first_sound_batch_since(self, timestamp_ms: int, from_offset: int) -> bytes | None:
        index = self._sound_index()
        entry = index.floor_by_timestamp(timestamp_ms)
        offset = max(from_offset, self.base_offset if entry is None else entry.offset)
        for each in self._walk_around(index, offset):
            if isinstance(each, SoundBatch):
                header = each.header
                if header.max_timestamp_ms >= timestamp_ms and header.last_offset >= from_offset:
                    return self._disk.read(self.open(), each.position, header.size_bytes)
        return None

    def _max_sound_timestamp_since(self, from_offset: int) -> int:
        sound = (
            each.header
            for each in self._walk_around(self._sound_index(), from_offset)
            if isinstance(each, SoundBatch) and each.header.last_offset >= from_offset
        )
        return max((header.max_timestamp_ms for header in sound if header.record_count), default=NO_TIMESTAMP)

    def _walk_around(self, index: SegmentIndex, offset: int) -> Iterator[SoundBatch | DamagedRange]:
        """From the last known boundary before an offset on."""
        walk = DamageWalk(
            self.scanner(DATA_WINDOW_BYTES),
            below_offset=self.next_offset,
            written_bytes=self._written_bytes,
            next_boundary=index.next_boundary,
        )
        last_offset, position = index.floor_by_offset(offset - 1)
        return walk.walk(position, self.base_offset, last_offset)

    def _sound_index(self) -> SegmentIndex:
        """The indexes; where they are damaged, too, made of all batches that are sound."""
        try:
            return self.index
        except CorruptBatch as error:
            logger.warning("the indexes of %s are made anew from its sound batches: %s", self.path, error)
        self._index = SegmentIndex(self.base_offset, self._index_interval_bytes)
        self._index_is_loaded = False
        for each in self._walk_around(self._index, self.base_offset):
            if isinstance(each, SoundBatch):
                self._index.add(each.header, each.position)
        self._index.seal()
        return self._index

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
                check_place(header, next_offset, gaps=True, below_offset=self.next_offset)
            except CorruptBatch as error:
                raise _corrupt(start + position, f"{error} (offset {next_offset} or later)") from error
            next_offset = header.last_offset + 1
            last_at = position
            position += header.size_bytes
        self._check_successor(self.scanner(HEADER_WINDOW_BYTES), start + last_at, header)
        end = start + len(data)
        if start == self._checked_to:
            self._checked_to = end
        else:
            self._checked_from, self._checked_to = start, end


def _corrupt(position: int, reason: str) -> CorruptBatch:
    return CorruptBatch(f"byte {position}: {reason}")
