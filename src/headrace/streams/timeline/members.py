"""An aggregate that tells which rows a window has: their numbers.

Where windows have fixed bounds, a row's time tells which it is in. A session is told by its rows alone: one
that is forgotten is not put together with what comes later, even if that begins before its end.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.streams.windows.aggregate import Partials, Starts
from headrace.streams.windows.exact import in_one_piece

_NUMBERS = pa.list_(pa.int64())


@dataclass(frozen=True, slots=True, kw_only=True)
class Members:
    """The numbers of a window's rows, which they have in a column."""

    name: str
    column: str

    def result_type(self, rows: pa.Schema) -> pa.DataType:  # noqa: ARG002 - the same for all rows
        """A list."""
        return _NUMBERS

    def partial_types(self, rows: pa.Schema) -> tuple[pa.DataType, ...]:  # noqa: ARG002 - likewise
        """A list."""
        return (_NUMBERS,)

    def gather(self, rows: pa.Table, starts: Starts) -> Partials:
        """The numbers of each run of rows."""
        return (_lists(np.append(starts, rows.num_rows), in_one_piece(rows[self.column])),)

    def merge(self, partials: Partials, starts: Starts) -> Partials:
        """The numbers of each run of lists."""
        (lists,) = partials
        ends = np.cumsum(pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False))
        offsets = np.append(0, ends)
        return (_lists(np.append(offsets[starts], offsets[-1]), lists.flatten()),)

    def finish(self, partials: Partials) -> pa.Array:
        """As they are."""
        return partials[0]


def _lists(offsets: Starts, numbers: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), numbers)
