"""One attempt to match whose conditions ask for the match so far, way by way.

Ways are tried in the order in which they are preferred, by backtracking. As a condition may ask for any row
that was taken before, each way is one of its own, so there may be very many: after `WALK_MAX` tries an
attempt is given up. What a try costs does not depend on how many rows were taken.

The first way that needs a row that is not there yet decides: while more rows can come, the attempt is
undecided, whatever less preferred ways there are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from headrace.streams.keyed.calling import failure
from headrace.streams.patterns.program import Code, Instruction, Program
from headrace.streams.patterns.so_far import Condition, Link, MatchSoFar, Row

WALK_MAX: Final = 100_000
"""How many instructions are tried in an attempt."""


class Outcome(IntEnum):
    """What has come of an attempt."""

    UNDECIDED = 0
    FAILED = 1
    MATCHED = 2
    TIMED_OUT = 3
    """Its time is over, and it was still possible."""
    CUT_OFF = 4
    """It has reached a limit, and was still possible."""


Taken = tuple[tuple[int, int], ...]
"""The rows that were taken: the bit of the name, and the place of the row in the attempt."""
_Visit = tuple[int, int, Link | None]
"""An instruction, the place of the row that it is tried at, and the last row that was taken before."""


@dataclass(frozen=True, slots=True)
class Walked:
    """What has come of an attempt."""

    outcome: Outcome
    taken: Taken
    length: int
    """How many rows it has looked at, those that it has skipped as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """Those that ask for the match so far, by the bits of their names, and how they get at rows."""

    names: Sequence[str]
    functions: Mapping[int, Condition]
    row: Callable[[int], Row]
    """The row at a place of the attempt."""
    key: object
    """Whose rows they are, for errors."""

    def allow(self, bit: int, place: int, way: Link | None) -> bool:
        """Whether the row may be taken by the name."""
        function = self.functions.get(bit)
        if function is None:
            return True
        row = self.row(place)
        try:
            return bool(function(row, MatchSoFar.up_to(way)))
        except Exception as error:
            raise failure(function, error, key=self.key, given=dict(row)) from error

    def taken(self, bit: int, place: int, way: Link | None) -> Link:
        """The way with one row more."""
        return Link(way, bit=bit, place=place, name=self.names[bit], row=self.row(place))


def walk(program: Program, masks: Sequence[int], *, is_closed: bool, conditions: Conditions) -> Walked:
    """Try the ways to match these rows. `is_closed` says that no more of them can come."""
    count, tried = len(masks), 0
    waiting: list[_Visit] = [(0, 0, None)]
    partial: Link | None = None
    while waiting:
        at, place, way = waiting.pop()
        tried += 1
        if tried > WALK_MAX:
            return Walked(Outcome.CUT_OFF, _taken(way or partial) or _alone(masks), count)
        instruction = program.instructions[at]
        if instruction.code in {Code.SPLIT, Code.JUMP}:
            waiting += ((target, place, way) for target in _targets(instruction))
        elif instruction.code is Code.MATCH:
            return Walked(Outcome.MATCHED, _taken(way), place)
        elif place == count and not is_closed:
            return Walked(Outcome.UNDECIDED, (), place)
        elif place == count and instruction.code is Code.TAIL:
            return Walked(Outcome.MATCHED, _taken(way), place)
        elif place == count:
            partial = partial or way
        elif _takes(instruction, masks[place], place, way, conditions):
            waiting.append(_onward(instruction, at, place, way, conditions))
    return Walked(Outcome.FAILED if partial is None else Outcome.TIMED_OUT, _taken(partial), count)


def _targets(instruction: Instruction) -> tuple[int, ...]:
    """Where to go on, what is preferred last."""
    if instruction.code is Code.JUMP:
        return (instruction.first,)
    return instruction.second, instruction.first


def _takes(instruction: Instruction, mask: int, place: int, way: Link | None, conditions: Conditions) -> bool:
    if instruction.code is not Code.STEP:
        return not mask & instruction.first
    bit = instruction.first
    return bool(mask >> bit & 1) and conditions.allow(bit, place, way)


def _onward(
    instruction: Instruction, at: int, place: int, way: Link | None, conditions: Conditions
) -> _Visit:
    """Behind a row that was taken."""
    if instruction.code is Code.STEP:
        return at + 1, place + 1, conditions.taken(instruction.first, place, way)
    return at if instruction.code is Code.TAIL else at + 1, place + 1, way


def _taken(way: Link | None) -> Taken:
    found = []
    while way is not None:
        found.append((way.bit, way.place))
        way = way.before
    return tuple(reversed(found))


def _alone(masks: Sequence[int]) -> Taken:
    """The first row, by a name that it may be of."""
    return (((masks[0] & -masks[0]).bit_length() - 1, 0),)
