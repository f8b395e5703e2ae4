"""Change a search index by the files of a batch, in one commit: the driver's part (see sinks/staged.py)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.types import StructType

from headrace.errors import StorageError
from headrace.search import layout
from headrace.search.fields import ROW, Columns
from headrace.search.keys import key_text
from headrace.streams.side_files import SideFiles
from headrace.streams.sinks.index_rows import file_schema
from headrace.streams.sinks.ledger import Batch, taken_over
from headrace.streams.sinks.lost import lost
from headrace.streams.sinks.records import DELETE_COLUMN
from headrace.streams.sinks.refused import Refusals, forget_refused
from headrace.streams.sinks.run_ledger import GONE, Ledger, begun, is_written
from headrace.streams.sinks.search import generation
from headrace.streams.sinks.search.documents import document
from headrace.streams.sinks.search.generation import Changes, Generation

KEY_BYTES_MAX: Final = 65_530
"""The longest term that tantivy keeps; it leaves longer ones out without a word."""
ROWS_MAX: Final = 1_000
"""How many rows of a file are in memory at once."""
_PART: Final = "rows"


class IndexApplier:
    """Writes to one index for one run of a pipeline. Not safe to share between threads."""

    def __init__(self, path: Path, columns: Columns, pipeline: str, refused: SideFiles | None) -> None:
        """The index, or a generation of it that a replay builds."""
        self._path = path
        self._columns = columns
        self._pipeline = pipeline
        self._refused = refused
        self._run: int | None = None

    def settle(self, schema: StructType) -> pa.Schema:
        """Make the index if it is missing, or raise where it was made for other columns."""
        generation.check_names(self._columns, pipeline=self._pipeline)
        found = generation.ensure(self._path, self._columns).columns()
        generation.refuse_changed(found, self._columns, path=self._path, pipeline=self._pipeline)
        return file_schema(schema)

    def begin_run(self, batch: Batch) -> None:
        """Shut out all earlier runs."""
        with self._generation(batch).writing() as changes:
            self._refuse_swapped(changes)
            ledger = begun(changes.ledger(self._pipeline), batch, place=self._place)
            changes.commit(self._pipeline, ledger)
        self._run = ledger.run

    def is_written(self, batch: Batch) -> bool:
        """Whether the batch is there."""
        return self._is_written(self._generation(batch).ledger(self._pipeline), batch)

    def apply(self, batch: Batch, files: Sequence[Path]) -> None:
        """Write the files' rows and the ledger's entry, in one commit."""
        with self._generation(batch).writing() as changes:
            self._refuse_swapped(changes)
            ledger = changes.ledger(self._pipeline)
            # Meanwhile another run may have begun.
            if self._is_written(ledger, batch):
                return
            assert ledger is not None, "else it is lost"
            self._change(changes, batch, files)
            changes.commit(self._pipeline, ledger.after(batch))

    def close(self) -> None:
        """Nothing is left open: a writer lives as long as a batch is applied."""

    @property
    def _place(self) -> str:
        return f"the search index {self._path}"

    def _generation(self, batch: Batch) -> Generation:
        found = layout.place(self._path)
        if found is None:
            raise lost(batch.pipeline, self._place, GONE)
        return Generation(path=found)

    def _refuse_swapped(self, changes: Changes) -> None:
        """Raise if another generation counts by now."""
        if layout.place(self._path) != changes.path:
            raise taken_over(self._pipeline)

    def _is_written(self, ledger: Ledger | None, batch: Batch) -> bool:
        assert self._run is not None, "a run begins before its first batch"
        return is_written(ledger, batch, self._run, place=self._place)

    def _change(self, changes: Changes, batch: Batch, files: Sequence[Path]) -> None:
        forget_refused(self._refused, batch.batch_id)
        refusals = Refusals(files=self._refused, batch_id=batch.batch_id, part=_PART)
        for row in _rows(files):
            key = key_text([row[name] for name in self._columns.key])
            is_long = len(key.encode()) > KEY_BYTES_MAX
            if row.get(DELETE_COLUMN):
                # Of a key that is too long there is nothing to delete.
                if not is_long:
                    changes.delete(key)
            elif is_long:
                cause = f"its key has more than the {KEY_BYTES_MAX:,} bytes that a search index takes"
                refusals.add(key, row[ROW], cause)
            else:
                self._put(changes, refusals, key, row[ROW])
        refusals.flush()

    def _put(self, changes: Changes, refusals: Refusals, key: str, row: str) -> None:
        values = document(self._columns, key, row)
        try:
            made = changes.document(values)
        except Exception as error:  # noqa: BLE001 - tantivy raises nothing more special for some values
            refusals.add(key, row, f"the search index does not take it: {error}")
        else:
            changes.put(key, made)


def _rows(files: Sequence[Path]) -> Iterator[dict[str, Any]]:
    """The rows of all files, each key once."""
    for path in files:
        try:
            with pq.ParquetFile(path) as file:
                for rows in file.iter_batches(ROWS_MAX):
                    yield from rows.to_pylist()
        except OSError as error:
            raise StorageError(
                f"rows of a batch can't be read from {path}: {error}. Perhaps another run of the pipeline "
                "has removed them"
            ) from error
