"""Rows that are kept in runs: each is written once, ordered by the hash of the key, and found without reading
all of them.

    <name>.runs              the runs, the oldest first: `number`, `rows`, and their `oldest_us`, `newest_us`
    <name>.<number>.index    of each row of a run its `_hash` and `_time_us`; rows are in the order of both
    <name>.<number>.marks    of each row whether it is marked; only there once one is
    <name>.<number>.<piece>  the rows themselves, PIECE_ROWS in each piece

A micro-batch appends a run and touches no other, so what it costs does not depend on how much is kept, apart
from the indices, which are small. Runs of about the same size become one when there are FAN_OUT of them:
always those that lie one behind the other, so that what is in a later run came later. What is not wanted any
more is left out then, or when it is half of a run, or, if it is all, at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.streams.buckets.logic import Tables
from headrace.streams.joins.probe import Index, order_of
from headrace.streams.windows.exact import in_one_piece
from headrace.streams.windows.kept_state import check_types
from headrace.streams.windows.runs import Flags, Indices, stacked

PIECE_ROWS: Final = 8192
FAN_OUT: Final = 4

_RUNS: Final = pa.schema(
    {"number": pa.int64(), "rows": pa.int64(), "oldest_us": pa.int64(), "newest_us": pa.int64()}
)


class Pages:
    """The tables of a state, for one step: which were looked at, and which are new or gone."""

    def __init__(self, state: Tables) -> None:
        self._state = state
        self._after: dict[str, pa.Table] = {}

    def get(self, name: str) -> pa.Table | None:
        """A table as it is now."""
        if name not in self._after:
            table = self._state.get(name)
            if table is None:
                return None
            self._after[name] = table
        return self._after[name]

    def put(self, name: str, table: pa.Table) -> None:
        """Write a table."""
        self._after[name] = table

    def remove(self, name: str) -> None:
        """Remove a table. It is read, because what was not looked at stays."""
        self._state.get(name)
        self._after.pop(name, None)

    @property
    def tables(self) -> Tables:
        """What the step has looked at or made, and is there after it."""
        return self._after


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run."""

    number: int
    rows: int
    oldest_us: int
    newest_us: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRows:
    """Rows, as runs are made of them."""

    rows: pa.Table
    hashes: Indices
    times_us: Indices
    marks: Flags

    def __len__(self) -> int:
        return len(self.hashes)

    @property
    def index(self) -> Index:
        """Where they are found, if they are in order."""
        return Index(self.hashes, self.times_us)

    def columns(self, places: Indices, names: Sequence[str] | None) -> pa.Table:
        """The rows at these places, with all columns or some."""
        rows = self.rows if names is None else self.rows.select(list(names))
        return rows.take(pa.array(places))

    def take(self, which: Indices) -> RunRows:
        """Some of them, in this order."""
        return RunRows(
            rows=self.rows.take(pa.array(which)),
            hashes=self.hashes[which],
            times_us=self.times_us[which],
            marks=self.marks[which],
        )

    def ordered(self) -> RunRows:
        """The same in the order of an index."""
        return self.take(order_of(self.hashes, self.times_us))


Read = Callable[[Indices, Sequence[str] | None], pa.Table]
"""Reads rows by their places, with all columns or some."""
Wanted = Callable[[RunRows, bool], Flags]
"""Which rows, in the order of an index, are to be kept; and whether there is none before them."""


