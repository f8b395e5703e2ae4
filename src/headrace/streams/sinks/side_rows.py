"""Write what has left an operator beside its results: after the results of the same batch, once each.

See side_files.py for how the rows come here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from headrace.failpoints import hit
from headrace.streams.side_files import SideFiles
from headrace.streams.sinks.foreach_batch import Write
from headrace.streams.sinks.gate import Gate

READ_HERE_BYTES_MAX: Final = 2**20
"""Files up to this size are read by the driver itself: a job of Spark's takes longer to begin."""


BATCHES_KEPT: Final = 100
"""As many as Spark keeps reports of."""


class RowWriter(Protocol):
    """Writes rows of a batch to a topic."""

    def write(self, rows: DataFrame, batch_id: int) -> int | None:
        """Write them, unless they were written before."""

    def close(self) -> None:
        """Let go of what an interrupted write has left open."""


@dataclass(slots=True, kw_only=True)
class SideOutput:
    """One operator's rows beside its results, and what writes them."""

    files: SideFiles
    open_writer: Callable[[], RowWriter]
    """Called when there are rows for the first time."""
    written: dict[int, int] = field(default_factory=dict, init=False)
    """How many rows the last batches have had, of those that had any."""
    _writer: RowWriter | None = field(default=None, init=False)
    _gate: Gate = field(default_factory=Gate, init=False)

    def write(self, session: SparkSession, batch_id: int) -> None:
        """Write the batch's rows, and forget those of earlier batches."""
        parts = self.files.parts(batch_id)
        if parts:
            if self._writer is None:
                self._writer = self.open_writer()
            # `close` has not seen a writer that was opened meanwhile.
            self._gate.check()
            self.written[batch_id] = self._writer.write(read_parts(session, parts), batch_id) or 0
            self.written = {number: self.written[number] for number in sorted(self.written)[-BATCHES_KEPT:]}
        hit("pipeline.side.written")
        self.files.forget_all_but(batch_id)

    def close(self) -> None:
        """Let go of what an interrupted write has left open. Nothing is written any more."""
        self._gate.close()
        if self._writer is not None:
            self._writer.close()


def read_parts(session: SparkSession, parts: Sequence[Path]) -> DataFrame:
    """The rows of a batch's files."""
    if sum(part.stat().st_size for part in parts) <= READ_HERE_BYTES_MAX:
        rows = pa.concat_tables([pq.read_table(part, partitioning=None) for part in parts])
        return session.createDataFrame(rows, from_arrow_schema(rows.schema, prefer_timestamp_ntz=True))
    # Not as a URI, in which a space is written as something else.
    return session.read.parquet(*(f"file://{part}" for part in parts))


def with_side_outputs(
    write: Write, close: Callable[[], None], outputs: Sequence[SideOutput]
) -> tuple[Write, Callable[[], None]]:
    """Write batches as `write` does, and what has left operators beside their results after that."""

    def write_all(rows: DataFrame, batch_id: int) -> int | None:
        row_count = write(rows, batch_id)
        for output in outputs:
            output.write(rows.sparkSession, batch_id)
        return row_count

    def close_all() -> None:
        close()
        for output in outputs:
            output.close()

    return write_all, close_all
