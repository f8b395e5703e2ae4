"""Rows that a store refuses by themselves: they are kept aside, and the rest of their batch is written.

They go to files of the checkpoint (see side_files.py), by which they get to the topic `<pipeline>.refused`,
with their key, themselves as JSON, and why they were refused. What a store had of such a key stays as it was.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa

from headrace.errors import PipelineFailed
from headrace.streams.side_files import SideFiles

REFUSED: Final = "refused"
"""What the files are known by."""
REFUSED_MAX: Final = 10_000
"""How many rows of one part of a batch may be refused: more than that is no matter of single rows."""
SHOWN_MAX: Final = 200
"""How many characters of a key an error shows."""
_SCHEMA: Final = pa.schema([("key", pa.string()), ("row", pa.string()), ("cause", pa.string())])


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusals:
    """What is refused of one part of a batch. Not safe to share between threads."""

    files: SideFiles | None
    """None where there is no checkpoint to keep them in: then the first of them ends the batch."""
    batch_id: int
    part: str
    """A name that the same part has when the batch is written again."""
    _rows: list[dict[str, str | None]] = field(default_factory=list, init=False, repr=False)

    def add(self, key: str, row: str | None, cause: str) -> None:
        """Keep a row aside; `row` is null where it was to be deleted."""
        if self.files is None or len(self._rows) >= REFUSED_MAX:
            many = f"more than {REFUSED_MAX:,} rows of batch {self.batch_id} are refused, the last one"
            told = "a row is refused," if self.files is None else many
            shown = key if len(key) <= SHOWN_MAX else f"{key[:SHOWN_MAX]}..."
            raise PipelineFailed(f"{told} with the key {shown}: {cause}")
        self._rows.append({"key": key, "row": row, "cause": cause})

    def flush(self) -> None:
        """Put what was refused on disk, in the place of what the part had before."""
        if self.files is not None and self._rows:
            self.files.write(self.batch_id, self.part, pa.Table.from_pylist(self._rows, _SCHEMA))


def refused_files(checkpoint: Path | None) -> SideFiles | None:
    """Where the query of this checkpoint, or whatever else has this directory, keeps them."""
    return None if checkpoint is None else SideFiles.of(checkpoint, REFUSED)


def forget_refused(files: SideFiles | None, batch_id: int) -> None:
    """Forget what was refused before a batch was cut off: it is refused again, perhaps in another part."""
    if files is not None:
        shutil.rmtree(files.of_batch(batch_id), ignore_errors=True)
