"""Sentences that an operator should see, each once."""

from __future__ import annotations

from typing import Final

NOTICES_MAX: Final = 1000
"""How many different ones are kept apart; what is beyond is counted."""


class Notices:
    """Collects what is worth telling and stops nothing: whoever runs the capture takes and logs it."""

    def __init__(self) -> None:
        self._told: set[str] = set()
        self._waiting: list[str] = []
        self.count = 0
        """How often there was something to tell, repetitions included."""

    def tell(self, sentence: str) -> None:
        """Note it, unless it was noted before."""
        self.count += 1
        if sentence in self._told:
            return
        if len(self._told) == NOTICES_MAX:
            sentence = f"more than {NOTICES_MAX} different notices: further ones are only counted"
        elif len(self._told) > NOTICES_MAX:
            return
        self._told.add(sentence)
        self._waiting.append(sentence)

    def take(self) -> list[str]:
        """What has come since the last time."""
        taken, self._waiting = self._waiting, []
        return taken
