"""Where a share group begins to read a partition that it has no position in: `share.auto.offset.reset`.

    earliest                 at the partition's beginning
    latest                   at its end
    by_duration:PT1H30M      at what came in the last hour and a half

Durations are those of ISO 8601, as Java reads them: days, hours, minutes and seconds with up to nine digits
behind the point. In capitals or not, each part with a sign of its own if need be, and none below nothing
altogether.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from headrace.config import LONG_MAX
from headrace.log.setting_kinds import SettingType, SettingValue

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
BY_DURATION: Final = "by_duration:"

_NUMBER: Final = "[-+]?[0-9]{1,19}"
_DURATION: Final = re.compile(
    rf"(?P<sign>[-+])?P(?=.)(?:(?P<days>{_NUMBER})D)?"
    rf"(?:T(?=.)(?:(?P<hours>{_NUMBER})H)?(?:(?P<minutes>{_NUMBER})M)?"
    rf"(?:(?P<seconds>{_NUMBER})(?:[.,](?P<fraction>[0-9]{{0,9}}))?S)?)?",
    re.IGNORECASE | re.ASCII,
)
_UNITS_S: Final = (("days", 86_400), ("hours", 3_600), ("minutes", 60), ("seconds", 1))
_NANOSECONDS: Final = 10**9


@dataclass(frozen=True, slots=True)
class OffsetReset:
    """The kind of the setting."""

    setting_type: SettingType = SettingType.STRING

    def read(self, text: str) -> str:
        """The text without spaces around it; ValueError says what is allowed."""
        value = text.strip()
        if value not in {EARLIEST, LATEST}:
            reset_duration_ms(value)
        return value

    def format(self, value: SettingValue) -> str:
        """As it was given."""
        return str(value)


def reset_duration_ms(value: str) -> int:
    """How far back `by_duration:...` reaches; ValueError says what is allowed."""
    found = _DURATION.fullmatch(value.removeprefix(BY_DURATION)) if value.startswith(BY_DURATION) else None
    if found is None:
        raise ValueError(f"{EARLIEST}, {LATEST} or {BY_DURATION}<PnDTnHnMn.nS>, such as {BY_DURATION}PT1H30M")
    nanoseconds = _nanoseconds(found)
    if not 0 <= nanoseconds < (LONG_MAX + 1) * _NANOSECONDS:
        raise ValueError(f"a duration from nothing to {LONG_MAX} seconds")
    return nanoseconds // 10**6


def _nanoseconds(found: re.Match[str]) -> int:
    seconds = sum(int(found[name] or 0) * unit_s for name, unit_s in _UNITS_S)
    fraction = int((found["fraction"] or "").ljust(9, "0"))
    # Behind a point, the sign is that of the number before it: -0.5 is less than nothing.
    fraction_sign = -1 if (found["seconds"] or "").startswith("-") else 1
    sign = -1 if found["sign"] == "-" else 1
    return sign * (seconds * _NANOSECONDS + fraction_sign * fraction)
