"""All attempts of a bucket at once: a program as an automaton whose states are lists of threads.

A state is what an attempt to match may be in the midst of: the instructions at which its threads wait for the
next row, those that are preferred first. A match ends the threads that are preferred less. So when none is
left, the last match is the one that is preferred of all; while there are some, a match that is preferred
still more may come. That is what backtracking would find, in time that does not grow with the ways there are.

States, and which one follows on which mask, are found out when they are first needed, and remembered. So each
row of each attempt is a look into a table, for all attempts together in NumPy.

Which thread each one came from is remembered, too, so that trace.py can tell which rows a thread has taken.

Without order, no thread is ended by a match: a state then tells only whether anything can come of an attempt.
That is for conditions that ask for rows before, which are looked at one by one, see walk.py.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from headrace.streams.patterns.program import Code, Program
from headrace.streams.windows.runs import Flags, Indices

DEAD: Final = 0
"""The state in which no thread is left."""
_TABLE_SIZE_MAX: Final = 4_000_000
"""A table that has grown beyond this is begun anew with the next step."""
_UNKNOWN: Final = -1
_KEPT_COUNT: Final = 32


class Automaton:
    """Finds states, and remembers them. For one thread only."""

    def __init__(self, program: Program, *, is_ordered: bool) -> None:
        self._program = program.instructions
        self.is_ordered = is_ordered
        self._numbers: dict[tuple[int, ...], int] = {}
        self._states: list[tuple[int, ...]] = []
        self._has_tail: list[bool] = []
        self._symbols: dict[int, int] = {}
        self._masks: list[int] = []
        self._next: npt.NDArray[np.int32] = np.full((16, 16), _UNKNOWN, dtype=np.int32)
        self._matches: npt.NDArray[np.bool_] = np.zeros((16, 16), dtype=bool)
        self._origins_at: npt.NDArray[np.int32] = np.zeros((16, 16), dtype=np.int32)
        self._origins: list[tuple[int, int]] = []
        self._flat: Indices = np.empty((0, 2), dtype=np.int64)
        self._number_of(())
        threads: list[int] = []
        self._go(0, threads, set())
        self.start = self._number_of(tuple(threads))
        self.first_mask = self._first_mask(threads)

    @property
    def is_large(self) -> bool:
        """Whether it has become so large that it is better begun anew."""
        return self._next.size > _TABLE_SIZE_MAX

    def symbols(self, masks: Indices) -> Indices:
        """Masks as numbers without gaps."""
        unique, inverse = np.unique(masks, return_inverse=True)
        numbers = np.empty(len(unique), dtype=np.int64)
        for place, mask in enumerate(unique.tolist()):
            numbers[place] = self._symbols.setdefault(mask, len(self._masks))
            if numbers[place] == len(self._masks):
                self._masks.append(mask)
        self._grow()
        return numbers[inverse]

    def advance(self, states: Indices, symbols: Indices) -> tuple[Indices, Flags]:
        """The states after a row each, and which have matched with it."""
        following = self._next[states, symbols]
        is_unknown = following == _UNKNOWN
        if is_unknown.any():
            pairs = np.unique(np.stack([states[is_unknown], symbols[is_unknown]], axis=1), axis=0)
            for state, symbol in pairs.tolist():
                self._find(state, symbol)
            following = self._next[states, symbols]
        return following.astype(np.int64), self._matches[states, symbols]

    def has_tail(self, states: Indices) -> Flags:
        """Which states are a match if the time is over."""
        return np.asarray(self._has_tail, dtype=bool)[states]

    def preferred(self, states: Indices, *, is_match: Flags) -> Indices:
        """Of each state the thread that tells what was taken, by its place among the threads.

        Where there is a match, that is the one behind all threads: see `origins`. Else it is the first
        that is a match if the time is over; if there is none, the first of all.
        """
        tails = [
            next((at for at, place in enumerate(threads) if self._program[place].code is Code.TAIL), 0)
            for threads in self._states
        ]
        counts = [len(threads) for threads in self._states]
        return np.where(is_match, np.asarray(counts)[states], np.asarray(tails)[states])

    def origins(self, states: Indices, symbols: Indices, threads: Indices) -> tuple[Indices, Indices]:
        """Of each thread after a row, which one it was before it, and by which bit it has taken the row.

        The thread behind the last one of a state is the match, if there is one. The bit is -1 where the row
        was skipped.
        """
        found = self._flat_origins()[self._origins_at[states, symbols] + threads]
        return found[:, 0], found[:, 1]

    def written(self, states: Indices) -> list[bytes]:
        """States as they are kept."""
        distinct, inverse = np.unique(states, return_inverse=True)
        made = [np.asarray(self._states[state], dtype="<u2").tobytes() for state in distinct.tolist()]
        return [made[place] for place in inverse.tolist()]

    def read(self, kept: list[bytes]) -> Indices:
        """The states that were written."""
        known = {
            each: self._number_of(tuple(np.frombuffer(each, dtype="<u2").tolist())) for each in set(kept)
        }
        self._grow()
        return np.asarray([known[each] for each in kept], dtype=np.int64)

    def _find(self, state: int, symbol: int) -> None:
        threads: list[int] = []
        origins: list[tuple[int, int]] = []
        seen: set[int] = set()
        matched = False
        for at, place in enumerate(self._states[state]):
            if self._takes(place, self._masks[symbol]):
                code, bit, _ = self._program[place]
                matched |= self._go(place if code is Code.TAIL else place + 1, threads, seen)
                origin = (at, bit if code is Code.STEP else -1)
                origins += [origin] * (len(threads) - len(origins))
                if matched and self.is_ordered:
                    origins.append(origin)
                    break
        number = self._number_of(tuple(threads))
        self._grow()
        self._next[state, symbol] = number
        self._matches[state, symbol] = matched
        self._origins_at[state, symbol] = len(self._origins)
        self._origins += origins

    def _flat_origins(self) -> Indices:
        if len(self._flat) != len(self._origins):
            self._flat = np.asarray(self._origins, dtype=np.int64).reshape(-1, 2)
        return self._flat

    def _takes(self, place: int, mask: int) -> bool:
        code, first, _ = self._program[place]
        return bool(mask >> first & 1) if code is Code.STEP else not mask & first

    def _go(self, place: int, threads: list[int], seen: set[int]) -> bool:
        """Add the threads that wait for a row from here on; whether there is a match among them.

        In order, a match ends what is preferred less.
        """
        matched = False
        waiting = [place]
        while waiting:
            at = waiting.pop()
            if at in seen:
                continue
            seen.add(at)
            code, first, second = self._program[at]
            if code is Code.MATCH:
                matched = True
                if self.is_ordered:
                    return True
            elif code is Code.SPLIT:
                waiting += (second, first)
            elif code is Code.JUMP:
                waiting.append(first)
            else:
                threads.append(at)
        return matched

    def _first_mask(self, threads: list[int]) -> int:
        mask = 0
        for place in threads:
            mask |= 1 << self._program[place].first
        return mask

    def _number_of(self, threads: tuple[int, ...]) -> int:
        number = self._numbers.setdefault(threads, len(self._states))
        if number == len(self._states):
            self._states.append(threads)
            self._has_tail.append(any(self._program[place].code is Code.TAIL for place in threads))
        return number

    def _grow(self) -> None:
        rows, columns = self._next.shape
        if len(self._states) <= rows and len(self._masks) <= columns:
            return
        while rows < len(self._states):
            rows *= 2
        while columns < len(self._masks):
            columns *= 2
        larger = np.full((rows, columns), _UNKNOWN, dtype=np.int32)
        matches = np.zeros((rows, columns), dtype=bool)
        origins_at = np.zeros((rows, columns), dtype=np.int32)
        known = tuple(slice(size) for size in self._next.shape)
        larger[known], matches[known], origins_at[known] = self._next, self._matches, self._origins_at
        self._next, self._matches, self._origins_at = larger, matches, origins_at


def automaton_of(program: Program, *, is_ordered: bool) -> Automaton:
    """The automaton of a program; the one of the last step, unless that has become too large."""
    found = _automaton(program, is_ordered)
    if found.is_large:
        _automaton.cache_clear()
        found = _automaton(program, is_ordered)
    return found


@lru_cache(maxsize=_KEPT_COUNT)
def _automaton(program: Program, is_ordered: bool) -> Automaton:
    return Automaton(program, is_ordered=is_ordered)
