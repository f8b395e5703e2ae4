"""Whether a capture is to pause: a file in its directory, so that it holds over restarts."""

from __future__ import annotations

from pathlib import Path


class Pause:
    """The pause of one capture. A paused one publishes nothing and keeps its slot: nothing is lost."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / "paused"

    def is_set(self) -> bool:
        """Whether it is to pause."""
        return self._file.exists()

    def set(self) -> bool:
        """Have it pause, and say whether that is new."""
        is_new = not self.is_set()
        self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._file.touch(mode=0o600)
        return is_new

    def clear(self) -> bool:
        """Have it go on, and say whether that is new."""
        was_set = self.is_set()
        self._file.unlink(missing_ok=True)
        return was_set
