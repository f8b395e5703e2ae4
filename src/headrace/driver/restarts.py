"""Whether a driver that has ended is started again. Pure.

    exit code 0             it was asked to stop, and did
    exit code 2             a mistake in the pipeline, the settings or the set-up: the same would happen again
    anything else           a fault: killed, crashed, a broker that is gone, a batch that fails

A fault before the driver has ever processed anything ends it: whoever started it is still looking. After
that, it is started again after a pause that doubles each time, until `count_max` restarts in a row were of no
use. A run that lasted `forgotten_after_s` was of use: counting begins anew.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

STOPPED: Final = 0
MISUSED: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a run of a driver ended."""

    exit_code: int
    """Negative: the signal that killed it."""
    ran_for_s: float
    has_worked: bool
    """Whether the driver has processed rows in this run or an earlier one."""


@dataclass(frozen=True, slots=True)
class Again:
    """Start it again after the pause."""

    pause_s: float
    restarts_in_a_row: int


@dataclass(frozen=True, slots=True)
class Stop:
    """Leave it at that."""

    is_hopeless: bool
    """Whether it was started again as often as it may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartPolicy:
    """How often, and how soon, a driver is started again."""

    count_max: int = 5
    pause_s_first: float = 1.0
    pause_s_max: float = 60.0
    forgotten_after_s: float = 300.0

    def decide(self, ending: Ending, restarts_in_a_row: int) -> Again | Stop:
        """What to do about a run that has ended, after so many restarts in a row."""
        if ending.exit_code in {STOPPED, MISUSED} or not ending.has_worked:
            return Stop(is_hopeless=False)
        if ending.ran_for_s >= self.forgotten_after_s:
            restarts_in_a_row = 0
        if restarts_in_a_row >= self.count_max:
            return Stop(is_hopeless=True)
        pause_s = min(self.pause_s_first * 2**restarts_in_a_row, self.pause_s_max)
        return Again(pause_s=pause_s, restarts_in_a_row=restarts_in_a_row + 1)
