"""How late the rows of a source are: how far behind its newest event so far.

A task sees a micro-batch, and does not know what came before it; who knows that does not see the rows. So the
task sends the rows' lateness within the micro-batch, in runs: the first row, the next one, the next two, the
next four, ... With each run goes the newest event up to the run's first row. A row whose run begins at an
event that is older than the newest one before the micro-batch was later by that difference.

The counts of a run are by powers of two: entry 0 counts rows that were not late, entry i those by less than
2**i milliseconds that are in no entry before.

Lateness is never taken for less than it was. It is taken for more in two ways: rounded up to a power of two,
once more for a row that was late within the micro-batch, too; and for rows of the one run in which the newest
event so far is reached. A run is no longer than all before it together, so these are no more rows than
were behind it.

Pure: no Spark, no I/O.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

ENTRIES_MAX: Final = 64
"""More than any two times are apart."""


class LatenessRun(NamedTuple):
    """Rows of a source that came one after the other."""

    newest_us: int
    """The newest event up to the first of them, in the micro-batch."""
    counts: tuple[int, ...]


def lateness_runs(times: npt.NDArray[np.int64]) -> tuple[LatenessRun, ...]:
    """The lateness of rows in the order of the log, by their event times in microseconds."""
    if not len(times):
        return ()
    newest = np.maximum.accumulate(times)
    behind_ms = (newest - times) / 1000
    entries = np.zeros(len(times), np.int64)
    late = behind_ms > 0
    entries[late] = np.maximum(1, np.floor(np.log2(behind_ms[late])).astype(np.int64) + 1)
    # The exponent is 0 for row 0, 1 for row 1, 2 for rows 2 and 3, 3 for rows 4 to 7, ...
    runs = np.frexp(np.arange(len(times)))[1].astype(np.int64)
    counted = np.bincount(runs * ENTRIES_MAX + entries, minlength=(int(runs[-1]) + 1) * ENTRIES_MAX)
    firsts = np.searchsorted(runs, np.arange(int(runs[-1]) + 1))
    return tuple(
        LatenessRun(int(newest[first]), tuple(np.trim_zeros(counts, "b").tolist()))
        for first, counts in zip(firsts.tolist(), counted.reshape(-1, ENTRIES_MAX), strict=True)
    )


def lateness_counts(runs: Iterable[LatenessRun], newest_us: int | None) -> tuple[int, ...]:
    """How many rows were how late, where the source's newest event before them was this; None for none."""
    found: Counter[int] = Counter()
    for run in runs:
        added_us = 0 if newest_us is None else max(0, newest_us - run.newest_us)
        for entry, count in enumerate(run.counts):
            found[_later_entry(entry, added_us)] += count
    return tuple(found[entry] for entry in range(max((e for e in found if found[e]), default=-1) + 1))


def _later_entry(entry: int, added_us: int) -> int:
    """The entry of rows of another one that were later by this."""
    if not added_us:
        return entry
    if not entry:
        # So late exactly; less than the entry's bound.
        return max(1, (added_us // 1000).bit_length())
    # Each was late by less than the bound of its entry.
    bound_ms = (1 << entry) + -(-added_us // 1000)
    return (bound_ms - 1).bit_length()
