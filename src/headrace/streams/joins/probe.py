"""Find the rows of a key and a range of times, in rows that are ordered by the key's hash, and then by time.

What is found has the same hash, and maybe another key: `same_keys` tells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.streams.windows.exact import in_one_piece
from headrace.streams.windows.keys import key_codes
from headrace.streams.windows.runs import Flags, Indices, ranges

PAIRS_MAX: Final = 1_000_000
"""How many pairs are made at a time."""


@dataclass(frozen=True, slots=True)
class Index:
    """The hashes and the times of rows, in the order of both."""

    hashes: Indices
    times_us: Indices

    def __len__(self) -> int:
        return len(self.hashes)

    def find(self, hashes: Indices, from_us: Indices, to_us: Indices) -> Found:
        """The rows with each of these hashes whose time is in the range, both ends included."""
        first = np.searchsorted(self.hashes, hashes, side="left")
        last = np.searchsorted(self.hashes, hashes, side="right")
        first = self._bisect(from_us, first, last, is_right=False)
        last = self._bisect(to_us, first, last, is_right=True)
        return Found(first=first, counts=np.maximum(last - first, 0))

    def last_before(self, hashes: Indices, at_us: Indices) -> tuple[Indices, Indices]:
        """Of each of these hashes, where the rows with it begin, and where those end that are not later."""
        first = np.searchsorted(self.hashes, hashes, side="left")
        last = np.searchsorted(self.hashes, hashes, side="right")
        return first, self._bisect(at_us, first, last, is_right=True)

    def _bisect(self, at_us: Indices, first: Indices, last: Indices, *, is_right: bool) -> Indices:
        """Where each time belongs between its bounds, within which times are in order."""
        low, high = first.copy(), last.copy()
        open_ = np.flatnonzero(low < high)
        while len(open_):
            middle = (low[open_] + high[open_]) // 2
            there, wanted = self.times_us[middle], at_us[open_]
            is_below = there <= wanted if is_right else there < wanted
            low[open_] = np.where(is_below, middle + 1, low[open_])
            high[open_] = np.where(is_below, high[open_], middle)
            open_ = open_[low[open_] < high[open_]]
        return low


@dataclass(frozen=True, slots=True)
class Found:
    """Of each row that was looked for, the stretch of rows that were found."""

    first: Indices
    counts: Indices

    def pairs(self) -> Iterator[tuple[Indices, Indices]]:
        """Which was looked for, and which was found: PAIRS_MAX pairs at a time, as there may be very many."""
        ends = np.cumsum(self.counts)
        begins = ends - self.counts
        for start in range(0, int(ends[-1]) if len(ends) else 0, PAIRS_MAX):
            numbers = np.arange(start, min(start + PAIRS_MAX, int(ends[-1])))
            who = np.searchsorted(ends, numbers, side="right")
            yield who, self.first[who] + numbers - begins[who]

    def all(self) -> Indices:
        """The rows that were found, each once."""
        begins = np.flatnonzero(self.counts)
        order = begins[np.argsort(self.first[begins], kind="stable")]
        first, ends = self.first[order], self.first[order] + self.counts[order]
        if not len(order):
            return first
        # Each stretch without what the ones before it have.
        reached = np.maximum.accumulate(np.append(first[0], ends[:-1]))
        from_ = np.maximum(first, reached)
        return ranges(from_, np.maximum(ends - from_, 0))

    def any(self, is_same: Callable[[Indices, Indices], Flags], among: Flags | None = None) -> Flags:
        """Which have found a row that has their key; `is_same` tells of pairs whether theirs are the same.

        The first row that is found does, unless its key only has the same hash. With `among`, only some are
        of interest.
        """
        found = np.zeros(len(self.first), dtype=bool)
        at, ends = self.first.copy(), self.first + self.counts
        open_ = np.flatnonzero(at < ends if among is None else among & (at < ends))
        while len(open_):
            same = is_same(open_, at[open_])
            found[open_[same]] = True
            open_ = open_[~same]
            at[open_] += 1
            open_ = open_[at[open_] < ends[open_]]
        return found


def order_of(hashes: Indices, times_us: Indices) -> Indices:
    """The order that an index needs; rows that are equal in both keep theirs."""
    return np.lexsort((times_us, hashes))


def same_keys(one: pa.Table, other: pa.Table, by: Sequence[str]) -> Flags:
    """Whether each row of the one has the same key as the row of the other at the same place."""
    is_same = np.ones(one.num_rows, dtype=bool)
    for name in by:
        mine, others = in_one_piece(one[name]), in_one_piece(other[name])
        if pa.types.is_nested(mine.type) or pa.types.is_floating(mine.type):
            codes = key_codes([one.select([name]), other.select([name])], [name])
            is_same &= codes[0] == codes[1]
        else:
            is_same &= np.asarray(pc.fill_null(pc.equal(mine, others), False), dtype=bool)
    return is_same


def has_key(rows: pa.Table, by: Sequence[str]) -> Flags:
    """Which rows have a key: one that is null anywhere equals no other."""
    found = np.ones(rows.num_rows, dtype=bool)
    for name in by:
        found &= np.asarray(rows[name].is_valid(), dtype=bool)
    return found
