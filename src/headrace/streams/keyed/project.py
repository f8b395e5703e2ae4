"""The state of each stream of events: a fold, kept by key and gone on with in each micro-batch.

What is folded, left out and refused is said in folded_rows.py. Results are the streams that have changed: the
key, `version`, and the columns that are made of the state. The table that is kept has a row for each stream:
key, `_version`, `_state`.

A row of the type STATE is no event: it is what another has folded of the stream already (see prefold.py), as
`write_state` writes it, at its version.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import PipelineError
from headrace.streams.buckets.logic import RESULTS, Arrivals, Step, Tables
from headrace.streams.keyed.calling import place
from headrace.streams.keyed.fields import column_of
from headrace.streams.keyed.folded_rows import DATA, TYPE, VERSION, Fold, FoldedRows
from headrace.streams.windows.keys import key_codes

FOLDED: Final = "folded"
REPEATS: Final = "repeats"
STATE: Final = "\0state"
"""The type of rows that are states. No event can have it, because no text of PostgreSQL can."""
_VERSION: Final = "_version"
_STATE: Final = "_state"

Streams = Mapping[Any, tuple[int, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """The logic."""

    by: str
    key: pa.DataType
    fold: Fold
    returns: pa.Schema
    row: Callable[[Any], Mapping[str, Any]] | None = None
    """Makes columns of a state; its own fields, where nothing is said."""

    def output_schemas(self, rows: pa.Schema) -> Mapping[str, pa.Schema]:  # noqa: ARG002 - a key has its type
        """The key, the version, and what is made of the state."""
        columns = [pa.field(self.by, self.key), pa.field(VERSION, pa.int64()), *self.returns]
        return {RESULTS: pa.schema(columns)}

    def step(self, state: Tables, arrivals: Arrivals) -> Step:
        """Fold one bucket's events."""
        kept = state.get(FOLDED)
        if kept is None:
            kept = self._kept({})
        rows = arrivals.rows
        if not len(rows):
            return Step(state={} if arrivals.is_end else {FOLDED: kept})
        kept_codes, codes = key_codes([kept, rows], [self.by])
        is_touched = pc.is_in(pa.array(kept_codes), pa.array(codes))
        changed, repeat_count = self._changed(kept.filter(is_touched), rows)
        results = {RESULTS: self._results(changed)}
        counts = {REPEATS: repeat_count} if repeat_count else {}
        if arrivals.is_end:
            return Step(state={}, outputs=results, counts=counts)
        table = pa.concat_tables([kept.filter(pc.invert(is_touched)), self._kept(changed)])
        return Step(state={FOLDED: table.combine_chunks()}, outputs=results, counts=counts)

    def _changed(self, touched: pa.Table, rows: pa.Table) -> tuple[Streams, int]:
        """The streams that have rows, as they are then, and how many events were repeats."""
        is_state = pc.equal(rows[TYPE], STATE)
        before = self._read(touched, _VERSION, _STATE)
        if pc.any(is_state).as_py():
            given = self._read(rows.filter(is_state), VERSION, DATA)
            before = {**before, **given}
            rows = rows.filter(pc.fill_null(pc.invert(is_state), fill_value=True))
            if not len(rows):
                return before, 0
        folded = FoldedRows(self.fold, self.by, rows, before)
        for name, (reached, found) in folded.gaps.items():
            raise PipelineError(
                f"events of {name!r} are missing: version {found} follows on {reached}. Read the topic from "
                "its beginning, under another name of the pipeline"
            )
        return {**before, **folded.after}, folded.repeat_count

    def _read(self, table: pa.Table, version: str, state: str) -> dict[Any, tuple[int, Any]]:
        """By stream, version and state; of several, the latest."""
        found: dict[Any, tuple[int, Any]] = {}
        columns = (table[name].to_pylist() for name in (self.by, version, state))
        for name, number, data in zip(*columns, strict=True):
            if name not in found or found[name][0] < number:
                found[name] = (number, self.fold.read_state(data))
        return found

    def _kept(self, streams: Streams) -> pa.Table:
        write = self.fold.write_state
        return pa.table(
            {
                self.by: pa.array(streams.keys(), self.key),
                _VERSION: pa.array([version for version, _ in streams.values()], pa.int64()),
                _STATE: pa.array([write(state) for _, state in streams.values()], pa.binary()),
            }
        )

    def _results(self, streams: Streams) -> pa.Table:
        make = self.row or self.fold.columns
        made = [make(state) for _, state in streams.values()]
        columns = {
            self.by: pa.array(streams.keys(), self.key),
            VERSION: pa.array([version for version, _ in streams.values()], pa.int64()),
        }
        for field in self.returns:
            values = [each.get(field.name) for each in made]
            columns[field.name] = column_of(values, field.type, f"{place(make)}: {field.name}")
        return pa.table(columns)
