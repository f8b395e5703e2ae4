"""What is found on disk when a partition is opened, and what is done about it.

Sealed segments (those with both index files) were whole when they were sealed. Only their headers are walked,
to learn the producers; damage inside a batch is found, and refused, when it is read.

All other segments are checked batch by batch. A crash may have left the newest of them with a torn end, since
nothing that was not synced is promised. The rules:

1. A batch that is cut short or does not match its checksum, with no valid batch after it in its segment, is a
   torn end. It is cut off and reported. Later segments go with it: a segment's successor is acknowledged only
   after the segment has been sealed, so nothing in them ever was.
2. A damaged batch with a valid batch after it is not the mark of a torn write. Cutting there would lose what
   may have been acknowledged, so opening fails with CorruptBatch, which names file, byte and offset, and the
   one command that accepts the loss. This is a decided limitation: some file systems write pages back out of
   order, so a loss of power may leave such a hole among batches of which none was ever acknowledged. Nothing
   on disk tells that hole from damage to acknowledged data, so a person decides, never the program.
3. An unsealed segment before a sealed one has lost its index files to somebody's hand. They are made again;
   any damage in it is rule 2.

What is found in an unsealed segment need not be on the disk: it may be in the page cache alone, and be marked
clean there after a failed sync, so that a sync would do nothing for it. So before it counts, whatever lies
beyond the last known recovery point is written again in place, the same bytes, and then synced. The recovery
point is the offset below which all was durable when the store was last opened or closed; so this costs
nothing after a clean stop, and after any other at most one write of each partition's unsealed segment.
Decided against: dropping the pages and reading the disk instead, which the kernel need not do when asked; and
a mark that says that a sync has failed, which a failing disk need not take.

Decided against: keeping the readable part of a damaged log online. A gap in the middle of a partition is for
a person to judge, and the error says how to accept the loss.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from shlex import quote
from typing import TYPE_CHECKING, Final

from headrace.errors import CorruptBatch
from headrace.log.batch import HEADER_BYTES
from headrace.log.durable_file import TEMPORARY_NAME
from headrace.log.marker import decode_marker
from headrace.log.producers import apply_batch
from headrace.log.scan import DATA_WINDOW_BYTES, HEADER_WINDOW_BYTES, FileScanner, check_place
from headrace.log.segment import Segment

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from headrace.log.batch import BatchHeader
    from headrace.log.disk import Disk
    from headrace.log.open_files import OpenFiles
    from headrace.log.producers import ProducerStates
    from headrace.log.topic_settings import TopicSettings

_LOG_NAME: Final = re.compile(r"(\d{20})\.log")
_EPOCH_AND_MAGIC: Final = b"\x00\x00\x00\x00\x02"
_EPOCH_AT: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class CutTail:
    """The torn end that a crash left, and that was cut off."""

    path: Path
    position: int
    cut_bytes: int
    next_offset: int
    reason: str

    def __str__(self) -> str:
        return (
            f"{self.path}: cut {self.cut_bytes} bytes, from byte {self.position} and offset "
            f"{self.next_offset} on, which a crash had left unfinished: {self.reason}"
        )


@dataclass(frozen=True, slots=True)
class Recovered:
    """The segments of a partition, the last of them active, and what had to be cut off."""

    segments: list[Segment]
    cut: CutTail | None


@dataclass(frozen=True, slots=True)
class _Damage:
    position: int
    next_offset: int
    reason: str


class Recovery:
    """Opens the segments of one partition."""

    def __init__(
        self,
        directory: Path,
        settings: TopicSettings,
        producers: ProducerStates,
        *,
        disk: Disk,
        files: OpenFiles,
        recovery_point: int,
        now_s: float,
    ) -> None:
        """Everything below the recovery point, an offset, is known to be durable."""
        self._directory = directory
        self._settings = settings
        self._disk = disk
        self._files = files
        self._recovery_point = recovery_point
        self._now_s = now_s
        self._producers = producers
        self._names: set[str] = set()

    def run(self) -> Recovered:
        """Find the segments, check them, and cut what is torn. What is left is whole but not yet synced."""
        self._names = set(self._disk.names(self._directory))
        self._unlink(TEMPORARY_NAME)
        bases = sorted(int(match[1]) for name in self._names if (match := _LOG_NAME.fullmatch(name)))
        # The last segment is written again, so it is not sealed any more.
        self._unlink(*(name for base in bases[-1:] for name in _companion_names(base)))
        recovered = self._check(bases)
        for segment in recovered.segments[:-1]:
            if not segment.is_sealed:
                segment.index.seal()
        return recovered

    def _check(self, bases: list[int]) -> Recovered:
        last_sealed = max((base for base in bases if self._is_sealed(base)), default=-1)
        segments: list[Segment] = []
        for number, base in enumerate(bases):
            if segments and (cut := self._missing_end(segments[-1], bases[number:], last_sealed)):
                return Recovered(segments, cut)
            segment = self._segment(base)
            segments.append(segment)
            if self._is_sealed(base):
                self._adopt_sealed(segment, bases[number + 1 :])
            elif damage := self._verify(segment, gaps=base < last_sealed):
                return Recovered(segments, self._cut(segment, damage, bases[number + 1 :], last_sealed))
        return Recovered(segments or [self._segment(0)], None)

    def _is_sealed(self, base_offset: int) -> bool:
        return self._names.issuperset(_index_names(base_offset))

    def _segment(self, base_offset: int) -> Segment:
        return Segment(
            self._directory,
            base_offset,
            disk=self._disk,
            files=self._files,
            index_interval_bytes=self._settings.index_interval_bytes,
        )

    def _adopt_sealed(self, segment: Segment, later: list[int]) -> None:
        """Walk over the headers of a sealed segment."""
        size_bytes = self._disk.size_bytes(segment.open())
        scanner = FileScanner(self._disk, segment.open(), size_bytes, HEADER_WINDOW_BYTES)
        position, next_offset = 0, segment.base_offset
        while position < size_bytes:
            try:
                header = scanner.header_at(position)
                check_place(header, next_offset, gaps=True)
                self._learn(segment, header, scanner, position)
            except CorruptBatch as error:
                raise _beyond_repair(segment, _Damage(position, next_offset, str(error)), later) from error
            next_offset = header.last_offset + 1
            position += header.size_bytes
        segment.adopt_sealed(size_bytes=size_bytes, next_offset=next_offset)
        segment.close()

    def _verify(self, segment: Segment, *, gaps: bool) -> _Damage | None:
        """Check an unsealed segment up to the first damage; learn its indexes and producers on the way."""
        size_bytes = self._disk.size_bytes(segment.open())
        scanner = FileScanner(self._disk, segment.open(), size_bytes, DATA_WINDOW_BYTES)
        position, next_offset = 0, segment.base_offset
        durable_bytes = 0
        damage = None
        while position < size_bytes:
            try:
                header = scanner.checked_header_at(position)
                check_place(header, next_offset, gaps=gaps)
                self._learn(segment, header, scanner, position)
            except CorruptBatch as error:
                damage = _Damage(position, next_offset, str(error))
                break
            segment.index.add(header, position)
            next_offset = header.last_offset + 1
            position += header.size_bytes
            if next_offset <= self._recovery_point:
                durable_bytes = position
        segment.adopt(size_bytes=position, next_offset=next_offset, durable_bytes=durable_bytes)
        return damage

    def _learn(self, segment: Segment, header: BatchHeader, scanner: FileScanner, position: int) -> None:
        """Learn the producer's state, and how its transaction ended."""
        marker = None
        if header.is_control:
            marker = decode_marker(header, scanner.bytes_at(position, header.size_bytes))
        apply_batch(self._producers, segment.transaction_index, header, marker, now_s=self._now_s)

    def _missing_end(self, segment: Segment, later: list[int], last_sealed: int) -> CutTail | None:
        """Compare where a segment ends with where the next begins."""
        if segment.next_offset > later[0]:
            reason = f"it ends before offset {segment.next_offset}, but the next segment begins at {later[0]}"
            damage = _Damage(segment.size_bytes, segment.next_offset, reason)
            raise _beyond_repair(segment, damage, later)
        if segment.next_offset == later[0] or segment.is_sealed or segment.base_offset < last_sealed:
            return None
        return CutTail(
            path=segment.path,
            position=segment.size_bytes,
            cut_bytes=self._drop(later),
            next_offset=segment.next_offset,
            reason=f"the next segment begins with offset {later[0]}, so batches between are missing",
        )

    def _cut(self, segment: Segment, damage: _Damage, later: list[int], last_sealed: int) -> CutTail:
        """Cut off a torn end, after making sure that it is one."""
        size_bytes = self._disk.size_bytes(segment.open())
        if segment.base_offset < last_sealed or self._has_batch_after(segment, damage, size_bytes):
            raise _beyond_repair(segment, damage, later)
        self._disk.truncate(segment.open(), damage.position)
        return CutTail(
            path=segment.path,
            position=damage.position,
            cut_bytes=size_bytes - damage.position + self._drop(later),
            next_offset=damage.next_offset,
            reason=damage.reason,
        )

    def _has_batch_after(self, segment: Segment, damage: _Damage, size_bytes: int) -> bool:
        """Whether a valid batch of a higher offset begins at any byte after the damage."""
        scanner = FileScanner(self._disk, segment.open(), size_bytes, HEADER_WINDOW_BYTES)
        position = damage.position + 1
        while position + HEADER_BYTES <= size_bytes:
            window = self._disk.read(segment.open(), position + _EPOCH_AT, DATA_WINDOW_BYTES)
            for found in _occurrences(window, _EPOCH_AND_MAGIC):
                if _is_batch(scanner, position + found, damage.next_offset):
                    return True
            # Windows overlap, so that the pattern is found where it lies across two of them.
            position += max(len(window) - len(_EPOCH_AND_MAGIC) + 1, 1)
        return False

    def _drop(self, bases: list[int]) -> int:
        """Remove segments that were never acknowledged; return how many bytes they had."""
        dropped_bytes = 0
        for base in bases:
            segment = self._segment(base)
            dropped_bytes += self._disk.size_bytes(segment.open())
            segment.close()
            self._unlink(segment.path.name, *_companion_names(base))
        return dropped_bytes

    def _unlink(self, *names: str) -> None:
        """Remove those of the files that are there, for good: they must not come back after a crash."""
        present = self._names.intersection(names)
        for name in sorted(present):
            self._disk.unlink(self._directory / name)
        if present:
            self._disk.sync_directory(self._directory)
            self._names -= present


