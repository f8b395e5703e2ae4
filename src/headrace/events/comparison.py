"""Two deciders on the same history: which streams come to different states, field by field.

For code that is about to change: what the new `evolve` makes of all that has happened is compared with what
the old one made of it, before anybody relies on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from headrace.errors import EventsError
from headrace.events.decider import SEPARATOR, Decider
from headrace.events.explanation import fields_of

DIFFERENCE_COUNT_MAX: Final = 200
"""So many differences are kept; all are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A field of a stream's state that comes out different."""

    stream: str
    field: str
    left: Any
    """As JSON has it; None where there is no such field."""
    right: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """What two deciders make of a history."""

    event_count: int
    stream_count: int
    different_stream_count: int
    difference_count: int
    differences: tuple[Difference, ...]
    """The first ones, by stream."""


class Comparison:
    """Takes events in the order of the log, those of other categories too, and folds them twice."""

    def __init__(self, left: Decider | type, right: Decider | type) -> None:
        if not isinstance(left, Decider) or not isinstance(right, Decider):
            raise EventsError(
                f"{left!r} and {right!r} are not both deciders: decorate them with @decider(...)"
            )
        if left.category != right.category:
            raise EventsError(
                f"{left.category} and {right.category} have different streams: compare two deciders of one "
                "category"
            )
        self._left = left
        self._right = right
        self._begin = left.category + SEPARATOR
        self._states: dict[str, tuple[Any, Any]] = {}
        self._event_count = 0

    def take(self, stream: str, event: Any) -> None:
        """One more event."""
        if not stream.startswith(self._begin):
            return
        left, right = self._states.get(stream, (self._left.initial, self._right.initial))
        self._states[stream] = (self._left.evolve(left, event), self._right.evolve(right, event))
        self._event_count += 1

    def result(self, *, count_max: int = DIFFERENCE_COUNT_MAX) -> Compared:
        """What has come out so far."""
        kept: list[Difference] = []
        difference_count = different_stream_count = 0
        for stream in sorted(self._states):
            found = list(_differences(stream, *self._states[stream]))
            difference_count += len(found)
            different_stream_count += bool(found)
            kept += found[: count_max - len(kept)]
        return Compared(
            event_count=self._event_count,
            stream_count=len(self._states),
            different_stream_count=different_stream_count,
            difference_count=difference_count,
            differences=tuple(kept),
        )


def _differences(stream: str, left: Any, right: Any) -> Iterator[Difference]:
    if left == right:
        return
    ours, theirs = fields_of(left), fields_of(right)
    for name in {**ours, **theirs}:
        one, other = ours.get(name), theirs.get(name)
        if one != other or (name in ours) != (name in theirs):
            yield Difference(stream=stream, field=name, left=_plain(one), right=_plain(other))


def _plain(value: Any) -> Any:
    return msgspec.to_builtins(value, str_keys=True)
