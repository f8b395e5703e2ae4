"""A disk in memory that loses, when the power goes, what was not synced.

It stands in for `headrace.log.disk.SystemDisk` and keeps its promises, and no others:

- Of what was written to a file after its last sync, a crash keeps some first part. The write at which that
  part ends may be torn: cut short anywhere, with zeros or with garbage after the cut.
- Of the names that were made, changed or removed in a directory after its last sync, a crash keeps some first
  part, for each directory on its own. A file whose name is lost is lost, however often it was synced.

Which part, is for the given random numbers to say, so that a seed repeats a crash exactly. `lose_power_after`
stops the program in the middle of whatever it is doing; `fail` makes one operation report an error.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from random import Random

    from headrace.log.disk import Buffer

SECTOR_BYTES: Final = 512


class PowerLoss(BaseException):
    """The power goes now. No program can catch that, so this is not an Exception."""


@dataclass(slots=True)
class _File:
    content: bytearray = field(default_factory=bytearray)
    synced: bytes = b""
    unsynced: list[bytes | int] = field(default_factory=list)
    """What happened since the last sync: bytes that were appended, or sizes to which the file was cut."""


@dataclass(slots=True)
class _Directory:
    entries: dict[str, _File | _Directory] = field(default_factory=dict)
    synced: dict[str, _File | _Directory] = field(default_factory=dict)
    unsynced: list[dict[str, _File | _Directory]] = field(default_factory=list)
    """The entries after each change since the last sync."""

    def changed(self) -> None:
        self.unsynced.append(dict(self.entries))


class SimulatedDisk:
    """A disk in memory. Used from one thread."""

    def __init__(self) -> None:
        self._root = _Directory()
        self._open: dict[int, _File] = {}
        self._locked: dict[int, _File] = {}
        self._numbers = count(3)
        self._steps_left: int | None = None
        self._failures: dict[str, int] = {}
        self.steps = 0

    def kill(self) -> None:
        """End the program but not the machine: all files are closed, and what was written is still there."""
        self._open.clear()
        self._locked.clear()
        self._failures.clear()
        self._steps_left = None

    def crash(self, random: Random) -> None:
        """Lose what was not synced, as chance has it; all files are closed."""
        self.kill()
        _crash_directory(self._root, random)

    def lose_power_after(self, steps: int) -> None:
        """Raise PowerLoss at the step that comes after so many more steps that change something."""
        self._steps_left = steps

    def fail(self, operation: str, error: int = errno.EIO) -> None:
        """Make the next call of a method of this class, given by name, raise OSError."""
        self._failures[operation] = error

    @property
    def open_file_count(self) -> int:
        """How many files are open."""
        return len(self._open)

    def content(self, path: Path) -> bytes:
        """What is in a file now."""
        return bytes(self._file(path).content)

    def overwrite(self, path: Path, content: bytes) -> None:
        """Put other bytes into a file, synced: damage, as a failing disk does it."""
        file = self._file(path)
        file.content = bytearray(content)
        file.synced = content
        file.unsynced.clear()

    def open(self, path: Path) -> int:
        """Open a file, making it when it is missing; what is written goes to its end."""
        self._may_fail("open")
        directory = self._directory(path.parent)
        entry = directory.entries.get(path.name)
        if entry is None:
            self._step()
            entry = directory.entries[path.name] = _File()
            directory.changed()
        if isinstance(entry, _Directory):
            raise _error(errno.EISDIR, path)
        number = next(self._numbers)
        self._open[number] = entry
        return number

    def close(self, file: int) -> None:
        """Close a file; a lock on it goes with it."""
        self._opened(file)
        del self._open[file]
        self._locked.pop(file, None)

    def read(self, file: int, position: int, size_bytes: int) -> bytes:
        """Read from a place in the file; fewer bytes come only where the file ends."""
        self._may_fail("read")
        return bytes(self._opened(file).content[position : position + size_bytes])

    def append(self, file: int, buffers: Sequence[Buffer]) -> None:
        """Write all of the buffers, one after the other, at the end."""
        target = self._opened(file)
        data = b"".join(buffers)
        if self._steps_left == 0 or "append" in self._failures:
            _append(target, data[: len(data) // 2])
        self._may_fail("append")
        self._step()
        _append(target, data)

    def truncate(self, file: int, size_bytes: int) -> None:
        """Cut the file to a size."""
        self._may_fail("truncate")
        self._step()
        target = self._opened(file)
        del target.content[size_bytes:]
        target.unsynced.append(size_bytes)

    def size_bytes(self, file: int) -> int:
        """How long the file is."""
        return len(self._opened(file).content)

    def sync_file(self, file: int) -> None:
        """Keep all that was written to the file."""
        self._may_fail("sync_file")
        self._step()
        target = self._opened(file)
        target.synced = bytes(target.content)
        target.unsynced.clear()

    def sync_directory(self, path: Path) -> None:
        """Keep the directory's entries as they are."""
        self._may_fail("sync_directory")
        self._step()
        directory = self._directory(path)
        directory.synced = dict(directory.entries)
        directory.unsynced.clear()

    def make_directory(self, path: Path) -> None:
        """Make a directory in one that is there; a directory that exists already is left alone."""
        self._may_fail("make_directory")
        parent = self._directory(path.parent)
        entry = parent.entries.get(path.name)
        if isinstance(entry, _File):
            raise _error(errno.EEXIST, path)
        if entry is None:
            self._step()
            parent.entries[path.name] = _Directory()
            parent.changed()

    def names(self, path: Path) -> list[str]:
        """The names in a directory, sorted; none when there is no such directory."""
        try:
            return sorted(self._directory(path).entries)
        except FileNotFoundError:
            return []

    def rename(self, source: Path, target: Path) -> None:
        """Give a file another name in its directory, in place of whatever had it."""
        self._may_fail("rename")
        self._step()
        if source.parent != target.parent:
            raise _error(errno.EXDEV, target)
        entries = self._directory(source.parent).entries
        entries[target.name] = entries.pop(source.name)
        self._directory(source.parent).changed()

    def unlink(self, path: Path) -> None:
        """Remove a file."""
        self._may_fail("unlink")
        self._step()
        self._file(path)
        del self._directory(path.parent).entries[path.name]
        self._directory(path.parent).changed()

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory."""
        self._may_fail("remove_directory")
        self._step()
        if self._directory(path).entries:
            raise _error(errno.ENOTEMPTY, path)
        del self._directory(path.parent).entries[path.name]
        self._directory(path.parent).changed()

    def lock(self, file: int) -> bool:
        """Take the file for one opener alone; False when another has it."""
        target = self._opened(file)
        if any(other is target for number, other in self._locked.items() if number != file):
            return False
        self._locked[file] = target
        return True

    def _step(self) -> None:
        self.steps += 1
        if self._steps_left is not None:
            if self._steps_left == 0:
                raise PowerLoss
            self._steps_left -= 1

    def _may_fail(self, operation: str) -> None:
        error = self._failures.pop(operation, None)
        if error is not None:
            raise OSError(error, os.strerror(error))

    def _opened(self, file: int) -> _File:
        if file not in self._open:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return self._open[file]

    def _directory(self, path: Path) -> _Directory:
        directory = self._root
        for name in path.relative_to(path.anchor).parts:
            entry = directory.entries.get(name)
            if not isinstance(entry, _Directory):
                raise _error(errno.ENOENT, path)
            directory = entry
        return directory

    def _file(self, path: Path) -> _File:
        entry = self._directory(path.parent).entries.get(path.name)
        if not isinstance(entry, _File):
            raise _error(errno.ENOENT, path)
        return entry


def _append(file: _File, data: bytes) -> None:
    file.content += data
    file.unsynced.append(data)


def _crash_directory(directory: _Directory, random: Random) -> None:
    kept = random.randint(0, len(directory.unsynced))
    directory.entries = dict(directory.unsynced[kept - 1] if kept else directory.synced)
    directory.synced = dict(directory.entries)
    directory.unsynced.clear()
    for entry in directory.entries.values():
        if isinstance(entry, _Directory):
            _crash_directory(entry, random)
        else:
            _crash_file(entry, random)


def _crash_file(file: _File, random: Random) -> None:
    kept = random.randint(0, len(file.unsynced))
    content = bytearray(file.synced)
    for change in file.unsynced[:kept]:
        if isinstance(change, int):
            del content[change:]
        else:
            content += change
    if kept < len(file.unsynced) and isinstance(torn := file.unsynced[kept], bytes):
        content += _tear(torn, random)
    file.content = content
    file.synced = bytes(content)
    file.unsynced.clear()


def _tear(data: bytes, random: Random) -> bytes:
    """What is left of a write that the crash came upon."""
    reached = random.randint(0, len(data))
    rest = min(len(data) - reached, random.randint(0, 2 * SECTOR_BYTES))
    kept = data[:reached]
    return random.choice((b"", kept, kept + bytes(rest), kept + random.randbytes(rest)))


def _error(code: int, path: Path) -> OSError:
    return OSError(code, os.strerror(code), str(path))
