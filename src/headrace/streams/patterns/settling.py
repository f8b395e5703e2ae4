"""Which attempts are given as matches, and which are still waited for.

Attempts of a key are settled in the order of their first rows. Unless all matches are wanted, a match
discards the attempts that begin before the place where the search goes on, and nothing is settled behind an
attempt that is undecided: it might become a match that discards what comes behind it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from headrace.streams.patterns.attempts import Attempts
from headrace.streams.patterns.skipping import Emit
from headrace.streams.patterns.walk import Outcome, Walked
from headrace.streams.windows.runs import Flags, Indices

Walk = Callable[[int], Walked]
"""Finds which rows an attempt has taken, by its number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """What has become of attempts."""

    given: list[tuple[int, Walked]]
    """The numbers of those that are told of, and what they have taken."""
    stays: Flags
    """Which are still waited for."""


def settle(attempts: Attempts, keys: Indices, emit: Emit, name_bit: int | None, walk: Walk) -> Settled:
    """Settle attempts, none of which has failed. `keys` tells those of one key, which lie together."""
    is_open = attempts.outcome == Outcome.UNDECIDED
    decided = np.flatnonzero(~is_open)
    if emit.is_all:
        return Settled(given=[(each, walk(each)) for each in decided.tolist()], stays=is_open)
    stays = is_open.copy()
    given: list[tuple[int, Walked]] = []
    # Keys without a decision stay as they are.
    involved = np.flatnonzero(np.isin(keys, keys[decided]))
    key, go_on_at, is_blocked = -1, 0, False
    for number, of_key, first, outcome in zip(
        involved.tolist(),
        keys[involved].tolist(),
        attempts.first[involved].tolist(),
        attempts.outcome[involved].tolist(),
        strict=True,
    ):
        if of_key != key:
            key, go_on_at, is_blocked = of_key, 0, False
        if first < go_on_at:
            stays[number] = False
        elif is_blocked or outcome == Outcome.UNDECIDED:
            stays[number] = is_blocked = True
        else:
            walked = walk(number)
            given.append((number, walked))
            if outcome == Outcome.MATCHED:
                go_on_at = first + _next_place(walked, emit, name_bit)
    return Settled(given=given, stays=stays)


def _next_place(walked: Walked, emit: Emit, name_bit: int | None) -> int:
    """Where in the attempt the search goes on: never at its first row, which would find the same again."""
    if emit.to == "behind":
        return walked.taken[-1][1] + 1
    places = [place for bit, place in walked.taken if bit == name_bit]
    if not places:
        return 1
    return max(1, places[0] if emit.to == "first" else places[-1])
