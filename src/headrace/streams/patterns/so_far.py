"""What a condition can ask about the match so far: the rows that were taken before the one in question."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]
Condition = Callable[[Row, "MatchSoFar"], bool]
"""Whether a row is one of its name, given the match so far. Must be the same whenever it is asked."""


class MatchSoFar:
    """The rows of a match that were taken before the one in question, oldest first.

    `name` limits what is asked to the rows that were taken by that name. NULLs don't count in aggregates.
    """

    __slots__ = ("_taken",)

    def __init__(self, taken: Sequence[tuple[str, Row]]) -> None:
        self._taken = taken

    @property
    def previous(self) -> Row | None:
        """The row that was taken last; None if the row in question would be the first."""
        return self.last()

    def rows(self, name: str | None = None) -> list[Row]:
        """The rows."""
        return [row for taken_by, row in self._taken if name in {None, taken_by}]

    def first(self, name: str | None = None) -> Row | None:
        """The first of them; None if there is none."""
        return next(iter(self.rows(name)), None)

    def last(self, name: str | None = None) -> Row | None:
        """The last of them; None if there is none."""
        return next(iter(reversed(self.rows(name))), None)

    def count(self, name: str | None = None) -> int:
        """How many there are."""
        return len(self.rows(name))

    def values(self, column: str, name: str | None = None) -> list[Any]:
        """What they have in a column, without NULLs."""
        return [row[column] for row in self.rows(name) if row[column] is not None]

    def sum(self, column: str, name: str | None = None) -> Any:
        """The sum of a column; 0 of nothing."""
        return sum(self.values(column, name))

    def mean(self, column: str, name: str | None = None) -> Any:
        """The mean of a column; None of nothing."""
        values = self.values(column, name)
        return sum(values) / len(values) if values else None

    def min(self, column: str, name: str | None = None) -> Any:
        """The least of a column; None of nothing."""
        return min(self.values(column, name), default=None)

    def max(self, column: str, name: str | None = None) -> Any:
        """The greatest of a column; None of nothing."""
        return max(self.values(column, name), default=None)
