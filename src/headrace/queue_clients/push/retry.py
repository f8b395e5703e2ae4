"""What an answer to a pushed message means, and when to try again. No I/O.

    2xx                          accepted
    408, 425, 429, 5xx           try again: after Retry-After, or after a pause that doubles
    no answer in time, no server try again
    all else, redirects as well  given up at once: the same request would be answered the same way

501 and 505 are among the last: the server will never do it. A pause is between half of its length and all of
it, at random, so that messages that failed together don't come back together.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final, Literal

Decision = Literal["accepted", "again", "given-up"]

_AGAIN: Final = frozenset({408, 425, 429})
_NEVER: Final = frozenset({501, 505})
SHOWN_CHARACTERS_MAX: Final = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What to do after an attempt."""

    decision: Decision
    cause: str = ""
    after_s: float | None = None
    """When the server asks to be tried again."""


def judged(status: int, body: bytes, retry_after: str | None, *, now_ms: int) -> Verdict:
    """What an answer means."""
    if 200 <= status < 300:
        return Verdict(decision="accepted")
    said = body.decode(errors="replace").strip()[:SHOWN_CHARACTERS_MAX]
    cause = f"HTTP {status}" + (f": {said}" if said else "")
    if status in _AGAIN or (status >= 500 and status not in _NEVER):
        return Verdict(decision="again", cause=cause, after_s=retry_after_s(retry_after, now_ms=now_ms))
    return Verdict(decision="given-up", cause=cause)


def retry_after_s(value: str | None, *, now_ms: int) -> float | None:
    """The seconds that Retry-After asks for, as a number or as a date; None where it says nothing."""
    if value is None:
        return None
    text = value.strip()
    if text.isascii() and text.isdecimal():
        return float(text[:9])
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    return max(0.0, moment.timestamp() - now_ms / 1000)


def pause_s(attempt: int, verdict: Verdict, *, first_s: float, longest_s: float, chance: float) -> float:
    """How long to wait after an attempt, counted from 1. `chance` is a random number from 0 to 1."""
    doubled_s = min(longest_s, first_s * 2.0 ** min(attempt - 1, 30))
    own_s = doubled_s * (0.5 + chance / 2)
    return own_s if verdict.after_s is None else min(longest_s, max(own_s, verdict.after_s))
