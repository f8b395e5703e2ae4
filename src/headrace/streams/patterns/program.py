"""A pattern as a program: instructions that threads go through, row by row.

    STEP bit        takes a row whose mask has the bit, and goes on to the next instruction
    SKIP mask       takes a row that has no bit of the mask, and goes on
    SPLIT a b       goes on at both, and prefers a
    JUMP a          goes on there
    TAIL mask       takes rows that have no bit of the mask, while there are any; a match when time is over
    MATCH           the pattern has matched

A row's mask has a bit for each name, in the order in which names are defined: whether its condition is true.
No loop goes around without taking a row, as what is repeated takes at least one.
"""

from __future__ import annotations

from collections.abc import Sequence as Many
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from headrace.errors import PipelineError
from headrace.streams.patterns.normal_form import NormalForm
from headrace.streams.patterns.syntax import Alternation, Gap, Node, Repeat, Sequence, Step

PROGRAM_LENGTH_MAX: Final = 10_000
"""Longer programs are refused; a step that is repeated three times is in it three times."""


class Code(IntEnum):
    """What an instruction does."""

    STEP = 0
    SKIP = 1
    SPLIT = 2
    JUMP = 3
    TAIL = 4
    MATCH = 5


class Instruction(NamedTuple):
    """What it does, and with what."""

    code: Code
    first: int = 0
    second: int = 0


@dataclass(frozen=True, slots=True)
class Program:
    """The instructions of a pattern. Threads begin at the first."""

    instructions: tuple[Instruction, ...]

    @property
    def has_tail(self) -> bool:
        """Whether a match is one only when its time is over."""
        return self.instructions[-1].code is Code.TAIL


def compile_pattern(form: NormalForm, names: Many[str]) -> Program:
    """The program of a pattern over these names, whose bits are in this order."""
    compiler = _Compiler({name: bit for bit, name in enumerate(names)})
    compiler.add(form.node)
    if form.tail is None:
        compiler.emit(Code.MATCH)
    else:
        compiler.emit(Code.TAIL, compiler.mask(form.tail))
    return Program(tuple(compiler.made))


class _Compiler:
    def __init__(self, bits: dict[str, int]) -> None:
        self._bits = bits
        self.made: list[Instruction] = []

    def mask(self, names: frozenset[str]) -> int:
        return sum(1 << self._bits[name] for name in names)

    def emit(self, code: Code, first: int = 0, second: int = 0) -> int:
        if len(self.made) >= PROGRAM_LENGTH_MAX:
            raise PipelineError(
                f"the pattern has more than {PROGRAM_LENGTH_MAX:,} steps when repetitions are written out: "
                "repeat less often, or without an upper bound"
            )
        self.made.append(Instruction(code, first, second))
        return len(self.made) - 1

    def add(self, node: Node) -> None:
        match node:
            case Step(name):
                self.emit(Code.STEP, self._bits[name])
            case Gap(without):
                self._add_gap(without)
            case Sequence(items):
                for item in items:
                    self.add(item)
            case Alternation(branches):
                self._add_branches(branches)
            case Repeat():
                self._add_repeat(node)

    def _add_gap(self, without: frozenset[str]) -> None:
        # Rather the next row than to skip it.
        split = self.emit(Code.SPLIT, len(self.made) + 3, len(self.made) + 1)
        self.emit(Code.SKIP, self.mask(without))
        self.emit(Code.JUMP, split)

    def _add_branches(self, branches: tuple[Node, ...]) -> None:
        ends = []
        for branch in branches[:-1]:
            split = self.emit(Code.SPLIT)
            self.add(branch)
            ends.append(self.emit(Code.JUMP))
            self.made[split] = Instruction(Code.SPLIT, split + 1, len(self.made))
        self.add(branches[-1])
        for end in ends:
            self.made[end] = Instruction(Code.JUMP, len(self.made))

    def _add_repeat(self, node: Repeat) -> None:
        for _ in range(node.least):
            self.add(node.item)
        splits = []
        if node.most is None:
            splits.append(split := self.emit(Code.SPLIT))
            self.add(node.item)
            self.emit(Code.JUMP, split)
        else:
            for _ in range(node.most - node.least):
                splits.append(self.emit(Code.SPLIT))
                self.add(node.item)
        for split in splits:
            inside, behind = split + 1, len(self.made)
            ways = (inside, behind) if node.is_greedy else (behind, inside)
            self.made[split] = Instruction(Code.SPLIT, *ways)
