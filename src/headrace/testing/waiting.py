"""Waiting in tests: for something to come true, never for time to pass."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Answer = TypeVar("Answer")

WITHIN_S: Final = 120.0
"""So long anything may take on a busy machine before it counts as never."""


def eventually(
    condition: Callable[[], Answer],
    what: str | Callable[[], str] = "it",
    *,
    within_s: float = WITHIN_S,
    pause_s: float = 0.01,
) -> Answer:
    """Ask until the answer is true, and return it. Raises AssertionError when time is up.

    `what` says what was awaited, at once or when time is up.
    """
    deadline_s = time.monotonic() + within_s
    while not (answer := condition()):
        if time.monotonic() >= deadline_s:
            awaited = what if isinstance(what, str) else what()
            raise AssertionError(f"{awaited} did not come true within {within_s:.0f} s: still {answer!r}")
        time.sleep(pause_s)
    return answer
