"""In batch, a task folds what it reads before anything is sent elsewhere.

Most often all events of a stream lie in one partition of the topic, from the first on. A task then makes one
row of them, a state, and the rest of the way has as many rows as there are streams, not events. What does
not begin with the first version, because the stream's beginning is in another task, is passed on as it is:
whoever puts the rows of a stream together (see project.py) gets the same answer from both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headrace.streams.keyed.folded_rows import DATA, SCHEMA_VERSION, TYPE, VERSION, Fold, FoldedRows
from headrace.streams.keyed.project import STATE

ROWS_MAX: Final = 250_000
"""So many rows are folded at once: many, so that a stream has several, and few enough for memory."""
STATES_MAX: Final = 50_000
"""So many states are sent at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefold:
    """Folds the rows of a task. Travels to the workers."""

    by: str
    fold: Fold
    schema: pa.Schema

    def run(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """States of streams, and events that none of them has."""
        streams: dict[Any, tuple[int, Any]] = {}
        for rows in _gathered(batches, self.schema):
            folded = FoldedRows(self.fold, self.by, rows, streams)
            streams.update({name: each for name, each in folded.after.items() if each[0]})
            if folded.gaps:
                names = pa.array(list(folded.gaps), rows.schema.field(self.by).type)
                left = rows.filter(pc.is_in(rows[self.by], names))
                yield from left.cast(self.schema).to_batches()
        names = list(streams)
        for start in range(0, len(names), STATES_MAX):
            yield self._states({name: streams[name] for name in names[start : start + STATES_MAX]})

    def _states(self, streams: dict[Any, tuple[int, Any]]) -> pa.RecordBatch:
        count = len(streams)
        columns = {
            self.by: list(streams),
            VERSION: [version for version, _ in streams.values()],
            TYPE: [STATE] * count,
            SCHEMA_VERSION: [0] * count,
            DATA: [self.fold.write_state(state) for _, state in streams.values()],
        }
        return pa.RecordBatch.from_pydict(columns, self.schema)


def _gathered(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    held: list[pa.RecordBatch] = []
    count = 0
    for batch in batches:
        held.append(batch)
        count += batch.num_rows
        if count >= ROWS_MAX:
            yield pa.Table.from_batches(held).cast(schema)
            held, count = [], 0
    if count:
        yield pa.Table.from_batches(held).cast(schema)
