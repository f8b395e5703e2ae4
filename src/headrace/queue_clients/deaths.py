"""Why a message was dead-lettered, as its header `x-death` tells it. No I/O.

A server puts an entry before the others each time that it dead-letters a message: from which queue, why,
and with which exchange and routing keys it had been published there. What `push` and bridges give up gets
an entry of the same form, and beside it the cause in words (`x-headrace-cause`).

A message that goes back to work must lose these entries. Servers take one that comes to the same queue again
for a cycle, and drop it silently. How often it was sent back stays with it (`x-headrace-redriven`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

CAUSE: Final = "x-headrace-cause"
REDRIVEN: Final = "x-headrace-redriven"
CAUSE_CHARACTERS_MAX: Final = 1000
DEATH_COUNT_MAX: Final = 32
"""So many entries are kept of a message's history."""
_OF_DEATH: Final = frozenset({"x-death", "x-delivery-count", "x-acquired-count", CAUSE})
_OF_DEATH_PREFIXES: Final = ("x-first-death-", "x-last-death-")
_MORE_KEYS: Final = frozenset({"CC", "BCC"})
"""With these a server would put copies into other queues as well, which have had theirs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """One time that a message was dead-lettered."""

    queue: str
    reason: str
    exchange: str
    routing_keys: tuple[str, ...]
    count: int
    died_at: datetime | None


def deaths_of(headers: Mapping[str, Any]) -> tuple[Death, ...]:
    """How a message died, the last time first. What is not of the form is passed over."""
    entries = headers.get("x-death")
    if not isinstance(entries, list):
        return ()
    return tuple(_death(each) for each in entries if isinstance(each, dict) and _text(each.get("queue")))


def cause_of(headers: Mapping[str, Any]) -> str | None:
    """Why it died, in words, where that is known."""
    return _text(headers.get(CAUSE)) or None


def sent_back(headers: Mapping[str, Any]) -> dict[str, Any]:
    """The headers of a dead letter that goes back to work."""
    kept = {
        name: value
        for name, value in headers.items()
        if name not in _OF_DEATH and name not in _MORE_KEYS and not name.startswith(_OF_DEATH_PREFIXES)
    }
    before = headers.get(REDRIVEN)
    return {**kept, REDRIVEN: (before if isinstance(before, int) else 0) + 1}


def with_death(
    headers: Mapping[str, Any],
    *,
    queue: str,
    reason: str,
    exchange: str,
    routing_key: str,
    died_at: datetime,
    cause: str,
) -> dict[str, Any]:
    """The headers of a message that is given up, with one more entry, which counts how often that was."""
    entries = headers.get("x-death")
    earlier = [each for each in entries if isinstance(each, dict)] if isinstance(entries, list) else []
    same = [each for each in earlier if each.get("queue") == queue and each.get("reason") == reason]
    others = [each for each in earlier if each not in same]
    entry = {
        "count": 1 + sum(_count(each) for each in same),
        "reason": reason,
        "queue": queue,
        "time": died_at,
        "exchange": exchange,
        "routing-keys": [routing_key],
    }
    kept = {name: value for name, value in headers.items() if name not in _MORE_KEYS}
    return {**kept, "x-death": [entry, *others][:DEATH_COUNT_MAX], CAUSE: cause[:CAUSE_CHARACTERS_MAX]}


def _death(entry: Mapping[str, Any]) -> Death:
    keys = entry.get("routing-keys")
    died_at = entry.get("time")
    return Death(
        queue=_text(entry.get("queue")),
        reason=_text(entry.get("reason")),
        exchange=_text(entry.get("exchange")),
        routing_keys=tuple(map(_text, keys)) if isinstance(keys, list) else (),
        count=_count(entry),
        died_at=died_at if isinstance(died_at, datetime) else None,
    )


def _count(entry: Mapping[str, Any]) -> int:
    count = entry.get("count")
    return count if isinstance(count, int) else 1


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value if isinstance(value, str) else ""
