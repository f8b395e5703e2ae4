"""The search for the highest rate that something holds for. Pure: what holds is asked of the caller."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

GROWTH: Final = 1.5
CLOSE: Final = 1.1
"""Near enough: the lowest rate that failed, divided by the highest that did not."""
STEP: Final = 50
RATE_MAX: Final = 5_000
"""The generator's."""


def search(first: int, holds: Callable[[int], bool]) -> str:
    """The highest rate that holds, to a tenth; rates are tried upwards first, then between two of them."""
    passed, failed = 0, 0
    rate = first
    while True:
        if holds(rate):
            passed = rate
        else:
            failed = rate
        if passed >= RATE_MAX:
            return f"{passed:,} (the generator makes no more)"
        if failed and (failed <= passed * CLOSE or failed - passed <= STEP):
            return f"{passed:,}" if passed else f"fewer than {failed:,}"
        if failed:
            rate = max(passed + STEP, _rounded((passed + failed) / 2))
        else:
            rate = min(RATE_MAX, _rounded(passed * GROWTH))


def _rounded(rate: float) -> int:
    return round(rate / STEP) * STEP
