"""Intervals, in the format of `IntervalStyle = postgres`: `1 year 2 mons -3 days +04:05:06.789`.

As a number, an interval is its microseconds, a month counting as a twelfth of 365.25 days. As text it keeps
its parts, `P1Y2M-3DT4H5M6.789S`, as months and days have no fixed length.
"""

from __future__ import annotations

import re
from typing import Final

from headrace.cdc.values.scalars import plain
from headrace.cdc.values.times import DAY_US

INFINITY_US: Final = 2**63 - 1
MINUS_INFINITY_US: Final = -(2**63)
_MONTH_US: Final = 2_629_800_000_000
_INTERVAL: Final = re.compile(
    rb"(?:([+-]?\d+) years? ?)?(?:([+-]?\d+) mons? ?)?(?:([+-]?\d+) days? ?)?"
    rb"(?:([+-]?)(\d+):(\d\d):(\d\d)(?:\.(\d{1,6}))?)?"
)
_INFINITIES: Final = {b"infinity": INFINITY_US, b"-infinity": MINUS_INFINITY_US}


def interval_us(value: bytes) -> bytes:
    """How long it is, about."""
    infinity = _INFINITIES.get(value)
    if infinity is not None:
        return b"%d" % infinity
    years, months, days, of_day_us = _parts(value)
    return b"%d" % ((years * 12 + months) * _MONTH_US + days * DAY_US + of_day_us)


def interval_iso(value: bytes) -> bytes:
    """All its parts, as ISO 8601 writes them."""
    if value in _INFINITIES:
        return plain(value)
    years, months, days, of_day_us = _parts(value)
    sign = b"-" if of_day_us < 0 else b""
    seconds, fraction = divmod(abs(of_day_us), 1_000_000)
    hours, minutes = seconds // 3600, seconds // 60 % 60
    in_seconds = (b"%d.%06d" % (seconds % 60, fraction)).rstrip(b"0").rstrip(b".")
    clock = (b"%d" % hours, b"%d" % minutes, in_seconds)
    h, m, s = (part if part == b"0" else sign + part for part in clock)
    return plain(b"P%dY%dM%dDT%bH%bM%bS" % (years, months, days, h, m, s))


def _parts(value: bytes) -> tuple[int, int, int, int]:
    """Years, months, days, and microseconds of the rest."""
    found = _INTERVAL.fullmatch(value)
    if found is None or not value:
        raise ValueError(f"{value!r} is no interval: set IntervalStyle to postgres for the capture")
    years, months, days, sign, *clock, fraction = found.groups()
    hours, minutes, seconds = (int(part or 0) for part in clock)
    of_day_us = (hours * 3600 + minutes * 60 + seconds) * 1_000_000 + int((fraction or b"").ljust(6, b"0"))
    return int(years or 0), int(months or 0), int(days or 0), -of_day_us if sign == b"-" else of_day_us
