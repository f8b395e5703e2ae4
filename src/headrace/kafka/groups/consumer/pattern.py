"""Matches topic names with a regular expression in time that grows with the name, whatever the expression.

The expression becomes a program of few instructions, and a name is run through all ways of the program at
once. A set of places in the program, together with the character before and the one that comes, always leads
to the same next set, which is looked up from the second time on. So there is no expression that
keeps the broker busy for hours, as there is for matchers that try one way after the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headrace.errors import ConfigError
from headrace.kafka.groups.consumer.pattern_syntax import (
    WORD,
    Alternatives,
    Assertion,
    Characters,
    Repeat,
    Sequence,
    parse_pattern,
)

if TYPE_CHECKING:
    from headrace.kafka.groups.consumer.pattern_syntax import Node

INSTRUCTION_COUNT_MAX: Final = 2_000
COMPILED_COUNT_MAX: Final = 10_000
LENGTH_MAX: Final = 10_000
STEP_COUNT_MAX: Final = 20_000
"""How many steps are remembered; then remembering begins anew."""


@dataclass(frozen=True, slots=True)
class _Fork:
    """Go on at several places."""

    to: tuple[int, ...]


_Instruction = Characters | Assertion | _Fork
_Places = frozenset[int]


class TopicPattern:
    """A regular expression, which matches whole names."""

    def __init__(self, text: str) -> None:
        """Compile the expression; raises a ConfigError that says what is wrong with it."""
        if len(text) > LENGTH_MAX:
            raise ConfigError(f"expression is longer than {LENGTH_MAX} characters")
        self._program: list[_Instruction] = []
        self._compiled_count = 0
        self._compile(parse_pattern(text))
        self._steps: dict[tuple[_Places, str, str], _Places] = {}

    def matches(self, name: str) -> bool:
        """Whether the whole name matches."""
        places: _Places = frozenset({0})
        before = ""
        for character in name:
            key = (places, before, character)
            found = self._steps.get(key)
            if found is None:
                found = self._remember(key)
            if not found:
                return False
            places, before = found, character
        return len(self._program) in self._closure(places, before, "")

    def _remember(self, key: tuple[_Places, str, str]) -> _Places:
        places, before, character = key
        reached = frozenset(
            place + 1
            for place in self._closure(places, before, character)
            if place < len(self._program) and self._takes(place, character)
        )
        if len(self._steps) >= STEP_COUNT_MAX:
            self._steps.clear()
        self._steps[key] = reached
        return reached

    def _takes(self, place: int, character: str) -> bool:
        instruction = self._program[place]
        return isinstance(instruction, Characters) and character in instruction.members

    def _closure(self, places: _Places, before: str, after: str) -> set[int]:
        """All places that can be reached without taking a character."""
        reached: set[int] = set()
        to_visit = list(places)
        while to_visit:
            place = to_visit.pop()
            if place in reached:
                continue
            reached.add(place)
            instruction = self._program[place] if place < len(self._program) else None
            if isinstance(instruction, _Fork):
                to_visit += instruction.to
            elif isinstance(instruction, Assertion) and _holds(instruction.kind, before, after):
                to_visit.append(place + 1)
        return reached

    def _compile(self, node: Node) -> None:
        # Counted apart from the instructions: repeating nothing adds none, and still takes time.
        self._compiled_count += 1
        if self._compiled_count > COMPILED_COUNT_MAX or len(self._program) > INSTRUCTION_COUNT_MAX:
            raise ConfigError("expression is too large")
        if isinstance(node, Characters | Assertion):
            self._program.append(node)
        elif isinstance(node, Sequence):
            for item in node.items:
                self._compile(item)
        elif isinstance(node, Alternatives):
            self._compile_alternatives(node)
        else:
            self._compile_repeat(node)

    def _compile_alternatives(self, node: Alternatives) -> None:
        fork = self._reserve()
        starts, ends = [], []
        for item in node.items:
            starts.append(len(self._program))
            self._compile(item)
            ends.append(self._reserve())
        self._program[fork] = _Fork(tuple(starts))
        for end in ends:
            self._program[end] = _Fork((len(self._program),))

    def _compile_repeat(self, node: Repeat) -> None:
        for _ in range(node.count_min):
            self._compile(node.item)
        if node.count_max is None:
            fork = self._reserve()
            self._compile(node.item)
            self._program.append(_Fork((fork,)))
            self._program[fork] = _Fork((fork + 1, len(self._program)))
            return
        forks = []
        for _ in range(node.count_max - node.count_min):
            forks.append(self._reserve())
            self._compile(node.item)
        for fork in forks:
            self._program[fork] = _Fork((fork + 1, len(self._program)))

    def _reserve(self) -> int:
        self._program.append(_Fork(()))
        return len(self._program) - 1


def _holds(kind: str, before: str, after: str) -> bool:
    if kind == "start":
        return not before
    if kind == "end":
        return not after
    is_boundary = (before in WORD) != (after in WORD)
    return is_boundary == (kind == "boundary")
