"""Step through the micro-batches of a stream once more, in one step: what it gave is then given again.

Which micro-batch a row was in is told by its column `_batch`. Each is stepped with its own rows, and with how
far the sources came in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from headrace.streams.buckets.logic import Arrivals, Logic, SourceProgress, Step, Tables
from headrace.streams.windows.runs import stacked

BATCH: Final = "_batch"


@dataclass(frozen=True, slots=True, kw_only=True)
class ByArrival:
    """Steps a logic through micro-batches that are known."""

    logic: Logic
    progress: Mapping[int, tuple[SourceProgress, ...]]
    """By the number of the micro-batch."""
    ends: Mapping[int, Mapping[str, int]]

    def output_schemas(self, rows: pa.Schema) -> Mapping[str, pa.Schema]:
        """Those of the logic."""
        return self.logic.output_schemas(rows)

    def step(self, state: Tables, arrivals: Arrivals) -> Step:
        """Step through all of them; nothing is kept for a step after it."""
        kept = dict(state)
        outputs: dict[str, list[pa.Table]] = {}
        for number in sorted(self.progress):
            own = arrivals.rows.filter(pc.equal(arrivals.rows[BATCH], number))
            told = Arrivals(rows=own, progress=self.progress[number], ends=self.ends.get(number))
            tables = _Read(kept)
            step = self.logic.step(tables, told)
            kept = {name: table for name, table in kept.items() if name not in tables.read}
            kept |= step.state
            for name, table in step.outputs.items():
                outputs.setdefault(name, []).append(table)
        return Step(state={}, outputs={name: stacked(tables) for name, tables in outputs.items()})


class _Read(Mapping[str, pa.Table]):
    """Tables of a state, and which of them were read."""

    def __init__(self, tables: Mapping[str, pa.Table]) -> None:
        self._tables = tables
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> pa.Table:
        table = self._tables[name]
        self.read.add(name)
        return table

    def __iter__(self) -> Iterator[str]:
        return iter(self._tables)

    def __len__(self) -> int:
        return len(self._tables)
