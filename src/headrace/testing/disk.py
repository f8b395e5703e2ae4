"""A disk in memory that loses, when the power goes, what was not synced.

It stands in for `headrace.log.disk.SystemDisk` and keeps its promises, and no others:

- Of what was written to a file after its last sync, a crash keeps some first part. The write at which that
  part ends may be torn: cut short anywhere, with zeros or with garbage after the cut.
- A sync of a file that fails marks what was written clean, as Linux does: it can be read, but later syncs
  succeed without saving it, and a crash loses it, unless it is written again.
- Of the names that were made, changed or removed in a directory after its last sync, a crash keeps some first
  part, for each directory on its own. A file whose name is lost is lost, however often it was synced.

Which part, is for the given random numbers to say, so that a seed repeats a crash exactly. `lose_power_after`
stops the program in the middle of whatever it is doing; `fail` makes one operation report an error. An error
that says that there is no room for an open file comes before anything has happened.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Final

from headrace.log.disk import REFUSALS, DiskSpace, OpenRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from random import Random

    from headrace.clock import Clock
    from headrace.log.disk import Buffer

SECTOR_BYTES: Final = 512
_OPENING: Final = ("open", "names", "sync_directory")


class PowerLoss(BaseException):
    """The power goes now. No program can catch that, so this is not an Exception."""


@dataclass(frozen=True, slots=True)
class _Write:
    """Bytes at a place. What lies between there and the end of a shorter file becomes zeros."""

    position: int
    data: bytes

    def apply(self, content: bytearray) -> None:
        content.extend(bytes(max(self.position - len(content), 0)))
        content[self.position : self.position + len(self.data)] = self.data


@dataclass(frozen=True, slots=True)
class _Cut:
    """A file that is made as long as this."""

    size_bytes: int

    def apply(self, content: bytearray) -> None:
        content.extend(bytes(max(self.size_bytes - len(content), 0)))
        del content[self.size_bytes :]


@dataclass(slots=True)
class _File:
    content: bytearray = field(default_factory=bytearray)
    """What programs read."""
    synced: bytes = b""
    """What the disk has."""
    unsynced: list[_Write | _Cut] = field(default_factory=list)
    """What the next sync has to do."""
    modified_ms: int = 0

    def change(self, change: _Write | _Cut, now_ms: int) -> None:
        self.modified_ms = now_ms
        change.apply(self.content)
        self.unsynced.append(change)

    def sync(self, count: int) -> None:
        content = bytearray(self.synced)
        for change in self.unsynced[:count]:
            change.apply(content)
        self.synced = bytes(content)
        del self.unsynced[:count]


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

    def __init__(self, clock: Clock | None = None) -> None:
        """Without a clock, all files were written in 1970."""
        self._clock = clock
        self._root = _Directory()
        self._open: dict[int, _File] = {}
        self._locked: dict[int, _File] = {}
        self._numbers = count(3)
        self._steps_left: int | None = None
        self._failures: dict[str, tuple[int, int]] = {}
        self.steps = 0
        self.meanwhile: Callable[[], None] = lambda: None
        """Called while a file is synced: what is written then is not kept by that sync."""
        self.refusal: BaseException | None = None
        """Raised whatever is asked, while there is one."""

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

    def fail(self, operation: str, error: int = errno.EIO, *, after: int = 0) -> None:
        """Make the call of a method of this class that comes after so many more of them raise OSError.

        Of `open`, `names` and `sync_directory`, those of REFUSALS are raised as OpenRefused.
        """
        self._failures[operation] = (error, after)

    def heal(self) -> None:
        """Forget the failures and the loss of power that were asked for and have not been met yet."""
        self._failures.clear()
        self._steps_left = None

    @property
    def has_failed(self) -> bool:
        """Whether all failures that were asked for have been met."""
        return not self._failures

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

    def duplicate(self, file: int) -> int:
        """Another handle of an open file, to be closed on its own."""
        self._may_fail("duplicate")
        number = next(self._numbers)
        self._open[number] = self._opened(file)
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

    def send(self, file: int, position: int, size_bytes: int, socket: int) -> int:
        """Send from a place in the file what a socket that never waits takes at once."""
        with suppress(OSError):
            return os.write(socket, self.read(file, position, size_bytes))
        return 0

    def append(self, file: int, buffers: Sequence[Buffer]) -> None:
        """Write all of the buffers, one after the other, at the end."""
        target = self._opened(file)
        data = b"".join(buffers)
        if self._steps_left == 0 or self._fails_now("append"):
            _append(target, data[: len(data) // 2], self._now_ms())
        self._may_fail("append")
        self._step()
        _append(target, data, self._now_ms())

    def rewrite(self, file: int, position: int, data: Buffer) -> None:
        """Write bytes over those that are there."""
        self._may_fail("rewrite")
        self._step()
        self._opened(file).change(_Write(position, bytes(data)), self._now_ms())

    def truncate(self, file: int, size_bytes: int) -> None:
        """Cut the file to a size."""
        self._may_fail("truncate")
        self._step()
        self._opened(file).change(_Cut(size_bytes), self._now_ms())

    def size_bytes(self, file: int) -> int:
        """How long the file is."""
        return len(self._opened(file).content)

    def modified_ms(self, path: Path) -> int:
        """When a file was last written."""
        return self._file(path).modified_ms

    def sync_file(self, file: int) -> None:
        """Keep all that was written to the file before the call and after the last sync, failed or not."""
        target = self._opened(file)
        if self._fails_now("sync_file"):
            target.unsynced.clear()
        self._may_fail("sync_file")
        self._step()
        count = len(target.unsynced)
        self.meanwhile()
        target.sync(count)

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
        self._may_fail("names")
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

    def replace(self, source: Path, target: Path) -> None:
        """Rename within a directory and keep that; a refusal to open the directory comes before both."""
        if self._failures.get("sync_directory", (0, 1))[0] in REFUSALS and self._fails_now("sync_directory"):
            self._may_fail("sync_directory")
        self.rename(source, target)
        self.sync_directory(target.parent)

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

    def space(self, path: Path) -> DiskSpace:
        """Memory has no size that would be worth telling."""
        self._directory(path)
        return DiskSpace(-1, -1)

    def _now_ms(self) -> int:
        return 0 if self._clock is None else self._clock.now_ms()

    def _step(self) -> None:
        self.steps += 1
        if self._steps_left is not None:
            if self._steps_left == 0:
                raise PowerLoss
            self._steps_left -= 1

    def _may_fail(self, operation: str) -> None:
        if self.refusal is not None:
            raise self.refusal
        if operation not in self._failures:
            return
        error, after = self._failures.pop(operation)
        if after:
            self._failures[operation] = (error, after - 1)
            return
        refused = error in REFUSALS and operation in _OPENING
        raise (OpenRefused if refused else OSError)(error, os.strerror(error))

    def _fails_now(self, operation: str) -> bool:
        return self._failures.get(operation, (0, 1))[1] == 0

    def _opened(self, file: int) -> _File:
        if self.refusal is not None:
            raise self.refusal
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


def _append(file: _File, data: bytes, now_ms: int) -> None:
    file.change(_Write(len(file.content), data), now_ms)


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
        change.apply(content)
    if kept < len(file.unsynced) and isinstance(torn := file.unsynced[kept], _Write):
        _tear(torn, len(content), random).apply(content)
    file.content = content
    file.synced = bytes(content)
    file.unsynced.clear()


def _tear(write: _Write, size_bytes: int, random: Random) -> _Write:
    """What is left of a write that the crash came upon. What it did not reach of the file stays as it was."""
    data = write.data
    reached = random.randint(0, len(data))
    kept = data[:reached]
    if write.position + reached < size_bytes:
        return _Write(write.position, kept)
    rest = min(len(data) - reached, random.randint(0, 2 * SECTOR_BYTES))
    torn = random.choice((b"", kept, kept + bytes(rest), kept + random.randbytes(rest)))
    return _Write(write.position, torn)


def _error(code: int, path: Path) -> OSError:
    return OSError(code, os.strerror(code), str(path))
