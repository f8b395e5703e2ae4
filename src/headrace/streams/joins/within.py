"""How far apart in event time two rows may be that belong together, and which rows a join gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, get_args

from headrace.errors import PipelineError
from headrace.streams.time.durations import Duration, duration_text, offset_us

How = Literal["inner", "left", "right", "full", "semi", "anti"]
HOWS: Final[tuple[How, ...]] = get_args(How)


@dataclass(frozen=True, slots=True, kw_only=True)
class Within:
    """A row of the right belongs to one of the left at t if it is in [t - before, t + after]."""

    before_us: int
    after_us: int

    @property
    def text(self) -> str:
        """In words."""
        return f"{duration_text(self.before_us)} before to {duration_text(self.after_us)} after"


def between(*, before: Duration = "0 seconds", after: Duration = "0 seconds") -> Within:
    """The rows of the right that are at most so long before, or after, the row of the left; both included.

    `hr.between(after="1 hour")` are clicks from the moment of their impression until an hour after it. Less
    than nothing moves an end to the other side: `before="-5 minutes"` begins five minutes after the row.
    """
    before_us, after_us = offset_us(before, "between: before"), offset_us(after, "between: after")
    if before_us + after_us < 0:
        raise PipelineError(
            f"between(before={before!r}, after={after!r}) ends before it begins: no two rows are so far apart"
        )
    return Within(before_us=before_us, after_us=after_us)
