"""What tells matches apart whose rows are equal in all columns, so that each has an id of its own.

In the order of event time it is a number: how many equal rows of the key lie before the first row of the
match. Rows of the same time come up together, so the number depends on the rows alone. By arrival, equal rows
may come in any micro-batch: there it is the place of the first row in the log, if rows tell it. Each is the
same live, again after a crash, and in batch over the same log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.streams.topic import METADATA_COLUMN
from headrace.streams.windows.exact import values_of
from headrace.streams.windows.keys import key_codes
from headrace.streams.windows.runs import Indices, run_lengths, starts_of_changes

APART: Final = "_match_apart"
"""The column that tells such matches apart; NULL for the first of them."""


def places_in_log(rows: pa.Table) -> pa.Array:
    """Where each row is in the log, as text; NULL where rows don't tell."""
    if METADATA_COLUMN not in rows.schema.names:
        return pa.nulls(len(rows), pa.string())
    place = values_of(rows, METADATA_COLUMN)
    parts = [place.field(name).cast(pa.string()) for name in ("topic", "partition", "offset")]
    found: pa.Array = pc.binary_join_element_wise(*parts, "/")
    return found


def equals_before(keys: Indices, time_us: Indices, read: Callable[[Indices], pa.Table]) -> Indices:
    """How many equal rows of the same key lie before each. `read` reads some of the rows.

    Rows of a key lie together, and are in the order of time. Of columns that have several values nothing is
    asked: rows may count as equal that are not, which does no harm.
    """
    starts = starts_of_changes(keys, time_us)
    lengths = run_lengths(starts, len(keys))
    before = np.zeros(len(keys), dtype=np.int64)
    # Most rows are alone in their time.
    which = np.flatnonzero(np.repeat(lengths, lengths) > 1)
    if len(which):
        rows = read(which)
        plain = [each.name for each in rows.schema if not pa.types.is_nested(each.type)]
        (codes,) = key_codes([rows], plain)
        runs = np.searchsorted(starts, which, side="right")
        order = np.lexsort((which, codes, runs))
        begins = starts_of_changes(runs[order], codes[order])
        counts = run_lengths(begins, len(which))
        before[which[order]] = np.arange(len(which)) - np.repeat(begins, counts)
    return before
