"""The times that events can have, and what lies outside of them.

Event times reach from year 1 to year 9999. The ends of time are so far outside that windows can be added to
and taken from both without overflow.
"""

from __future__ import annotations

from typing import Final

EVENT_TIME_US_MIN: Final = -62_135_596_800_000_000
"""0001-01-01."""
EVENT_TIME_US_MAX: Final = 253_402_300_799_999_999
"""The last microsecond of 9999."""
BEGINNING_US: Final = -(2**62)
"""The watermark before anything is known: no event can be older."""
END_US: Final = 2**62
"""The watermark after the end of the input: nothing can come any more."""
