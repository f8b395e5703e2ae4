"""Where the search goes on after a match: what `emit` says.

| `emit` | the next match begins |
|---|---|
| `non_overlapping` | behind the last row of this one |
| `all_matches` | at any row behind the first of this one: matches may overlap |
| `skip_to_first(name)` | at the first row that was taken by the name, or behind it |
| `skip_to_last(name)` | at the last such row, or behind it |

From each row on at which a match begins there is one: the way that is preferred. Where a match has no row of
the name, or it is the first row of all, the search goes on behind the first row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """Rows count in the order of the log."""


arrival: Final = Arrival()
"""Rows count in the order of the log, as soon as they come; not in that of event time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Emit:
    """Which matches are given."""

    to: Literal["behind", "next", "first", "last"]
    name: str | None = None

    def __str__(self) -> str:
        if self.name is not None:
            return f"skip_to_{self.to}({self.name!r})"
        return "all_matches" if self.to == "next" else "non_overlapping"

    @property
    def is_all(self) -> bool:
        """Whether no match keeps another one from being given."""
        return self.to == "next"


non_overlapping: Final = Emit(to="behind")
"""Each row is in one match at most: the search goes on behind the last row of a match."""
all_matches: Final = Emit(to="next")
"""A match from each row on at which one begins, so matches may overlap."""


def skip_to_first(name: str) -> Emit:
    """After a match, the search goes on at the first row that was taken by the name."""
    return Emit(to="first", name=name)


def skip_to_last(name: str) -> Emit:
    """After a match, the search goes on at the last row that was taken by the name."""
    return Emit(to="last", name=name)
