"""How many segment files a store keeps open.

A file is opened when it is first needed and stays open, least recently used first to go, up to a maximum. A
file with writes that were not synced is never closed to make room: the kernel reports a failed write-back to
those who have the file open, and might report it to nobody else. So the files that are open are at most the
maximum, or those that wait for a sync if they are more. When the system refuses one more, all that can go do,
and the open is tried once again.

Only the thread that appends and reads opens and closes. The thread that syncs uses a file only while it has
writes that were not synced, that is, while it may not be closed.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, Protocol

from headrace.log.disk import OpenRefused

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.log.disk import Disk

OPEN_FILES_MAX: Final = 128
"""Opening one again costs microseconds, while clients need file descriptors for their connections."""


class FileOwner(Protocol):
    """Who has a file open."""

    @property
    def is_dirty(self) -> bool:
        """Whether something that was written has not been synced."""
        ...

    def close(self) -> None:
        """Close the file, and say so with `closed`."""
        ...


class OpenFiles:
    """The open files of a store. Used from one thread."""

    def __init__(self, disk: Disk, count_max: int = OPEN_FILES_MAX) -> None:
        self._disk = disk
        self._count_max = count_max
        self._owners: OrderedDict[FileOwner, None] = OrderedDict()

    def open(self, owner: FileOwner, path: Path) -> int:
        """Open a file, after closing others where needed."""
        self._make_room(self._count_max - 1)
        try:
            file = self._disk.open(path)
        except OpenRefused:
            if not self._make_room(0):
                raise
            file = self._disk.open(path)
        self._owners[owner] = None
        return file

    def adopt(self, owner: FileOwner) -> None:
        """Take over a file that somebody else has opened."""
        self._make_room(self._count_max - 1)
        self._owners[owner] = None

    def used(self, owner: FileOwner) -> None:
        """Note that an open file is in use."""
        self._owners.move_to_end(owner)

    def closed(self, owner: FileOwner) -> None:
        """Note that a file was closed."""
        del self._owners[owner]

    def close_all(self) -> None:
        """Close every file, synced or not."""
        for owner in tuple(self._owners):
            owner.close()

    def _make_room(self, count_kept: int) -> int:
        """Close files until no more than so many are open, or none is left that may go; say how many went."""
        surplus = len(self._owners) - count_kept
        if surplus <= 0:
            return 0
        idle = [owner for owner in self._owners if not owner.is_dirty][:surplus]
        for owner in idle:
            owner.close()
        return len(idle)
