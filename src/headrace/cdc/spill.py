"""Large transactions on disk while they are open: one file each, deleted when they end.

What lies here is a copy of what the server still has, so nothing is synced, and whatever a process that
died has left is deleted by the next one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from headrace.errors import StorageError

READ_BYTES_MAX: Final = 1024 * 1024
_SUFFIX: Final = ".spill"


class DiskSpill:
    """Implements transactions.Spill in a directory of its own. Belongs to one thread."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            for left in directory.glob(f"*{_SUFFIX}"):
                left.unlink()
        except OSError as cause:
            raise StorageError(f"{directory} can't be used for large transactions: {cause}") from cause

    def append(self, xid: int, data: bytes) -> None:
        """Put these bytes behind those that it has."""
        try:
            with self._path(xid).open("ab", buffering=0) as file:
                _write_all(file.fileno(), data)
        except OSError as cause:
            raise self._failed("be written to", xid, cause) from cause

    def truncate(self, xid: int, size_bytes: int) -> None:
        """Keep that many of its bytes."""
        try:
            os.truncate(self._path(xid), size_bytes)
        except OSError as cause:
            raise self._failed("be cut", xid, cause) from cause

    def read(self, xid: int) -> Iterator[bytes]:
        """All its bytes, in pieces of bounded size."""
        try:
            with self._path(xid).open("rb", buffering=0) as file:
                while chunk := file.read(READ_BYTES_MAX):
                    yield chunk
        except OSError as cause:
            raise self._failed("be read", xid, cause) from cause

    def discard(self, xid: int) -> None:
        """Forget all its bytes."""
        try:
            self._path(xid).unlink()
        except OSError as cause:
            raise self._failed("be deleted", xid, cause) from cause

    def _path(self, xid: int) -> Path:
        return self._directory / f"{xid}{_SUFFIX}"

    def _failed(self, what: str, xid: int, cause: OSError) -> StorageError:
        return StorageError(
            f"{self._path(xid)}, a transaction that is too large for memory, can't {what}: {cause}. "
            "Make room on the disk, and start the capture again: nothing is lost"
        )


def _write_all(file: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]
