"""Dates and times, in the formats of `DateStyle = ISO` and `TimeZone = UTC`.

| type | JSON |
|---|---|
| date | days since 1970-01-01 |
| time | microseconds since midnight; milliseconds, if declared with 3 digits or less |
| timetz | "10:34:56.789Z", in UTC |
| timestamp | microseconds since 1970-01-01, as if in UTC; milliseconds, if declared with 3 digits or less |
| timestamptz | "2026-01-02T01:04:05.678901Z", with as many digits as declared |

Python's dates end at the years 1 and 9999, PostgreSQL's reach from 4713 BC to 294276: what Python can't
take is computed here, in the calendar that both extend into the past. 1 BC is the year 0.
"""

from __future__ import annotations

import re
from datetime import date, datetime
from typing import Final

from headrace.cdc.values.scalars import Converter, plain

PRECISION_MAX: Final = 6
DATE_INFINITY: Final = 2**31 - 1
DATE_MINUS_INFINITY: Final = -(2**31)
TIMESTAMP_INFINITY: Final = 9_223_372_036_825_200_000
"""What PostgreSQL's Java driver, and so Debezium, makes of it."""
TIMESTAMP_MINUS_INFINITY: Final = -9_223_372_036_832_400_000
DAY_US: Final = 86_400_000_000
_EPOCH_ORDINAL: Final = date(1970, 1, 1).toordinal()
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - a timestamp without time zone is what it is
_UTC: Final = b"+00"
_DATE: Final = rb"(?P<year>\d{4,6})-(?P<month>\d\d)-(?P<day>\d\d)"
_CLOCK: Final = rb"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)(?:\.(?P<fraction>\d{1,6}))?"
_ZONE: Final = rb"(?P<sign>[+-])(?P<zone_h>\d\d)(?::(?P<zone_m>\d\d))?(?::(?P<zone_s>\d\d))?"
_ANY_DATE: Final = re.compile(_DATE + rb"(?P<bc> BC)?")
_ANY_CLOCK: Final = re.compile(_CLOCK + rb"(?:" + _ZONE + rb")?")
_ANY_TIMESTAMP: Final = re.compile(_DATE + rb"[ T]" + _CLOCK + rb"(?:" + _ZONE + rb")?(?P<bc> BC)?")
_DATES: Final = {b"infinity": b"%d" % DATE_INFINITY, b"-infinity": b"%d" % DATE_MINUS_INFINITY}
_INFINITIES: Final = {b"infinity": TIMESTAMP_INFINITY, b"-infinity": TIMESTAMP_MINUS_INFINITY}
_ISO_LENGTH: Final = len("2026-01-02 03:04:05")


def precision_of(modifier: int) -> int:
    """How many digits of a second a column was declared with."""
    return modifier if 0 <= modifier <= PRECISION_MAX else PRECISION_MAX


def days(value: bytes) -> bytes:
    """A date."""
    try:
        return b"%d" % (date.fromisoformat(value.decode()).toordinal() - _EPOCH_ORDINAL)
    except ValueError:
        return _DATES.get(value) or b"%d" % _days_of(_matched(_ANY_DATE, value))


def time_of_day(modifier: int) -> Converter:
    """A time without zone."""
    unit_us = 1 if precision_of(modifier) > 3 else 1000

    def convert(value: bytes) -> bytes:
        return b"%d" % (_clock_us(_matched(_ANY_CLOCK, value)) // unit_us)

    return convert


def time_with_zone(value: bytes) -> bytes:
    """A time with zone, moved to UTC."""
    found = _matched(_ANY_CLOCK, value)
    return plain(_clock_text((_clock_us(found) - _zone_us(found)) % DAY_US, None) + b"Z")


def timestamp(modifier: int) -> Converter:
    """A timestamp without zone."""
    is_fine = precision_of(modifier) > 3

    def convert(value: bytes) -> bytes:
        at_us = _INFINITIES.get(value)
        if at_us is not None:
            return b"%d" % at_us
        return b"%d" % (timestamp_us(value) if is_fine else timestamp_us(value) // 1000)

    return convert


def timestamp_with_zone(modifier: int) -> Converter:
    """A timestamp with zone, in UTC."""
    width = precision_of(modifier)

    def convert(value: bytes) -> bytes:
        # A server whose zone is UTC has written all of it already, but for zeros at the end.
        if value[-3:] == _UTC and value[4] == 45:
            fraction = b"." + value[_ISO_LENGTH + 1 : -3].ljust(width, b"0") if width else b""
            return b'"%bT%b%bZ"' % (value[:10], value[11:_ISO_LENGTH], fraction)
        if value in _INFINITIES:
            return plain(value)
        return plain(_iso_text(timestamp_us(value), width))

    return convert


def timestamp_us(value: bytes) -> int:
    """Microseconds since 1970 UTC of a timestamp; of one without zone as if it were UTC."""
    try:
        since = datetime.fromisoformat(value.decode()) - _EPOCH
    except (ValueError, TypeError):
        # It has a zone, or is of a year that Python does not know.
        found = _matched(_ANY_TIMESTAMP, value)
        return _days_of(found) * DAY_US + _clock_us(found) - _zone_us(found)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _matched(pattern: re.Pattern[bytes], value: bytes) -> re.Match[bytes]:
    found = pattern.fullmatch(value)
    if found is None:
        raise ValueError(f"{value!r} is no date or time in ISO format: set DateStyle to ISO for the capture")
    return found


def _days_of(found: re.Match[bytes]) -> int:
    year = 1 - int(found["year"]) if found["bc"] else int(found["year"])
    # The calendar repeats after 400 years, of 146,097 days.
    cycles, year_of_cycle = divmod(year - 1, 400)
    in_cycle = date(year_of_cycle + 1, int(found["month"]), int(found["day"])).toordinal()
    return cycles * 146_097 + in_cycle - _EPOCH_ORDINAL


def _clock_us(found: re.Match[bytes]) -> int:
    seconds = int(found["hour"]) * 3600 + int(found["minute"]) * 60 + int(found["second"])
    return seconds * 1_000_000 + int((found["fraction"] or b"").ljust(6, b"0"))


def _zone_us(found: re.Match[bytes]) -> int:
    if not found["sign"]:
        return 0
    seconds = int(found["zone_h"]) * 3600 + int(found["zone_m"] or 0) * 60 + int(found["zone_s"] or 0)
    return (-seconds if found["sign"] == b"-" else seconds) * 1_000_000


def _iso_text(at_us: int, width: int) -> bytes:
    since_epoch, of_day_us = divmod(at_us, DAY_US)
    cycles, in_cycle = divmod(since_epoch + _EPOCH_ORDINAL - 1, 146_097)
    day = date.fromordinal(in_cycle + 1)
    year = cycles * 400 + day.year
    sign = b"-" if year < 0 else b"+" if year > 9999 else b""
    clock = _clock_text(of_day_us, width)
    return b"%b%04d-%02d-%02dT%bZ" % (sign, abs(year), day.month, day.day, clock)


def _clock_text(of_day_us: int, width: int | None) -> bytes:
    seconds, fraction = divmod(of_day_us, 1_000_000)
    clock = b"%02d:%02d:%02d" % (seconds // 3600, seconds // 60 % 60, seconds % 60)
    digits = b"%06d" % fraction
    digits = digits.rstrip(b"0") if width is None else digits[:width]
    return clock + b"." + digits if digits else clock
