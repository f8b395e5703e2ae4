"""An answer that is not ready yet.

Handlers are plain functions that are called in the order of a connection's requests. One that can answer
at once returns the response; one that must wait (for the disk, for more data, for other group members)
returns a Pending and resolves it later. None of this needs an event loop, so tests drive it by hand.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Part = TypeVar("Part")
Response = TypeVar("Response")


class Silence(Enum):
    """There is no response: the request asked for none."""

    KEEP_OPEN = auto()
    CLOSE = auto()
    """Something went wrong, and closing the connection is the only way to say so."""


class Pending(Generic[Response]):
    """A response that will come once. Not safe to share between threads."""

    __slots__ = ("_callback", "_response", "on_abandoned")

    def __init__(self) -> None:
        self.on_abandoned: Callable[[], None] | None = None
        self._callback: Callable[[Response], None] | None = None
        self._response: Response | None = None

    @property
    def is_resolved(self) -> bool:
        """Whether the response is there."""
        return self._response is not None

    @property
    def response(self) -> Response:
        """The response, which must be there."""
        assert self._response is not None
        return self._response

    def resolve(self, response: Response) -> None:
        """Give the response. The first one counts: a wait that ends twice has been answered already."""
        if self._response is not None:
            return
        self._response = response
        if self._callback is not None:
            self._callback(response)

    def then(self, callback: Callable[[Response], None]) -> None:
        """Call back with the response, now if it is there already."""
        self._callback = callback
        if self._response is not None:
            callback(self._response)

    def abandon(self) -> None:
        """Say that nobody is there any more to hear the response."""
        self._callback = None
        if self.on_abandoned is not None and self._response is None:
            self.on_abandoned()


def follow(pending: Pending[Response], outcome: Response | Pending[Response]) -> None:
    """Resolve an answer with what a handler returned that was called later."""
    if isinstance(outcome, Pending):
        pending.on_abandoned = outcome.abandon
        outcome.then(pending.resolve)
    else:
        pending.resolve(outcome)


def when_all(
    outcomes: Sequence[Part | Pending[Part]], combine: Callable[[tuple[Part, ...]], Response]
) -> Response | Pending[Response]:
    """Combine the parts of a response, now if all are there, or else when the last one comes."""
    missing = [outcome for outcome in outcomes if isinstance(outcome, Pending) and not outcome.is_resolved]
    if not missing:
        return combine(_parts(outcomes))
    pending: Pending[Response] = Pending()
    remaining = len(missing)

    def on_part(_part: Part) -> None:
        nonlocal remaining
        remaining -= 1
        if remaining == 0:
            pending.resolve(combine(_parts(outcomes)))

    for outcome in missing:
        outcome.then(on_part)
    return pending


def _parts(outcomes: Sequence[Part | Pending[Part]]) -> tuple[Part, ...]:
    return tuple(outcome.response if isinstance(outcome, Pending) else outcome for outcome in outcomes)
