"""The only door to the disk. A simulated disk that loses what was not synced can stand in for it.

What a caller may rely on after a crash, and nothing more:
- bytes of a file, when `sync_file` returned after they were written;
- the name of a file or directory, when `sync_directory` of the directory that holds it returned after it was
  made, renamed or removed;
- a rename within a directory happens or doesn't; it never leaves half of both.

Methods raise OSError; the callers know what they were doing and wrap it. The one that a caller may answer by
trying again is OpenRefused: a file or directory could not be opened, so nothing was attempted.

After a failed `sync_file`, what had been written since the last one may be readable and yet never reach the
disk: Linux marks the pages clean, and a later sync has nothing to do. Only writing the bytes again, with
`rewrite`, makes a later sync mean something.
"""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

Buffer = bytes | bytearray | memoryview

DIRECTORY_MODE: Final = 0o700
FILE_MODE: Final = 0o600
BUFFERS_PER_WRITE_MAX: Final = 1024
"""Linux takes no more buffers than this in one writev."""


REFUSALS: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM))
"""What the system answers to an open when it has no room for one more."""


class OpenRefused(OSError):
    """The process or the machine has no room for another open file: nothing was attempted."""


@dataclass(frozen=True, slots=True)
class DiskSpace:
    """How large a file system is, and how much of it can still be written; -1 where nobody knows."""

    total_bytes: int
    usable_bytes: int


