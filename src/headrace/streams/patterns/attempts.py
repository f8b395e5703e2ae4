"""Attempts to match, all of a bucket side by side: each begins at a row, and sees what follows in its key.

An attempt at a row of time t sees rows until

- one comes that is more than `within` later than t: its time is over;
- the watermark is past t + within: its time is over as well, as no row that it would see can come any more;
- it has seen as many rows as the limit allows.

Each of that depends on the rows alone, never on how they were cut into micro-batches.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headrace.streams.patterns.automaton import DEAD, Automaton
from headrace.streams.patterns.walk import Outcome
from headrace.streams.time.bounds import END_US
from headrace.streams.windows.runs import Flags, Indices

Outcomes = npt.NDArray[np.int8]


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderedRows:
    """The rows that attempts are made over: by key, and within a key in the order in which they count."""

    masks: Indices
    time_us: Indices
    key_ends: Indices
    """For each row the place behind the last row of its key."""


@dataclass(slots=True, kw_only=True)
class Attempts:
    """Attempts in the order of their first rows. `begin` makes them, `go_on` and `close` change them."""

    first: Indices
    """The place of the first row."""
    at: Indices
    """The place of the row that is to be looked at next."""
    state: Indices
    match_length: Indices
    """How many rows the match has that is preferred so far; 0 if there is none."""
    outcome: Outcomes
    length: Indices
    """How many rows were looked at when it was decided; of a match, how many it has."""

    def go_on(self, automaton: Automaton, rows: OrderedRows, *, within_us: int | None, limit: int) -> None:
        """Look at all rows that are there."""
        symbols = automaton.symbols(rows.masks)
        live = np.flatnonzero(self.outcome == Outcome.UNDECIDED)
        while len(live):
            live = live[self.at[live] < rows.key_ends[self.first[live]]]
            at, first = self.at[live], self.first[live]
            is_over = rows.time_us[at] > deadlines_us(rows.time_us[first], within_us)
            is_full = ~is_over & (at - first >= limit)
            self._decide(automaton, live[is_over], Outcome.TIMED_OUT)
            self._decide(automaton, live[is_full], Outcome.CUT_OFF)
            live = live[~is_over & ~is_full]
            at, first = self.at[live], self.first[live]
            state, matched = automaton.advance(self.state[live], symbols[at])
            self.state[live] = state
            self.at[live] = at + 1
            self.match_length[live[matched]] = (at + 1 - first)[matched]
            is_dead = state == DEAD
            self._decide(automaton, live[is_dead], Outcome.FAILED)
            live = live[~is_dead]

    def close(
        self, automaton: Automaton, rows: OrderedRows, *, within_us: int | None, watermark_us: int
    ) -> None:
        """Decide those whose time is over by the watermark; at the end of the input, all that are left."""
        open_ = np.flatnonzero(self.outcome == Outcome.UNDECIDED)
        deadline_us = deadlines_us(rows.time_us[self.first[open_]], within_us)
        # Without a time that can be over, there is nothing that an attempt could have been in time for.
        outcome = Outcome.FAILED if within_us is None else Outcome.TIMED_OUT
        is_over = (deadline_us < watermark_us) | (watermark_us >= END_US)
        self._decide(automaton, open_[is_over], outcome)

    def _decide(self, automaton: Automaton, which: Indices, outcome: Outcome) -> None:
        """Threads have come to nothing, or come to nothing now: what has matched so far is the match."""
        seen = self.at[which] - self.first[which]
        has_matched = self.match_length[which] > 0
        has_tail = (
            automaton.has_tail(self.state[which])
            if outcome is Outcome.TIMED_OUT
            else np.zeros(len(which), dtype=bool)
        )
        if not automaton.is_ordered and outcome is not Outcome.FAILED:
            # Whether it has matched is not known before each way is looked at.
            has_matched = has_tail = np.zeros(len(which), dtype=bool)
        self.outcome[which] = np.where(has_matched | has_tail, Outcome.MATCHED, outcome)
        # Where conditions are still to be asked, they are asked for all rows that were looked at.
        is_known = has_matched if automaton.is_ordered else np.zeros(len(which), dtype=bool)
        self.length[which] = np.where(is_known, self.match_length[which], seen)
        self.state[which] = DEAD


def deadlines_us(time_us: Indices, within_us: int | None) -> Indices:
    """Until when attempts that begin at these times see rows."""
    return np.full(len(time_us), END_US, dtype=np.int64) if within_us is None else time_us + within_us


def begin(first: Indices, state: int) -> Attempts:
    """New attempts, at these rows."""
    count = len(first)
    return Attempts(
        first=first,
        at=first.copy(),
        state=np.full(count, state, dtype=np.int64),
        match_length=np.zeros(count, dtype=np.int64),
        outcome=np.full(count, Outcome.UNDECIDED, dtype=np.int8),
        length=np.zeros(count, dtype=np.int64),
    )


def together(kept: Attempts, new: Attempts) -> Attempts:
    """Both, in the order of their first rows."""
    order = np.argsort(np.concatenate([kept.first, new.first]), kind="stable")

    def merged(name: str) -> Indices:
        both: Indices = np.concatenate([getattr(kept, name), getattr(new, name)])[order]
        return both

    return Attempts(
        first=merged("first"),
        at=merged("at"),
        state=merged("state"),
        match_length=merged("match_length"),
        outcome=merged("outcome").astype(np.int8),
        length=merged("length"),
    )


def chosen(attempts: Attempts, which: Indices | Flags) -> Attempts:
    """Some of them."""
    return Attempts(
        first=attempts.first[which],
        at=attempts.at[which],
        state=attempts.state[which],
        match_length=attempts.match_length[which],
        outcome=attempts.outcome[which],
        length=attempts.length[which],
    )