def _occurrences(data: bytes, pattern: bytes) -> Iterator[int]:
    found = data.find(pattern)
    while found >= 0:
        yield found
        found = data.find(pattern, found + 1)


def _is_batch(scanner: FileScanner, position: int, above_offset: int) -> bool:
    try:
        return scanner.checked_header_at(position).base_offset > above_offset
    except CorruptBatch:
        return False


def _index_names(base_offset: int) -> tuple[str, str]:
    return f"{base_offset:020d}.index", f"{base_offset:020d}.timeindex"


def _companion_names(base_offset: int) -> tuple[str, ...]:
    return *_index_names(base_offset), f"{base_offset:020d}.txnindex"


def _beyond_repair(segment: Segment, damage: _Damage, later: list[int]) -> CorruptBatch:
    return CorruptBatch(
        f"{segment.path}, byte {damage.position}, offset {damage.next_offset}: {damage.reason}. Batches come "
        "after it, so this is not the torn end of a crash. Restore the file from a copy; or, to give up "
        f"everything from offset {damage.next_offset} on, run: {_giving_up(segment.path, damage, later)}"
    )


def _giving_up(path: Path, damage: _Damage, later: list[int]) -> str:
    """The command that cuts a partition off at the damage."""
    commands = [f"cd {quote(str(path.parent))}", f"truncate -s {damage.position} {path.name}"]
    if later:
        commands.append("rm -f " + " ".join(f"{base:020d}.*" for base in later))
    return " && ".join(commands)
