"""Which attempts are given as matches, and which are still waited for.

Attempts of a key are settled in the order of their first rows. Unless all matches are wanted, a match
discards the attempts that begin before the place where the search goes on, and nothing is settled behind an
attempt that is undecided: it might become a match that discards what comes behind it. So what is behind it is
not even looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from headrace.streams.patterns.attempts import Attempts
from headrace.streams.patterns.skipping import Emit
from headrace.streams.patterns.walk import Outcome, Taken
from headrace.streams.windows.runs import Flags, Indices


class Look(Protocol):
    """Tells what has come of attempts, by their numbers."""

    @property
    def is_due(self) -> Flags:
        """Which may have been decided in this step."""

    def outcome(self, number: int) -> Outcome:
        """What has come of it."""

    def next_place(self, number: int) -> int:
        """Where in a match the search goes on behind it."""

    def taken(self, numbers: list[int]) -> list[Taken]:
        """The rows that attempts have taken, which are matches, or were possible to the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """What has become of attempts."""

    given: list[tuple[int, Outcome]]
    """The numbers of those that are decided and have not failed, and what has come of them."""
    stays: Flags
    """Which are still waited for."""


def settle(attempts: Attempts, keys: Indices, emit: Emit, look: Look) -> Settled:
    """Settle attempts. `keys` tells those of one key, which lie together."""
    stays = np.ones(len(keys), dtype=bool)
    given: list[tuple[int, Outcome]] = []
    due = np.flatnonzero(look.is_due)
    # Keys in which nothing can have been decided stay as they are.
    involved = due if emit.is_all else np.flatnonzero(np.isin(keys, keys[due]))
    key, go_on_at, is_blocked = -1, 0, False
    for number, of_key, first in zip(
        involved.tolist(), keys[involved].tolist(), attempts.first[involved].tolist(), strict=True
    ):
        if of_key != key or emit.is_all:
            key, go_on_at, is_blocked = of_key, 0, False
        if first < go_on_at:
            stays[number] = False
            continue
        outcome = Outcome.UNDECIDED if is_blocked else look.outcome(number)
        if outcome is Outcome.UNDECIDED:
            is_blocked = True
            continue
        stays[number] = False
        if outcome is not Outcome.FAILED:
            given.append((number, outcome))
        if outcome is Outcome.MATCHED and not emit.is_all:
            go_on_at = first + look.next_place(number)
    return Settled(given=given, stays=stays)


def next_place(taken: Taken, emit: Emit, name_bit: int | None) -> int:
    """Where in a match the search goes on: never at its first row, which would find the same again."""
    if emit.to == "behind":
        return taken[-1][1] + 1
    places = [place for bit, place in taken if bit == name_bit]
    if not places:
        return 1
    return max(1, places[0] if emit.to == "first" else places[-1])
