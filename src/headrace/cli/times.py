"""Points in time and durations as people write them.

moment      2026-11-16T09:30:00+01:00, 2026-11-16 (midnight UTC), 1794787200000 (milliseconds), 15m (ago)
duration    90s, 15m, 1h30m, 7d, or ISO 8601 as Kafka's tools take it: PT1H30M, P7D
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

from headrace.errors import ConfigError

_UNIT_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_DURATION: Final = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|s|m|h|d|w))+", re.IGNORECASE)
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)", re.IGNORECASE)
_ISO: Final = re.compile(
    r"P(?=.)(?:(\d+)W)?(?:(\d+)D)?(?:T(?=.)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?"
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_ISO_UNITS: Final = ("w", "d", "h", "m", "s")


def parse_duration_ms(text: str) -> int:
    """How many milliseconds a duration has."""
    found = _duration_ms(text)
    if found is None:
        raise ConfigError(f"{text!r} is not a duration: write 90s, 15m, 1h30m, 7d or PT1H30M")
    return found


def parse_moment_ms(text: str, *, now_ms: int) -> int:
    """Milliseconds since 1970. A duration stands for the moment that long ago."""
    ago_ms = _duration_ms(text)
    if ago_ms is not None:
        return now_ms - ago_ms
    if text == "now":
        return now_ms
    if text.isdecimal():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"{text!r} is not a moment: write 2026-11-16T09:30:00Z, milliseconds since 1970, "
            "or 15m for that long ago"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def _duration_ms(text: str) -> int | None:
    if _DURATION.fullmatch(text):
        return int(sum(float(number) * _UNIT_MS[unit.lower()] for number, unit in _PART.findall(text)))
    iso = _ISO.fullmatch(text)
    if iso is None:
        return None
    parts = zip(iso.groups(), _ISO_UNITS, strict=True)
    return int(sum(float(number) * _UNIT_MS[unit] for number, unit in parts if number is not None))
