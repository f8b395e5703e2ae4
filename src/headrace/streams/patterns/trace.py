"""Which rows attempts have taken, for many of them at once.

The states of each attempt are found out again, row by row, for all attempts together. Then the thread that
the attempt has come to is followed back: of each state, the automaton knows which thread it was before, and
whether that one took the row or skipped it. So an attempt costs as much as it did to look for it, whatever
ways there were.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from headrace.streams.patterns.attempts import Attempts, OrderedRows
from headrace.streams.patterns.automaton import Automaton
from headrace.streams.patterns.walk import Taken
from headrace.streams.windows.runs import Flags, Indices

CELLS_MAX: Final = 4_000_000
"""How many states are held at once: attempts, times the rows of the longest of them."""


def trace(
    automaton: Automaton, rows: OrderedRows, attempts: Attempts, which: Indices, *, is_match: Flags
) -> list[Taken]:
    """What each of these attempts has taken. `is_match` tells those that end with a match at their last row;
    the others are still possible there, or a match because their time is over."""
    found: list[Taken] = [()] * len(which)
    symbols = automaton.symbols(rows.masks)
    for part in _parts(attempts.length[which]):
        chosen = which[part]
        lengths = attempts.length[chosen]
        reads = _Reads(automaton, symbols, attempts.first[chosen], lengths)
        for place, taken in zip(part.tolist(), reads.taken(is_match[part]), strict=True):
            found[place] = taken
    return found


def _parts(lengths: Indices) -> Iterator[Indices]:
    """The longest first, so many at a time as may be held."""
    order = np.argsort(-lengths, kind="stable")
    while len(order):
        count = max(1, CELLS_MAX // max(1, int(lengths[order[0]])))
        yield order[:count]
        order = order[count:]


class _Reads:
    """Attempts that are read again, the longest first."""

    def __init__(self, automaton: Automaton, symbols: Indices, first: Indices, lengths: Indices) -> None:
        self._automaton = automaton
        self._symbols = symbols
        self._first = first
        self._longest = int(lengths[0])
        # How many attempts have a row at each place: always the first ones.
        self._counts = np.searchsorted(-lengths, -np.arange(self._longest), side="left").tolist()

    def taken(self, is_match: Flags) -> Iterator[Taken]:
        count = len(self._first)
        state: Indices = np.full(count, self._automaton.start, dtype=np.int64)
        states: Indices = np.zeros((self._longest, count), dtype=np.int64)
        for place, of in enumerate(self._counts):
            states[place, :of] = state[:of]
            state[:of], _ = self._automaton.advance(state[:of], self._symbols[self._first[:of] + place])
        thread = self._automaton.preferred(state, is_match=is_match)
        bits: npt.NDArray[np.int8] = np.full((count, self._longest), -1, dtype=np.int8)
        for place in range(self._longest - 1, -1, -1):
            of = self._counts[place]
            symbols = self._symbols[self._first[:of] + place]
            thread[:of], bits[:of, place] = self._automaton.origins(states[place, :of], symbols, thread[:of])
        return _pairs(bits)


def _pairs(bits: npt.NDArray[np.int8]) -> Iterator[Taken]:
    """Of each attempt the bits and places of the rows that were taken."""
    attempts, places = np.nonzero(bits >= 0)
    pairs = list(zip(bits[attempts, places].tolist(), places.tolist(), strict=True))
    ends = np.searchsorted(attempts, np.arange(len(bits)), side="right").tolist()
    for begin, end in zip([0, *ends], ends, strict=False):
        yield tuple(pairs[begin:end])
