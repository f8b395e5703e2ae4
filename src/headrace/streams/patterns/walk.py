"""One attempt to match, way by way: which rows were taken by which names, and whether conditions allow it.

Ways are tried in the order in which they are preferred, by backtracking. Where conditions depend on nothing
but the row, no instruction is tried twice at the same row: a second time would fail as the first did. Where a
condition asks for the match so far, each way is one of its own, so there may be very many: after `WALK_MAX`
tries an attempt is given up.

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
from headrace.streams.patterns.so_far import Condition, MatchSoFar, Row

WALK_MAX: Final = 100_000
"""How many instructions are tried in an attempt whose conditions ask for the match so far."""


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
_Way = tuple["_Way | None", int, int]
"""The same as it grows: what was taken before, the bit, the place."""
_Visit = tuple[int, int, "_Way | None"]
"""An instruction, the place of the row that it is tried at, and the way there."""


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

    def allow(self, bit: int, place: int, way: _Way | None) -> bool:
        """Whether the row may be taken by the name."""
        function = self.functions.get(bit)
        if function is None:
            return True
        row = self.row(place)
        so_far = MatchSoFar([(self.names[by], self.row(at)) for by, at in _taken(way)])
        try:
            return bool(function(row, so_far))
        except Exception as error:
            raise failure(function, error, key=self.key, given=dict(row)) from error


def walk(
    program: Program, masks: Sequence[int], *, is_closed: bool, conditions: Conditions | None = None
) -> Walked:
    """Try the ways to match these rows. `is_closed` says that no more of them can come."""
    count = len(masks)
    waiting: list[_Visit] = [(0, 0, None)]
    visits = _Visits(are_free=conditions is None)
    partial: _Way | None = None
    while waiting:
        at, place, way = waiting.pop()
        if not visits.is_first(at, place):
            continue
        if visits.count > WALK_MAX and conditions is not None:
            return Walked(Outcome.CUT_OFF, _taken(way or partial) or _alone(masks), count)
        instruction = program.instructions[at]
        if instruction.code in {Code.SPLIT, Code.JUMP}:
            waiting += ((target, place, way) for target in _targets(instruction))
        elif instruction.code is Code.MATCH:
            return Walked(Outcome.MATCHED, _taken(way), place)
        elif place == count and not is_closed:
            return Walked(Outcome.UNDECIDED, _taken(way), place)
        elif place == count and instruction.code is Code.TAIL:
            return Walked(Outcome.MATCHED, _taken(way), place)
        elif place == count:
            partial = partial or way
        elif _takes(instruction, masks[place], place, way, conditions):
            waiting.append(_onward(instruction, at, place, way))
    return Walked(Outcome.FAILED if partial is None else Outcome.TIMED_OUT, _taken(partial), count)


class _Visits:
    """Which instructions were tried at which rows, and how often in all."""

    def __init__(self, *, are_free: bool) -> None:
        self._seen: set[tuple[int, int]] | None = set() if are_free else None
        self.count = 0

    def is_first(self, at: int, place: int) -> bool:
        """Note a visit; whether it may find something that an earlier one has not."""
        self.count += 1
        if self._seen is None:
            return True
        if (at, place) in self._seen:
            return False
        self._seen.add((at, place))
        return True


def _targets(instruction: Instruction) -> tuple[int, ...]:
    """Where to go on, what is preferred last."""
    if instruction.code is Code.JUMP:
        return (instruction.first,)
    return instruction.second, instruction.first


def _takes(
    instruction: Instruction, mask: int, place: int, way: _Way | None, conditions: Conditions | None
) -> bool:
    if instruction.code is not Code.STEP:
        return not mask & instruction.first
    bit = instruction.first
    return bool(mask >> bit & 1) and (conditions is None or conditions.allow(bit, place, way))


def _onward(instruction: Instruction, at: int, place: int, way: _Way | None) -> _Visit:
    """Behind a row that was taken."""
    if instruction.code is Code.STEP:
        return at + 1, place + 1, (way, instruction.first, place)
    return at if instruction.code is Code.TAIL else at + 1, place + 1, way


def _taken(way: _Way | None) -> Taken:
    found = []
    while way is not None:
        way, bit, place = way
        found.append((bit, place))
    return tuple(reversed(found))


def _alone(masks: Sequence[int]) -> Taken:
    """The first row, by a name that it may be of."""
    return (((masks[0] & -masks[0]).bit_length() - 1, 0),)
