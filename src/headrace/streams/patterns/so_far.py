"""What a condition can ask about the match so far: the rows that were taken before the one in question.

Rows that were taken are a chain, each with the one before it. Ways to match that begin alike share what they
have in common. What was asked of a chain (a count, a sum) is remembered at each of its links, so that it is
one step more for the next row, however many there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

Row = Mapping[str, Any]
Condition = Callable[[Row, "MatchSoFar"], bool]
"""Whether a row is one of its name, given the match so far. Must be the same whenever it is asked."""

_Question = tuple[str, str | None, str | None]
"""What is asked, of which column, and of the rows of which name; None for all."""


class Link:
    """A row that was taken, and what was taken before."""

    __slots__ = ("before", "bit", "known", "name", "place", "row")

    def __init__(self, before: Link | None, *, bit: int, place: int, name: str, row: Row) -> None:
        self.before = before
        self.bit = bit
        self.place = place
        """Of the row, in the attempt."""
        self.name = name
        self.row = row
        self.known: dict[_Question, Any] | None = None
        """The answers up to this row."""


class MatchSoFar:
    """The rows of a match that were taken before the one in question, oldest first.

    `name` limits what is asked to the rows that were taken by that name. NULLs don't count in aggregates.
    """

    __slots__ = ("_last",)

    def __init__(self, taken: Sequence[tuple[str, Row]] = ()) -> None:
        self._last: Link | None = None
        for place, (name, row) in enumerate(taken):
            self._last = Link(self._last, bit=0, place=place, name=name, row=row)

    @classmethod
    def up_to(cls, last: Link | None) -> MatchSoFar:
        """What a way has taken, of which this is the last row."""
        found = cls()
        found._last = last
        return found

    @property
    def previous(self) -> Row | None:
        """The row that was taken last; None if the row in question would be the first."""
        return None if self._last is None else self._last.row

    def rows(self, name: str | None = None) -> list[Row]:
        """The rows."""
        return [link.row for link in _links(self._last) if name in {None, link.name}][::-1]

    def first(self, name: str | None = None) -> Row | None:
        """The first of them; None if there is none."""
        found: Row | None = self._answer("first", None, name)
        return found

    def last(self, name: str | None = None) -> Row | None:
        """The last of them; None if there is none."""
        found: Row | None = self._answer("last", None, name)
        return found

    def count(self, name: str | None = None) -> int:
        """How many there are."""
        return int(self._answer("count", None, name) or 0)

    def values(self, column: str, name: str | None = None) -> list[Any]:
        """What they have in a column, without NULLs."""
        return [row[column] for row in self.rows(name) if row[column] is not None]

    def sum(self, column: str, name: str | None = None) -> Any:
        """The sum of a column; 0 of nothing."""
        found = self._answer("sum", column, name)
        return 0 if found is None else found

    def mean(self, column: str, name: str | None = None) -> Any:
        """The mean of a column; None of nothing."""
        count = self._answer("present", column, name)
        return self.sum(column, name) / count if count else None

    def min(self, column: str, name: str | None = None) -> Any:
        """The least of a column; None of nothing."""
        return self._answer("min", column, name)

    def max(self, column: str, name: str | None = None) -> Any:
        """The greatest of a column; None of nothing."""
        return self._answer("max", column, name)

    def _answer(self, what: str, column: str | None, name: str | None) -> Any:
        """What is known up to the last row, from what was known before it; None of nothing."""
        question = (what, column, name)
        missing: list[Link] = []
        answer: Any = None
        for link in _links(self._last):
            if link.known is not None and question in link.known:
                answer = link.known[question]
                break
            missing.append(link)
        onward = _ONWARD[what]
        for link in reversed(missing):
            if name is None or link.name == name:
                value = link.row if column is None else link.row[column]
                if value is not None:
                    answer = onward(answer, value)
            if link.known is None:
                link.known = {}
            link.known[question] = answer
        return answer


def _links(last: Link | None) -> Iterator[Link]:
    """The newest first."""
    while last is not None:
        yield last
        last = last.before


_ONWARD: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "first": lambda answer, row: row if answer is None else answer,
    "last": lambda _answer, row: row,
    "count": lambda answer, _row: (answer or 0) + 1,
    "present": lambda answer, _value: (answer or 0) + 1,
    "sum": lambda answer, value: 0 + value if answer is None else answer + value,
    "min": lambda answer, value: value if answer is None or value < answer else answer,
    "max": lambda answer, value: value if answer is None or value > answer else answer,
}
"""From the answer before a row to the one with it."""
