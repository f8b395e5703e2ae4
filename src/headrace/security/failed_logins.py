"""How long the answer to a failed log-in waits: longer with each failure from the same address.

    100 ms, 200 ms, ... up to 2 s; a minute without a failure forgives all

So whoever tries passwords is slowed down, and a client with a wrong setting does not keep the broker busy. An
address that only has successes never waits. The number of addresses is limited: the one that has failed
longest ago is forgotten first.
"""

from __future__ import annotations

from typing import Final

DELAY_S: Final = 0.1
DELAY_S_MAX: Final = 2.0
FORGIVEN_AFTER_S: Final = 60.0
ADDRESS_COUNT_MAX: Final = 10_000


class FailedLogins:
    """Counts failures by address. Belongs to the event loop's thread."""

    def __init__(self) -> None:
        self._failures: dict[str, tuple[int, float]] = {}
        """By address: how many, and when the last one was. The oldest comes first."""

    def note(self, host: str, now_s: float) -> tuple[int, float]:
        """Count a failure; return how many there have been, and how long its answer is to wait."""
        count, last_s = self._failures.pop(host, (0, now_s))
        count = 1 if now_s - last_s > FORGIVEN_AFTER_S else count + 1
        if len(self._failures) >= ADDRESS_COUNT_MAX:
            del self._failures[next(iter(self._failures))]
        self._failures[host] = (count, now_s)
        return count, min(count * DELAY_S, DELAY_S_MAX)
