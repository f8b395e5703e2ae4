"""Reading around damage: what is sound stays readable, and what is not is named by its offsets.

A damaged batch fails for itself alone. Where its header can't be believed, the batches after it have to be
found in another way. A walk over them goes by these rules:

- A batch is sound when it matches its checksum and lies where it belongs: after the batch before it, before
  the batch after it and the next segment. The base offset, which the checksum does not cover, is held against
  both neighbours; when two of them overlap, the one that follows on what came before is believed.
- After a batch that is not, the next sound one is searched for at every byte, up to the next place at which
  the index says that a batch begins; from there the walk goes on in any case. What is lost held at least one
  offset, so the next sound one does not begin where that did.
- From the end of what was sound to the beginning of what is sound again, the offsets are damaged: whoever
  asks for one of them gets CorruptBatch with their range, nobody gets what may be wrong, and nobody is led
  past them unawares.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.errors import CorruptBatch
from headrace.log.batch import HEADER_BYTES
from headrace.log.damage import EPOCH_AND_MAGIC, EPOCH_AT, occurrences
from headrace.log.scan import DATA_WINDOW_BYTES, check_place

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from headrace.log.batch import BatchHeader
    from headrace.log.scan import FileScanner


@dataclass(frozen=True, slots=True)
class SoundBatch:
    """A batch that is what was written."""

    position: int
    header: BatchHeader


@dataclass(frozen=True, slots=True)
class DamagedRange:
    """Bytes that are not, and the first offset that they may have held."""

    position: int
    end: int
    first_offset: int
    reason: str


class DamageWalk:
    """Walks over the batches of one segment from a known place on."""

    def __init__(
        self,
        scanner: FileScanner,
        *,
        below_offset: int,
        written_bytes: int,
        written_offset: int,
        next_boundary: Callable[[int], int | None],
    ) -> None:
        """All offsets lie below one; so many bytes were once written, up to an offset.

        The index knows some boundaries.
        """
        self._scanner = scanner
        self._below_offset = below_offset
        self._written_bytes = written_bytes
        self._written_offset = written_offset
        self._next_boundary = next_boundary

    def walk(
        self, position: int, next_offset: int, last_offset: int | None = None
    ) -> Iterator[SoundBatch | DamagedRange]:
        """All batches from a place on that have the offset or later ones, and the damage between them.

        Of the first batch the index may have said with which offset it ends.
        """
        scanner = self._scanner
        while position < scanner.end:
            try:
                header = self._sound_header(position, next_offset, last_offset)
                last_offset = None
            except CorruptBatch as error:
                # It held one offset at least; the index may have said with which one it ends.
                after = (next_offset if last_offset is None else last_offset) + 1
                end = self._next_sound(position, after)
                yield DamagedRange(position, end, next_offset, str(error))
                position, next_offset, last_offset = end, after, None
            else:
                yield SoundBatch(position, header)
                next_offset = header.last_offset + 1
                position += header.size_bytes
        if scanner.end < self._written_bytes:
            reason = f"the file ends; it had {self._written_bytes} bytes"
            yield DamagedRange(scanner.end, self._written_bytes, next_offset, reason)
        elif next_offset <= self._written_offset:
            reason = f"the file ends; it went on to offset {self._written_offset}"
            yield DamagedRange(scanner.end, scanner.end, next_offset, reason)

    def _sound_header(self, position: int, next_offset: int, last_offset: int | None = None) -> BatchHeader:
        header = self._scanner.checked_header_at(position)
        check_place(header, next_offset, gaps=True, below_offset=self._below_offset)
        if last_offset is not None:
            if header.last_offset != last_offset:
                raise CorruptBatch(f"a batch ends with offset {header.last_offset}, not {last_offset}")
        elif header.base_offset > next_offset:
            self._check_successor(header, position + header.size_bytes)
        return header

    def _check_successor(self, header: BatchHeader, after: int) -> None:
        if after < self._scanner.end:
            try:
                successor = self._scanner.checked_header_at(after)
            except CorruptBatch:
                return
            if successor.base_offset <= header.last_offset:
                raise CorruptBatch(
                    f"a batch up to offset {header.last_offset} comes before offset {successor.base_offset}"
                )

    def _next_sound(self, damaged_at: int, next_offset: int) -> int:
        """Where the next sound batch begins, or at least the next that the index knows of."""
        scanner = self._scanner
        boundary = self._next_boundary(damaged_at)
        end = scanner.end if boundary is None else boundary
        position = damaged_at + 1
        while position < end:
            wanted = min(DATA_WINDOW_BYTES, end - position) + len(EPOCH_AND_MAGIC) - 1
            window = bytes(scanner.bytes_at(min(position + EPOCH_AT, scanner.end), wanted))
            for found in occurrences(window, EPOCH_AND_MAGIC):
                if self._is_sound(position + found, next_offset):
                    return position + found
            # Windows overlap, so that the pattern is found where it lies across two of them.
            position += max(len(window) - len(EPOCH_AND_MAGIC) + 1, HEADER_BYTES)
        return end

    def _is_sound(self, position: int, next_offset: int) -> bool:
        try:
            header = self._sound_header(position, next_offset)
            self._check_successor(header, position + header.size_bytes)
        except CorruptBatch:
            return False
        return True


def read_around(
    walk: Iterator[SoundBatch | DamagedRange], offset: int, size_bytes_max: int, below_offset: int
) -> tuple[int, int]:
    """Where sound batches begin and end, the first of them the one that has the offset; equal for none.

    At least one batch comes, and none that reaches `below_offset`. Raises CorruptBatch when the offset is
    damaged.
    """
    begin = end = 0
    damage: DamagedRange | None = None
    for each in walk:
        if isinstance(each, DamagedRange):
            if end:
                break
            damage = damage or each
            continue
        header = each.header
        if header.last_offset < offset:
            damage = None
            continue
        if not end:
            if damage is not None and offset < header.base_offset:
                raise damaged_offsets(damage, header.base_offset)
            begin = end = each.position
        if header.last_offset >= below_offset:
            break
        if end > begin and end + header.size_bytes - begin > size_bytes_max:
            break
        end += header.size_bytes
    else:
        if damage is not None and not end:
            raise damaged_offsets(damage, None)
    return begin, end


def damaged_offsets(damage: DamagedRange, next_sound_offset: int | None) -> CorruptBatch:
    """The error for whoever asks for what is damaged."""
    until = "to the segment's end" if next_sound_offset is None else f"to {next_sound_offset - 1}"
    return CorruptBatch(
        f"offsets {damage.first_offset} {until} are damaged: byte {damage.position}: {damage.reason}"
    )
