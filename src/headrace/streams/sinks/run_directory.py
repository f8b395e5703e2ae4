"""A directory for the files of one run, among those of other runs of the same pipeline.

A run that was replaced, and does not know it yet, must not remove files of the one that has replaced it. So
each has a directory of its own. What earlier runs have left is removed by the next: those that were there
before it began, once it has shut them out. One that is made later may be of a run that is newer still.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDirectory:
    """The directory of one run."""

    home: Path
    """That of the pipeline."""
    id: str = field(default_factory=lambda: uuid.uuid4().hex)

    @property
    def path(self) -> Path:
        """Its own."""
        return self.home / self.id

    @contextmanager
    def beginning(self) -> Iterator[None]:
        """Shut earlier runs out within the block: then what they have left is removed."""
        left_over = list(self.home.iterdir()) if self.home.is_dir() else []
        yield
        for found in left_over:
            shutil.rmtree(found, ignore_errors=True)

    def clear(self) -> None:
        """Make it, empty."""
        self.remove()
        self.path.mkdir(parents=True)

    def remove(self) -> None:
        """The files are not needed any more."""
        shutil.rmtree(self.path, ignore_errors=True)
