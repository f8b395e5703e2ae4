"""A pattern with what it says between the lines: which step is first, and where rows may lie between steps.

In the normal form, there is a gap wherever rows may lie, and nowhere else. A gap is as short as it can be: of
`(paid | cancelled)` behind a gap, the row counts that comes first, and only where it can be both, `paid` is
preferred. The first row of a match is always one of its steps', so the pattern is rewritten until it is known
which step that is: `a? b` becomes `(a b | b)`. That keeps the order in which ways to match are preferred.

A `!name` at the end of the pattern is its tail: no such row may come until the time of a match is over.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, Literal

from headrace.errors import PipelineError
from headrace.streams.patterns.syntax import Alternation, Gap, Node, Repeat, Sequence, Step

Contiguity = Literal["strict", "relaxed"]

_ANY: Final = Gap(frozenset())


@dataclass(frozen=True, slots=True, kw_only=True)
class NormalForm:
    """A pattern that can be compiled."""

    node: Node
    tail: frozenset[str] | None
    """The names of rows that may not come after the last step until the time is over; None where any may."""


def normal_form(node: Node, contiguity: Contiguity) -> NormalForm:
    """Rewrite a pattern; raise where it says what can't be meant."""
    items = _flat(node)
    tail: frozenset[str] | None = None
    while items and isinstance(last := items[-1], Gap):
        if not last.without:
            raise PipelineError(
                "the pattern ends with '..': rows may always come after a match; leave it out"
            )
        tail = last.without | (tail or frozenset())
        items = items[:-1]
    if not items or isinstance(items[0], Gap):
        raise PipelineError(
            "the pattern begins with '!' or '..': a match begins with a row, so begin with its name"
        )
    spaced = _spaced(Sequence(tuple(items)), is_relaxed=contiguity == "relaxed")
    return NormalForm(node=_first((spaced,)), tail=tail)


def _flat(node: Node) -> list[Node]:
    if isinstance(node, Sequence):
        return [part for item in node.items for part in _flat(item)]
    return [node]


def is_nullable(node: Node) -> bool:
    """Whether it can be matched by no row at all."""
    match node:
        case Step():
            return False
        case Gap():
            return True
        case Sequence(items):
            return all(is_nullable(item) for item in items)
        case Alternation(branches):
            return any(is_nullable(branch) for branch in branches)
        case Repeat(item, least):
            return least == 0 or is_nullable(item)


def _spaced(node: Node, *, is_relaxed: bool) -> Node:
    """The same, with a gap wherever rows may lie."""
    match node:
        case Step():
            return Sequence((_ANY, node)) if is_relaxed else node
        case Gap():
            raise PipelineError(
                "'!' or '..' stands alone in parentheses, or is repeated: put it between two steps"
            )
        case Repeat(item):
            if is_nullable(item):
                raise PipelineError(
                    "the pattern repeats what can be no row at all, such as (a?)*: repeat at least one row"
                )
            return replace(node, item=_spaced(item, is_relaxed=is_relaxed))
        case Alternation(branches):
            made = Alternation(tuple(_spaced(branch, is_relaxed=is_relaxed) for branch in branches))
            return Sequence((_ANY, _first((made,)))) if is_relaxed and not is_nullable(made) else made
        case Sequence(items):
            return _spaced_sequence(items, is_relaxed=is_relaxed)


def _spaced_sequence(items: tuple[Node, ...], *, is_relaxed: bool) -> Node:
    made: list[Node] = []
    gap: frozenset[str] | None = None
    for item in items:
        if isinstance(item, Gap):
            if not made:
                raise PipelineError("a group begins with '!' or '..': put it before the parenthesis")
            gap = item.without | (gap or frozenset())
            continue
        node = _spaced(item, is_relaxed=is_relaxed)
        if gap is not None:
            if is_nullable(node):
                raise PipelineError(
                    "what comes after '!' or '..' can be no row at all, so what it means is not clear: let "
                    "a step follow that is always there"
                )
            node = Sequence((Gap(gap), _first((node,))))
        made.append(node)
        gap = None
    if gap is not None:
        raise PipelineError("a group ends with '!' or '..': put it behind the parenthesis")
    return Sequence(tuple(made))


# Cached because what may be missing is written out in both ways, and what follows it is the same in both.
@lru_cache(maxsize=1_024)
def _first(items: tuple[Node, ...]) -> Node:
    """The items one after the other, without a gap in front of whichever step is the first."""
    if not items:
        raise PipelineError("the pattern can be matched by no row at all: let it have a step that is needed")
    head, rest = items[0], items[1:]
    match head:
        case Step():
            return Sequence(items)
        case Gap() | Sequence():
            return _first((*(head.items if isinstance(head, Sequence) else ()), *rest))
        case Alternation(branches) if is_nullable(head):
            return Alternation(tuple(_first((branch, *rest)) for branch in branches))
        case Alternation(branches):
            return Sequence((Alternation(tuple(_first((branch,)) for branch in branches)), *rest))
        case Repeat(item, least, most, is_greedy):
            again = () if most == 1 else (_less(head),)
            taken = _first((item, *again, *rest))
            if least:
                return taken
            left_out = _first(rest)
            return Alternation((taken, left_out) if is_greedy else (left_out, taken))


def _less(node: Repeat) -> Repeat:
    """What remains to be repeated after the first time."""
    most = None if node.most is None else node.most - 1
    return replace(node, least=max(node.least - 1, 0), most=most)
