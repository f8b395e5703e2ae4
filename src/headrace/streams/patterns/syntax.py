"""The language of patterns: `"probe{3} big"`, `"order !cancel (paid | free)"`, `"rise+ fall*? crash"`.

    pattern   = sequence ("|" sequence)*          the first that fits is preferred
    sequence  = item+
    item      = atom quantifier? | "!" name | ".."
    atom      = name | "(" pattern ")"
    quantifier= ("*" | "+" | "?" | "{n}" | "{n,}" | "{n,m}" | "{,m}") "?"?      a last "?": rather fewer

A name is a step: one row, for which the condition of that name is true. `!name` and `..` take no row. They
say which rows may lie between the step before and the one after: `..` any, `!name` any but those for which
the condition is true. At the end of a pattern, `!name` says that no such row comes until the time is over.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NoReturn

from headrace.errors import PipelineError

REPEAT_MAX: Final = 1_000
"""How often a step can be repeated, where a number is given."""
_TOKEN: Final = re.compile(
    r"\s*(?:(?P<name>[^\W\d]\w*)|(?P<dots>\.\.)|\{\s*(?P<least>\d*)\s*(?P<comma>,?)\s*(?P<most>\d*)\s*\}"
    r"|(?P<sign>[()|!*+?]))"
)


@dataclass(frozen=True, slots=True)
class Step:
    """One row, for which the condition of this name is true."""

    name: str


@dataclass(frozen=True, slots=True)
class Gap:
    """Rows may lie here, but none for which one of these is true."""

    without: frozenset[str]


@dataclass(frozen=True, slots=True)
class Sequence:
    """One after the other."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Alternation:
    """One of them; an earlier one rather than a later one."""

    branches: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """The same several times: as often as possible if it is greedy, else as seldom."""

    item: Node
    least: int
    most: int | None
    is_greedy: bool = True


Node = Step | Gap | Sequence | Alternation | Repeat

_QUANTIFIERS: Final[dict[str, tuple[int, int | None]]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}


def parse(text: str) -> Node:
    """The pattern that was written; raise where it is none."""
    if not text.strip():
        raise PipelineError(f"the pattern is {text!r}: write one, such as 'probe{{3}} big'")
    parser = _Parser(text)
    found = parser.pattern()
    if parser.token is not None:
        parser.refuse("there is nothing that it closes")
    return found


def names_of(node: Node) -> set[str]:
    """All names in a pattern, those of rows that may not be there as well."""
    match node:
        case Step(name):
            return {name}
        case Gap(without):
            return set(without)
        case Repeat(item=item):
            return names_of(item)
        case Sequence(items):
            return {name for item in items for name in names_of(item)}
        case Alternation(branches):
            return {name for branch in branches for name in names_of(branch)}


def steps_of(node: Node) -> set[str]:
    """The names in a pattern by which rows are taken."""
    match node:
        case Step(name):
            return {name}
        case Gap():
            return set()
        case Repeat(item=item):
            return steps_of(item)
        case Sequence(items) | Alternation(items):
            return {name for item in items for name in steps_of(item)}


class _Parser:
    """Reads a text from left to right, one token ahead."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._next_at = 0
        self.token: re.Match[str] | None = None
        self._advance()

    def pattern(self) -> Node:
        branches = [self._sequence()]
        while self._takes("|"):
            branches.append(self._sequence())
        return branches[0] if len(branches) == 1 else Alternation(tuple(branches))

    def refuse(self, why: str) -> NoReturn:
        """Say where the text is wrong."""
        there = self._text[self._at :].strip()
        place = f"before {there!r}" if there else "at its end"
        raise PipelineError(f"the pattern {self._text!r} is wrong {place}: {why}")

    def _sequence(self) -> Node:
        items: list[Node] = []
        while self.token is not None and not self._is_sign(")", "|"):
            items.append(self._item())
        if not items:
            self.refuse("a name is missing here")
        return items[0] if len(items) == 1 else Sequence(tuple(items))

    def _item(self) -> Node:
        assert self.token is not None, "there is an item"
        if self.token["dots"]:
            self._advance()
            return Gap(frozenset())
        if self._takes("!"):
            return Gap(frozenset({self._name()}))
        return self._quantified(self._atom())

    def _name(self) -> str:
        name = None if self.token is None else self.token["name"]
        if not name:
            self.refuse("the name of the rows that may not lie here is missing after '!'")
        self._advance()
        return str(name)

    def _atom(self) -> Node:
        assert self.token is not None, "there is an atom"
        if name := self.token["name"]:
            self._advance()
            return Step(name)
        if not self._takes("("):
            self.refuse("write a name, or a group in parentheses")
        inner = self.pattern()
        if not self._takes(")"):
            self.refuse("a parenthesis is not closed")
        return inner

    def _quantified(self, atom: Node) -> Node:
        bounds = self._bounds()
        if bounds is None:
            return atom
        least, most = bounds
        is_greedy = not self._takes("?")
        if self._bounds() is not None:
            self.refuse("what is repeated can't be repeated again: put it in parentheses")
        return atom if (least, most) == (1, 1) else Repeat(atom, least, most, is_greedy)

    def _bounds(self) -> tuple[int, int | None] | None:
        token = self.token
        if token is None:
            return None
        if token["sign"] in _QUANTIFIERS:
            self._advance()
            return _QUANTIFIERS[token["sign"]]
        if token["comma"] is None:
            return None
        least, most = token["least"], token["most"]
        if not least and not most:
            self.refuse("say how often: {3}, {2,}, {,4} or {2,4}")
        if not token["comma"]:
            most = least
        bounds = int(least or 0), int(most) if most else None
        if (bounds[1] is not None and bounds[1] < max(bounds[0], 1)) or max(
            bounds[0], bounds[1] or 0
        ) > REPEAT_MAX:
            self.refuse(f"repeat at least once and at most {REPEAT_MAX:,} times, the smaller number first")
        self._advance()
        return bounds

    def _is_sign(self, *signs: str) -> bool:
        return self.token is not None and self.token["sign"] in signs

    def _takes(self, sign: str) -> bool:
        if not self._is_sign(sign):
            return False
        self._advance()
        return True

    def _advance(self) -> None:
        self._at = self._next_at
        self.token = _TOKEN.match(self._text, self._at)
        if self.token is not None:
            self._next_at = self.token.end()
        elif self._text[self._at :].strip():
            self.refuse("this is no part of a pattern: there are names, ( ) | * + ? {n,m} ! and ..")
