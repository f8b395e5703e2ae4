"""Patterns that fit a bounded history: a few words over names, found in the last rows of a key.

Such a pattern has no gaps and no end in time, and repeats nothing without a bound, so it can be written out:
each way to match it is a word, a sequence of names. `(a | b) c{1,2}? d` has `a c d`, `a c c d`, `b c d` and
`b c c d`, in the order in which they are preferred. From each row on there is one match.

A match is to be known as soon as its last row is there. So no word may be preferred to a shorter one if both
can begin with the same rows: when the shorter one is there, only time could tell whether the longer one
comes. That is looked for with rows that are of no more names than the two words need; where a third one fits
these that is preferred to the shorter one, and not longer, the two never meet.

Then the word that counts is the shortest that fits, and of those that are as short, the preferred: words are
kept in that order. One that begins with another that comes first would never count, and is left out.

Pure: no Spark, no I/O.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from headrace.errors import PipelineError
from headrace.streams.patterns.normal_form import normal_form
from headrace.streams.patterns.syntax import Alternation, Gap, Node, Repeat, Step, parse
from headrace.streams.patterns.syntax import Sequence as InOrder

WORDS_MAX: Final = 100
"""How many ways there may be to match: all are looked for with each row that comes."""
LENGTH_MAX: Final = 100
"""How many rows a match may have: so many are kept of each key."""

Word = tuple[str, ...]


def words_of(pattern: str) -> tuple[Word, ...]:
    """The words of a pattern, in the order in which they count; raise where it needs more than a history."""
    node = parse(pattern)
    _refuse(pattern, _unbounded(node))
    # What it refuses can't be meant, whoever looks for it.
    normal_form(node, "strict")
    longest = _longest(node)
    if longest > LENGTH_MAX:
        _refuse(pattern, f"it may take {longest:,} rows, and {LENGTH_MAX} are kept")
    found = list(islice(dict.fromkeys(_ways(node)), WORDS_MAX + 1))
    if len(found) > WORDS_MAX:
        _refuse(pattern, f"there are more than {WORDS_MAX} ways to match it")
    if (pair := _unclear(found)) is not None:
        longer, shorter = (" ".join(word) for word in pair)
        _refuse(
            pattern,
            f"{longer!r} is preferred to {shorter!r}, which is there before it is known whether that comes: "
            "let the shorter one be preferred, as by a{1,3}? or (b | a b)",
        )
    return _reachable(sorted(found, key=len))


def first_word(words: Sequence[Word], names: Sequence[frozenset[str]]) -> Word | None:
    """The word that fits rows from the first of these on, each given by its names; None where none does."""
    for word in words:
        if len(word) <= len(names) and all(name in of for name, of in zip(word, names, strict=False)):
            return word
    return None


def _refuse(pattern: str, why: str | None) -> None:
    if why is not None:
        raise PipelineError(
            f"hr.match can't look for {pattern!r} in real-time mode, which keeps a bounded history of each "
            f"key: {why}; or run without --realtime, in micro-batches"
        )


def _unbounded(node: Node) -> str | None:
    """What of a pattern may need any number of rows, or time; None if nothing does."""
    match node:
        case Step():
            return None
        case Gap(without):
            told = "".join(f"!{name}" for name in sorted(without)) or ".."
            return f"{told!r} lets any number of rows lie there, or waits until a time is over; leave it out"
        case Repeat(most=None):
            return "'*', '+' or '{n,}' repeats without a bound; give one, as in {1,5}?"
        case Repeat(item=item):
            return _unbounded(item)
        case InOrder(items) | Alternation(items):
            return next((why for why in map(_unbounded, items) if why is not None), None)


def _longest(node: Node) -> int:
    match node:
        case Repeat(item=item, most=most):
            return (most or 0) * _longest(item)
        case InOrder(items):
            return sum(map(_longest, items))
        case Alternation(branches):
            return max(map(_longest, branches))
        case _:
            return 1


def _ways(node: Node) -> Iterator[Word]:
    """The words of a part of a pattern, in the order in which they are preferred."""
    match node:
        case Step(name):
            yield (name,)
        case InOrder(items):
            yield from _one_by_one(items)
        case Alternation(branches):
            for branch in branches:
                yield from _ways(branch)
        case Repeat():
            yield from _repeated(node, 0)


def _one_by_one(items: Sequence[Node]) -> Iterator[Word]:
    if not items:
        yield ()
        return
    for first in _ways(items[0]):
        for rest in _one_by_one(items[1:]):
            yield first + rest


def _repeated(node: Repeat, count: int) -> Iterator[Word]:
    if not node.is_greedy and count >= node.least:
        yield ()
    if node.most is None or count < node.most:
        for first in _ways(node.item):
            for rest in _repeated(node, count + 1):
                yield first + rest
    if node.is_greedy and count >= node.least:
        yield ()


def _unclear(words: Sequence[Word]) -> tuple[Word, Word] | None:
    """A word, and a shorter one that is there before it is known whether the first, preferred, one comes."""
    for number, shorter in enumerate(words):
        before = words[:number]
        for longer in (word for word in before if len(word) > len(shorter)):
            rows = [frozenset(pair) for pair in zip(longer, shorter, strict=False)]
            if first_word([word for word in before if len(word) <= len(shorter)], rows) is None:
                return longer, shorter
    return None


def _reachable(words: Sequence[Word]) -> tuple[Word, ...]:
    """The words but for those that begin with one that comes before them."""
    found: list[Word] = []
    known: set[Word] = set()
    for word in words:
        if not any(word[:length] in known for length in range(1, len(word) + 1)):
            found.append(word)
            known.add(word)
    return tuple(found)