class Runs:
    """The runs of one name, for one step."""

    def __init__(self, pages: Pages, name: str, schema: pa.Schema) -> None:
        self._pages = pages
        self._name = name
        self._schema = schema
        self._runs = _read(pages.get(f"{name}.runs"))
        self._is_changed = False
        self._marks: dict[int, Flags] = {}

    def __iter__(self) -> Iterator[Run]:
        return iter(list(self._runs))

    def index(self, run: Run) -> Index:
        """Where the rows of a run are found."""
        table = self._pages.get(self._page(run, "index"))
        assert table is not None, "a run has an index"
        return Index(*(np.asarray(in_one_piece(table[name])) for name in ("_hash", "_time_us")))

    def marks(self, run: Run) -> Flags:
        """Which rows of a run are marked. To be changed in place, and then given to `mark`."""
        if run.number not in self._marks:
            table = self._pages.get(self._page(run, "marks"))
            self._marks[run.number] = (
                np.zeros(run.rows, dtype=bool)
                if table is None
                else np.array(in_one_piece(table["_is_marked"]), dtype=bool)
            )
        return self._marks[run.number]

    def mark(self, run: Run, places: Indices) -> Indices:
        """Mark rows of a run; which of them were not marked before, each once."""
        marks = self.marks(run)
        new = np.unique(places[~marks[places]])
        if len(new):
            marks[new] = True
            self._pages.put(self._page(run, "marks"), pa.table({"_is_marked": pa.array(marks)}))
        return new

    def rows(self, run: Run, places: Indices, names: Sequence[str] | None = None) -> pa.Table:
        """Rows of a run, by their places, with all columns or some; one that was not kept then is null."""
        names = self._schema.names if names is None else list(names)
        pieces, inverse = np.unique(places // PIECE_ROWS, return_inverse=True)
        if not len(pieces):
            return self.rows_of_none().select(names)
        read = [self._piece(run, int(piece)).select(names) for piece in pieces]
        starts = np.append(0, np.cumsum([len(each) for each in read]))[:-1]
        return stacked(read).take(pa.array(starts[inverse] + places % PIECE_ROWS))

    def reader(self, run: Run) -> Read:
        """Reads rows of a run."""
        return lambda places, names: self.rows(run, places, names)

    def rows_of_none(self) -> pa.Table:
        """No rows, with their columns."""
        return self._schema.empty_table()

    def append(self, added: RunRows) -> None:
        """Keep more rows; they are in the order of an index."""
        if not len(added):
            return
        number = max((run.number for run in self._runs), default=-1) + 1
        self._runs.append(self._write(number, added))
        self._is_changed = True

    def remove(self, run: Run) -> None:
        """Forget a run."""
        for part in ("index", "marks", *range(-(-run.rows // PIECE_ROWS))):
            self._pages.remove(self._page(run, part))
        self._marks.pop(run.number, None)
        self._runs.remove(run)
        self._is_changed = True

    def tidy(self, wanted: Wanted) -> None:
        """Make few runs of many."""
        while (start := _to_merge([run.rows for run in self._runs])) is not None:
            self.rewrite(self._runs[start:], wanted)

    def rewrite(self, runs: list[Run], wanted: Wanted) -> None:
        """Make one run of some that lie one behind the other, of the rows that are wanted."""
        place = self._runs.index(runs[0])
        parts = [self._all(run) for run in runs]
        merged = RunRows(
            rows=stacked([part.rows for part in parts]),
            hashes=np.concatenate([part.hashes for part in parts]),
            times_us=np.concatenate([part.times_us for part in parts]),
            marks=np.concatenate([part.marks for part in parts]),
        ).ordered()
        kept = merged.take(np.flatnonzero(wanted(merged, place == 0)))
        for run in runs:
            self.remove(run)
        if len(kept):
            # The number of the last, so that numbers stay in the order of the runs.
            self._runs.insert(place, self._write(runs[-1].number, kept))

    def finish(self) -> None:
        """Write which runs there are, if that has changed."""
        if self._is_changed:
            rows = [
                {
                    "number": run.number,
                    "rows": run.rows,
                    "oldest_us": run.oldest_us,
                    "newest_us": run.newest_us,
                }
                for run in self._runs
            ]
            self._pages.put(f"{self._name}.runs", pa.Table.from_pylist(rows, schema=_RUNS))

    def _all(self, run: Run) -> RunRows:
        index = self.index(run)
        return RunRows(
            rows=self.rows(run, np.arange(run.rows)),
            hashes=index.hashes,
            times_us=index.times_us,
            marks=self.marks(run),
        )

    def _write(self, number: int, added: RunRows) -> Run:
        run = Run(
            number=number,
            rows=len(added),
            oldest_us=int(added.times_us.min()),
            newest_us=int(added.times_us.max()),
        )
        index = {"_hash": pa.array(added.hashes), "_time_us": pa.array(added.times_us)}
        self._pages.put(self._page(run, "index"), pa.table(index))
        self._marks.pop(number, None)
        if added.marks.any():
            self._pages.put(self._page(run, "marks"), pa.table({"_is_marked": pa.array(added.marks)}))
        for piece, start in enumerate(range(0, len(added), PIECE_ROWS)):
            self._pages.put(self._page(run, piece), added.rows.slice(start, PIECE_ROWS).combine_chunks())
        return run

    def _piece(self, run: Run, piece: int) -> pa.Table:
        table = self._pages.get(self._page(run, piece))
        assert table is not None, "a run has all its pieces"
        check_types(table, self._schema)
        kept = table.replace_schema_metadata(None)
        if kept.schema.names == self._schema.names:
            return kept
        columns = [
            kept[field.name] if field.name in kept.schema.names else pa.nulls(len(kept), field.type)
            for field in self._schema
        ]
        return pa.Table.from_arrays(columns, schema=self._schema)

    def _page(self, run: Run, part: str | int) -> str:
        return f"{self._name}.{run.number}.{part}"


def _to_merge(sizes: list[int]) -> int | None:
    """From which run on all are to become one; None where there are few, or they differ in size."""
    for start in range(len(sizes) - FAN_OUT, -1, -1):
        if sizes[start] <= sum(sizes[start + 1 :]):
            return start
    return None


def _read(table: pa.Table | None) -> list[Run]:
    return [] if table is None else [Run(**row) for row in table.select(_RUNS.names).to_pylist()]
