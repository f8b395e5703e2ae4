"""Small files that are replaced as a whole: a crash leaves the old content or the new, never a mix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.log.disk import Disk

TEMPORARY_NAME: Final = ".unfinished"
"""One name per directory suffices where a directory has one writer at a time."""


def write_durably(disk: Disk, path: Path, content: bytes, *, temporary_name: str = TEMPORARY_NAME) -> None:
    """Write a file so that, once this returns, it survives a loss of power.

    After OpenRefused, it is as before. Writers that share a directory and may meet need temporary names of
    their own.
    """
    disk.replace(_write_temporary(disk, path.parent / temporary_name, content), path)


def write_whole(disk: Disk, path: Path, content: bytes) -> None:
    """Write a file that is complete where it is found, though a loss of power may still take it away.

    It survives that once the directory has been synced.
    """
    disk.rename(_write_temporary(disk, path.parent / TEMPORARY_NAME, content), path)


def _write_temporary(disk: Disk, path: Path, content: bytes) -> Path:
    file = disk.open(path)
    try:
        disk.truncate(file, 0)
        disk.append(file, [content])
        disk.sync_file(file)
    finally:
        disk.close(file)
    return path


def make_directory_durably(disk: Disk, path: Path) -> None:
    """Make a directory, and those above it where they are missing, so that it survives a loss of power.

    A directory with something in it was durable before that was put there. An empty one may have been made by
    a process that was killed before it could sync, so it counts as missing.
    """
    if disk.names(path) or path == path.parent:
        return
    make_directory_durably(disk, path.parent)
    disk.make_directory(path)
    disk.sync_directory(path.parent)


def read_whole(disk: Disk, path: Path) -> bytes:
    """The content of a file that is known to be there."""
    file = disk.open(path)
    try:
        return disk.read(file, 0, disk.size_bytes(file))
    finally:
        disk.close(file)
