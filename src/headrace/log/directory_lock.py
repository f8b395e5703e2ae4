"""The lock of a data directory: one process has it open at a time.

The file `lock` holds the pid of whoever has it. The lock goes when the process ends, however it ends.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from headrace.errors import DataDirectoryInUse

if TYPE_CHECKING:
    from pathlib import Path

    from headrace.log.disk import Disk

PID_BYTES_MAX: Final = 20


class DirectoryLock:
    """The lock of one data directory."""

    def __init__(self, data_dir: Path, disk: Disk) -> None:
        self._data_dir = data_dir
        self._disk = disk
        self._file: int | None = None

    @property
    def is_held(self) -> bool:
        """Whether this process has the directory."""
        return self._file is not None

    def take(self) -> None:
        """Take the directory, or raise DataDirectoryInUse."""
        file = self._disk.open(self._data_dir / "lock")
        if not self._disk.lock(file):
            pid = self._disk.read(file, 0, PID_BYTES_MAX).decode(errors="replace").strip()
            self._disk.close(file)
            raise DataDirectoryInUse(
                f"the data directory {self._data_dir} is in use by process {pid or 'unknown'}: "
                "stop that one, or choose another directory"
            )
        self._file = file
        self._disk.truncate(file, 0)
        self._disk.append(file, [f"{os.getpid()}\n".encode()])

    def release(self) -> None:
        """Let go of the directory. Harmless when it is not held."""
        if self._file is not None:
            self._disk.close(self._file)
            self._file = None
