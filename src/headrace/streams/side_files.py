"""Rows that leave an operator by another way than its results, on their way to a topic.

    CHECKPOINT/side/<operator>/<batch>/<part>.parquet

The tasks of a batch write them; once the batch's results are written, the driver writes them to their topic,
with a ledger of its own. A task that runs again writes the same rows to the same file. A batch whose
results were written before a crash is not computed again, and its files are still there: those of a batch
are removed only when a later one is through.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

SIDE_DIR: Final = "side"


@dataclass(frozen=True, slots=True, kw_only=True)
class SideFiles:
    """The files of one operator. Travels to the executors, which see the checkpoint's directory as well."""

    directory: str

    @classmethod
    def of(cls, checkpoint: Path, operator: str) -> SideFiles:
        """Those of the operator in the query's checkpoint."""
        return cls(directory=str(checkpoint / SIDE_DIR / operator))

    def write(self, batch_id: int, part: str, rows: pa.Table) -> None:
        """Keep a part's rows of a batch, in the place of what was kept there before; on disk on return."""
        directory = self.of_batch(batch_id)
        directory.mkdir(parents=True, exist_ok=True)
        unfinished = directory / f".{part}.{os.getpid()}.tmp"
        with unfinished.open("wb") as file:
            pq.write_table(rows, file)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(directory / f"{part}.parquet")
        _sync_directory(directory)

    def of_batch(self, batch_id: int) -> Path:
        """The directory of a batch's files; it is there only if there are any."""
        return Path(self.directory) / str(batch_id)

    def parts(self, batch_id: int) -> list[Path]:
        """The files of a batch."""
        return sorted(self.of_batch(batch_id).glob("*.parquet"))

    def forget_all_but(self, batch_id: int) -> None:
        """Remove the files of other batches: they have been written."""
        for directory in self._batches():
            if directory.name != str(batch_id):
                shutil.rmtree(directory)

    def _batches(self) -> Iterator[Path]:
        home = Path(self.directory)
        if home.is_dir():
            yield from (each for each in home.iterdir() if each.is_dir())


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
