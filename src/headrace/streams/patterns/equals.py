"""What tells matches apart whose rows are equal in all columns, so that each has an id of its own.

It is a number: how many equal rows of the key lie before the first row of the match. In the order of event
time, rows of the same time come up together, so it depends on the rows alone: it is the same live, again
after a crash, and in batch. By arrival, an equal row may come at any time, and to know it, each row would
have to be kept: there such matches are not told apart.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import pyarrow as pa

from headrace.streams.windows.keys import key_codes
from headrace.streams.windows.runs import Indices, run_lengths, starts_of_changes

APART: Final = "_match_apart"
"""The column that tells such matches apart; NULL for the first of them."""


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
