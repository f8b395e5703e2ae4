"""How a compacted segment takes the place of those that it was made from, whatever happens meanwhile.

    <base>.log.cleaned           being written; with it .index.cleaned, .timeindex.cleaned, .txnindex.cleaned
    <base>-<end>.swap            the batches, complete and durable, as are the three index files: from here on
                                 it is what the log has from the base offset up to the end offset
    <base>.log, .index, ...      the names of any other segment

    1. All four files are written and synced.
    2. `.log.cleaned` becomes `.swap`, durably. This is the moment at which it counts.
    3. The files of all segments that begin between base and end are removed.
    4. The index files get their names, in place of the old ones, durably.
    5. The `.swap` gets its name, in place of the old one, durably.

A crash before 2 leaves the old segments, and files that are removed when the log is opened. After a crash
that comes later, opening goes on with 3; each of these steps may be done twice. So index files never stand
beside batches that are not theirs without a `.swap` that says so.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from headrace.log.durable_file import TEMPORARY_NAME
from headrace.log.index_files import segment_path
from headrace.log.log_start import remove_segments, segment_bases

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from headrace.log.disk import Disk

CLEANED_SUFFIX: Final = ".cleaned"
INDEX_SUFFIXES: Final = ("index", "timeindex", "txnindex")
_SWAP: Final = re.compile(r"(\d{20})-(\d{20})\.swap")


def cleaned_path(directory: Path, base_offset: int, suffix: str) -> Path:
    """What one of a segment's files is called until the segment takes its place."""
    return segment_path(directory, base_offset, suffix + CLEANED_SUFFIX)


def commit_swap(disk: Disk, directory: Path, base_offset: int, end_offset: int) -> None:
    """Step 2: let a segment that was written and synced count. After OpenRefused, it does not."""
    cleaned = cleaned_path(directory, base_offset, "log")
    # The names of the index files, too, have to be durable before.
    disk.sync_directory(directory)
    disk.replace(cleaned, _swap_path(directory, base_offset, end_offset))


def finish_swap(disk: Disk, directory: Path, base_offset: int, end_offset: int) -> None:
    """Steps 3 to 5. After OpenRefused, another call goes on with it."""
    names = disk.names(directory)
    # A crash may have left some of a segment's files without the others.
    replaced = [base for base in segment_bases(names) if base_offset < base < end_offset]
    remove_segments(disk, directory, replaced)
    for suffix in INDEX_SUFFIXES:
        cleaned = cleaned_path(directory, base_offset, suffix)
        if cleaned.name in names:
            disk.rename(cleaned, segment_path(directory, base_offset, suffix))
    disk.sync_directory(directory)
    disk.replace(_swap_path(directory, base_offset, end_offset), segment_path(directory, base_offset, "log"))


def undo_swap(disk: Disk, directory: Path, base_offset: int, end_offset: int) -> None:
    """Give a segment up that has been committed but has not begun to take its place."""
    names = disk.names(directory)
    swap = _swap_path(directory, base_offset, end_offset)
    if swap.name in names:
        disk.unlink(swap)
        # The batches first: index files alone are nothing.
        disk.sync_directory(directory)
    remove_cleaned(disk, directory, names)


def finish_swaps(disk: Disk, directory: Path) -> None:
    """Go on with what a crash has interrupted, when a log is opened, and remove what was never finished."""
    names = disk.names(directory)
    for name in names:
        if match := _SWAP.fullmatch(name):
            finish_swap(disk, directory, int(match[1]), int(match[2]))
    names = disk.names(directory)
    remove_cleaned(disk, directory, names)
    for name in names:
        if name.startswith(f"{TEMPORARY_NAME}-"):
            disk.unlink(directory / name)


def remove_cleaned(disk: Disk, directory: Path, names: Iterable[str]) -> None:
    """Remove files of segments that never came to count."""
    for name in names:
        if name.endswith(CLEANED_SUFFIX):
            disk.unlink(directory / name)


def _swap_path(directory: Path, base_offset: int, end_offset: int) -> Path:
    return directory / f"{base_offset:020d}-{end_offset:020d}.swap"
