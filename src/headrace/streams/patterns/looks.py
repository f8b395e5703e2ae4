"""What has come of attempts: as the automaton says, or as functions say that are asked for each row.

Functions are asked late: an attempt that the automaton leaves possible is walked only when it is to be
settled, and once in a step. As what an attempt comes to depends on its rows alone, it does not matter when.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from headrace.streams.patterns.attempts import Attempts, OrderedRows
from headrace.streams.patterns.automaton import Automaton
from headrace.streams.patterns.program import Program
from headrace.streams.patterns.python_rows import PythonRows
from headrace.streams.patterns.settling import next_place
from headrace.streams.patterns.skipping import Emit
from headrace.streams.patterns.so_far import Condition
from headrace.streams.patterns.trace import trace
from headrace.streams.patterns.walk import Conditions, Outcome, Taken, Walked, walk
from headrace.streams.windows.runs import Flags, Indices

_TRACED_TOGETHER: Final = 256
"""How many matches are traced when one has to be before the next is settled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """What is searched for, and in which rows."""

    program: Program
    names: Sequence[str]
    emit: Emit
    rows: OrderedRows
    attempts: Attempts

    @property
    def name_bit(self) -> int | None:
        """Of the name at which the search goes on."""
        return None if self.emit.name is None else list(self.names).index(self.emit.name)


@dataclass(slots=True)
class AutomatonLook:
    """What the automaton has found: nothing else is asked for."""

    searched: Searched
    automaton: Automaton
    _traced: dict[int, Taken] = field(default_factory=dict)

    @property
    def is_due(self) -> Flags:
        is_due: Flags = self.searched.attempts.outcome != Outcome.UNDECIDED
        return is_due

    def outcome(self, number: int) -> Outcome:
        return Outcome(int(self.searched.attempts.outcome[number]))

    def next_place(self, number: int) -> int:
        searched = self.searched
        if searched.emit.to == "behind" and not searched.program.has_tail:
            return int(searched.attempts.length[number])
        if number not in self._traced:
            matches = np.flatnonzero(searched.attempts.outcome == Outcome.MATCHED)
            self._trace(matches[matches >= number][:_TRACED_TOGETHER])
        return next_place(self._traced[number], searched.emit, searched.name_bit)

    def taken(self, numbers: list[int]) -> list[Taken]:
        self._trace(np.asarray([each for each in numbers if each not in self._traced], dtype=np.int64))
        return [self._traced[each] for each in numbers]

    def _trace(self, which: Indices) -> None:
        searched = self.searched
        is_match = searched.attempts.outcome[which] == Outcome.MATCHED
        if searched.program.has_tail:
            is_match[:] = False
        found = trace(self.automaton, searched.rows, searched.attempts, which, is_match=is_match)
        self._traced.update(zip(which.tolist(), found, strict=True))


@dataclass(slots=True, kw_only=True)
class FunctionLook:
    """What functions say of attempts that the automaton leaves possible."""

    searched: Searched
    functions: Mapping[int, Condition]
    by: Sequence[str]
    is_due: Flags
    """Those that have seen rows in this step, or whose time is over by it."""
    is_end: bool
    python_rows: Callable[[], PythonRows]
    _rows: PythonRows | None = None
    _walked: dict[int, Walked] = field(default_factory=dict)

    def outcome(self, number: int) -> Outcome:
        said = Outcome(int(self.searched.attempts.outcome[number]))
        if said is Outcome.FAILED:
            return said
        self._walked[number] = walked = self._walk(number, is_closed=said is not Outcome.UNDECIDED)
        is_over = said in {Outcome.TIMED_OUT, Outcome.CUT_OFF}
        if walked.outcome is Outcome.TIMED_OUT:
            # It was still possible, so what has ended it is what was found before.
            return said if is_over else Outcome.FAILED
        if said is Outcome.CUT_OFF and self.searched.program.has_tail and walked.outcome is Outcome.MATCHED:
            # Nothing has come that may not, but the time is not over.
            return Outcome.CUT_OFF
        return walked.outcome

    def next_place(self, number: int) -> int:
        return next_place(self._walked[number].taken, self.searched.emit, self.searched.name_bit)

    def taken(self, numbers: list[int]) -> list[Taken]:
        return [self._walked[each].taken for each in numbers]

    def _walk(self, number: int, *, is_closed: bool) -> Walked:
        attempts = self.searched.attempts
        first = int(attempts.first[number])
        seen = attempts.length if is_closed else attempts.at - attempts.first
        masks = self.searched.rows.masks[first : first + int(seen[number])].tolist()
        if self._rows is None:
            self._rows = self.python_rows()
        rows, key = self._rows, self._rows[first]
        conditions = Conditions(
            names=self.searched.names,
            functions=self.functions,
            row=lambda place: rows[first + place],
            key=tuple(key[name] for name in self.by),
        )
        return walk(self.searched.program, masks, is_closed=is_closed or self.is_end, conditions=conditions)
