"""Damage to a segment: whether it is the torn end that a crash leaves, and what a person can do about it."""

from __future__ import annotations

from dataclasses import dataclass
from shlex import quote
from typing import TYPE_CHECKING, Final

from headrace.errors import CorruptBatch
from headrace.log.batch import HEADER_BYTES
from headrace.log.scan import DATA_WINDOW_BYTES, HEADER_WINDOW_BYTES, FileScanner

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from headrace.log.disk import Disk

EPOCH_AND_MAGIC: Final = b"\x00\x00\x00\x00\x02"
"""What every batch has at one place: the leader epoch and the format."""
EPOCH_AT: Final = 12


@dataclass(frozen=True, slots=True)
class Damage:
    """Where the first batch begins that is not whole, and what is wrong with it."""

    position: int
    next_offset: int
    reason: str


def has_batch_after(disk: Disk, file: int, size_bytes: int, damage: Damage) -> bool:
    """Whether a valid batch of a higher offset begins at any byte after the damage."""
    scanner = FileScanner(disk, file, size_bytes, HEADER_WINDOW_BYTES)
    position = damage.position + 1
    while position + HEADER_BYTES <= size_bytes:
        window = disk.read(file, position + EPOCH_AT, DATA_WINDOW_BYTES)
        for found in occurrences(window, EPOCH_AND_MAGIC):
            if _is_batch(scanner, position + found, damage.next_offset):
                return True
        # Windows overlap, so that the pattern is found where it lies across two of them.
        position += max(len(window) - len(EPOCH_AND_MAGIC) + 1, 1)
    return False


def beyond_repair(path: Path, damage: Damage, later: list[int]) -> CorruptBatch:
    """The error for damage that is no torn end; later segments have these base offsets."""
    command = _giving_up(path, damage, later)
    return CorruptBatch(
        f"{path}, byte {damage.position}, offset {damage.next_offset}: {damage.reason}. Batches come after "
        "it, or it had been on the disk, so this is not the torn end of a crash. Restore the file from a "
        f"copy; or, to give up everything from offset {damage.next_offset} on, run: {command}"
    )


def occurrences(data: bytes, pattern: bytes) -> Iterator[int]:
    """All places at which a pattern is found."""
    found = data.find(pattern)
    while found >= 0:
        yield found
        found = data.find(pattern, found + 1)


def _is_batch(scanner: FileScanner, position: int, above_offset: int) -> bool:
    try:
        return scanner.checked_header_at(position).base_offset > above_offset
    except CorruptBatch:
        return False


def _giving_up(path: Path, damage: Damage, later: list[int]) -> str:
    """The command that cuts a partition off at the damage."""
    commands = [f"cd {quote(str(path.parent))}", f"truncate -s {damage.position} {path.name}"]
    if later:
        commands.append("rm -f " + " ".join(f"{base:020d}.*" for base in later))
    return " && ".join(commands)