class Disk(Protocol):
    """Files opened for appending and for reading at any place. Safe to use from several threads."""

    def open(self, path: Path) -> int:
        """Open a file, making it when it is missing; what is written goes to its end."""
        ...

    def duplicate(self, file: int) -> int:
        """Another handle of an open file, to be closed on its own: with it, the file outlives its name."""
        ...

    def close(self, file: int) -> None:
        """Close a file; a lock on it goes with it."""
        ...

    def read(self, file: int, position: int, size_bytes: int) -> bytes:
        """Read from a place in the file; fewer bytes come only where the file ends."""
        ...

    def send(self, file: int, position: int, size_bytes: int, socket: int) -> int:
        """Send from a place in the file what a socket that never waits takes at once.

        Returns how many bytes that was. Fewer than were asked for may also mean that the file ends, that it
        can't be read or that the socket is closed: `read` and whoever writes to the socket will tell.
        """
        ...

    def append(self, file: int, buffers: Sequence[Buffer]) -> None:
        """Write all of the buffers, one after the other, at the end."""
        ...

    def rewrite(self, file: int, position: int, data: Buffer) -> None:
        """Write bytes over those that are there. No other thread may append to the file meanwhile."""
        ...

    def truncate(self, file: int, size_bytes: int) -> None:
        """Cut the file to a size."""
        ...

    def size_bytes(self, file: int) -> int:
        """How long the file is."""
        ...

    def modified_ms(self, path: Path) -> int:
        """When a file was last written, in milliseconds since 1970-01-01 UTC, by the machine's clock."""
        ...

    def sync_file(self, file: int) -> None:
        """Return once all that was written to the file would survive a loss of power."""
        ...

    def sync_directory(self, path: Path) -> None:
        """Return once the directory's entries would survive a loss of power."""
        ...

    def make_directory(self, path: Path) -> None:
        """Make a directory in one that is there; a directory that exists already is left alone."""
        ...

    def names(self, path: Path) -> list[str]:
        """The names in a directory, sorted; none when there is no such directory."""
        ...

    def rename(self, source: Path, target: Path) -> None:
        """Give a file another name, in place of whatever had it."""
        ...

    def replace(self, source: Path, target: Path) -> None:
        """Rename within a directory, and return once that would survive a loss of power.

        After OpenRefused, nothing has been renamed.
        """
        ...

    def unlink(self, path: Path) -> None:
        """Remove a file."""
        ...

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory."""
        ...

    def lock(self, file: int) -> bool:
        """Take the file for this process alone; False when another has it."""
        ...

    def space(self, path: Path) -> DiskSpace:
        """The space of the file system that holds a directory."""
        ...


class SystemDisk:
    """The machine's own disk."""

    def open(self, path: Path) -> int:
        """Open a file, making it when it is missing; what is written goes to its end."""
        with _opening():
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, FILE_MODE)

    def duplicate(self, file: int) -> int:
        """Another handle of an open file, to be closed on its own: with it, the file outlives its name."""
        with _opening():
            return os.dup(file)

    def close(self, file: int) -> None:
        """Close a file; a lock on it goes with it."""
        os.close(file)

    def read(self, file: int, position: int, size_bytes: int) -> bytes:
        """Read from a place in the file; fewer bytes come only where the file ends."""
        data = os.pread(file, size_bytes, position)
        if len(data) == size_bytes or not data:
            return data
        parts = [data]
        remaining = size_bytes - len(data)
        while remaining and (data := os.pread(file, remaining, position + size_bytes - remaining)):
            parts.append(data)
            remaining -= len(data)
        return b"".join(parts)

    def send(self, file: int, position: int, size_bytes: int, socket: int) -> int:
        """Send from a place in the file what a socket that never waits takes at once."""
        sent_bytes = 0
        with suppress(OSError):
            while sent_bytes < size_bytes and (
                sent := os.sendfile(socket, file, position + sent_bytes, size_bytes - sent_bytes)
            ):
                sent_bytes += sent
        return sent_bytes

    def append(self, file: int, buffers: Sequence[Buffer]) -> None:
        """Write all of the buffers, one after the other, at the end."""
        if len(buffers) > BUFFERS_PER_WRITE_MAX:
            buffers = [b"".join(buffers)]
        written = os.writev(file, buffers)
        remaining = sum(map(len, buffers)) - written
        if remaining:
            view = memoryview(b"".join(buffers))
            while view := view[written:]:
                written = os.write(file, view)

    def rewrite(self, file: int, position: int, data: Buffer) -> None:
        """Write bytes over those that are there. No other thread may append to the file meanwhile."""
        # On Linux, a write to a file that is open for appending goes to its end, whatever the position.
        flags = fcntl.fcntl(file, fcntl.F_GETFL)
        fcntl.fcntl(file, fcntl.F_SETFL, flags & ~os.O_APPEND)
        try:
            view = memoryview(data)
            while view:
                written = os.pwrite(file, view, position)
                position += written
                view = view[written:]
        finally:
            fcntl.fcntl(file, fcntl.F_SETFL, flags)

    def truncate(self, file: int, size_bytes: int) -> None:
        """Cut the file to a size."""
        os.ftruncate(file, size_bytes)

    def size_bytes(self, file: int) -> int:
        """How long the file is."""
        return os.fstat(file).st_size

    def modified_ms(self, path: Path) -> int:
        """When a file was last written, in milliseconds since 1970-01-01 UTC, by the machine's clock."""
        return path.stat().st_mtime_ns // 1_000_000

    def sync_file(self, file: int) -> None:
        """Return once all that was written to the file would survive a loss of power."""
        # Where there is no fdatasync (macOS), fsync does more than is needed.
        getattr(os, "fdatasync", os.fsync)(file)

    def sync_directory(self, path: Path) -> None:
        """Return once the directory's entries would survive a loss of power."""
        with _opening():
            directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def make_directory(self, path: Path) -> None:
        """Make a directory in one that is there; a directory that exists already is left alone."""
        path.mkdir(mode=DIRECTORY_MODE, exist_ok=True)

    def names(self, path: Path) -> list[str]:
        """The names in a directory, sorted; none when there is no such directory."""
        try:
            with _opening():
                return sorted(os.listdir(path))  # noqa: PTH208  # Names are wanted, not paths.
        except FileNotFoundError:
            return []

    def rename(self, source: Path, target: Path) -> None:
        """Give a file another name, in place of whatever had it."""
        source.replace(target)

    def replace(self, source: Path, target: Path) -> None:
        """Rename within a directory, and return once that would survive a loss of power."""
        with _opening():
            directory = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            source.replace(target)
            os.fsync(directory)
        finally:
            os.close(directory)

    def unlink(self, path: Path) -> None:
        """Remove a file."""
        path.unlink()

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory."""
        path.rmdir()

    def lock(self, file: int) -> bool:
        """Take the file for this process alone; False when another has it."""
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def space(self, path: Path) -> DiskSpace:
        """The space of the file system that holds a directory."""
        found = os.statvfs(path)
        return DiskSpace(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)


@contextmanager
def _opening() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in REFUSALS:
            raise
        raise OpenRefused(error.errno, error.strerror, error.filename) from error


SYSTEM_DISK: Final = SystemDisk()
