"""Lengths of time as people write them: `"30 seconds"`, `"1 hour 30 minutes"`, or a `timedelta`.

Inside, a length is a whole number of microseconds, as Spark's timestamps are. Months and years have no fixed
length, so they are refused.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

from headrace.errors import PipelineError

Duration = str | timedelta

_UNITS_US: Final = {
    "week": 604_800_000_000,
    "day": 86_400_000_000,
    "hour": 3_600_000_000,
    "minute": 60_000_000,
    "second": 1_000_000,
    "millisecond": 1_000,
    "microsecond": 1,
}
_DURATION_US_MAX: Final = 10_000 * 366 * _UNITS_US["day"]
"""Longer than any two times are apart, and short enough that sums of a few don't overflow."""
_PART: Final = re.compile(r"([+-]?\d+)\s*([a-z]+)")
_WHOLE: Final = re.compile(rf"\s*{_PART.pattern}(?:\s+{_PART.pattern})*\s*")


def duration_us(value: Duration, what: str) -> int:
    """A length of time in microseconds, more than nothing. `what` names it in errors."""
    length_us = offset_us(value, what)
    if length_us <= 0:
        raise PipelineError(f"{what} is {value!r}, but must be longer than nothing, such as '30 seconds'")
    return length_us


def delay_us(value: Duration, what: str) -> int:
    """A length of time in microseconds, which can be nothing."""
    length_us = offset_us(value, what)
    if length_us < 0:
        raise PipelineError(f"{what} is {value!r}, but must not be less than nothing, such as '0 seconds'")
    return length_us


def offset_us(value: Duration, what: str) -> int:
    """A shift of time in microseconds, to either side."""
    if isinstance(value, timedelta):
        length_us = value // timedelta(microseconds=1)
    elif isinstance(value, str):
        length_us = _parsed_us(value, what)
    else:
        raise PipelineError(
            f"{what} is {value!r}, but must be a string such as '30 seconds', or a datetime.timedelta"
        )
    if abs(length_us) > _DURATION_US_MAX:
        raise PipelineError(f"{what} is {value!r}, which is longer than 10,000 years")
    return length_us


def duration_text(length_us: int) -> str:
    """The same length in words that `offset_us` reads: `"1 hour 30 minutes"`."""
    if length_us == 0:
        return "0 seconds"
    sign, rest_us = ("-" if length_us < 0 else ""), abs(length_us)
    parts = []
    for unit, unit_us in _UNITS_US.items():
        count, rest_us = divmod(rest_us, unit_us)
        if count:
            parts.append(f"{sign}{count} {unit}{'' if count == 1 else 's'}")
    return " ".join(parts)


def _parsed_us(text: str, what: str) -> int:
    if not _WHOLE.fullmatch(text.lower()):
        raise PipelineError(f"{what} is {text!r}, which is no length of time; write '30 seconds' or '1 hour'")
    return sum(int(count) * _unit_us(unit, text, what) for count, unit in _PART.findall(text.lower()))


def _unit_us(unit: str, text: str, what: str) -> int:
    length_us = _UNITS_US.get(unit.removesuffix("s"))
    if length_us is None:
        units = ", ".join(f"{known}s" for known in _UNITS_US)
        raise PipelineError(f"{what} is {text!r}, but {unit!r} has no fixed length; there are {units}")
    return length_us
