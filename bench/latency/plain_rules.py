"""The rules of examples/fraud, a card at a time, in plain Python: what quix_fraud.py keeps and computes.

Like the pipeline on Spark it keeps a card's HISTORY_LIMIT newest transactions and PROFILE_LIMIT newest
profiles, judges again what an arrival concerns, and says the same of it: alerts with the same ids, evidence
and fields, withdrawn ones included. The state of a card is made of lists, numbers and texts, so that it can
be kept as JSON:

    {"seen": [[at_us, tx_id, amount, merchant, lat, lon, sent_at], ...],      by (at_us, tx_id)
     "profiles": [[since_us, fields], ...]}                                   by since_us
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import log1p
from typing import Any, Final

from card_reference import RISKY, Model, distance_km

HISTORY_LIMIT: Final = 50
PROFILE_LIMIT: Final = 8
SECOND_US: Final = 1_000_000
MINUTE_US: Final = 60 * SECOND_US
HOUR_US: Final = 60 * MINUTE_US
KM_MIN: Final = 50.0
AT, TX_ID, AMOUNT, MERCHANT, LAT, LON, SENT_AT = range(7)
SINCE, FIELDS = 0, 1

Use = list[Any]
Card = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A rule that is broken."""

    rule: str
    value: float
    limit: float
    evidence: list[Use]
    complete: bool
    km: float | None = None


def new_card() -> Card:
    """A card that nothing is known of."""
    return {"seen": [], "profiles": []}


def add_transaction(
    card: Card, fields: Mapping[str, Any], sent_at: int, model: Model
) -> list[dict[str, Any]]:
    """Take a transaction in; returns the alerts that have to be written for it."""
    seen: list[Use] = card["seen"]
    use = [micros(fields["at"]), fields["tx_id"], *(fields.get(name) for name in ("amount", "merchant"))]
    use += [fields["lat"], fields["lon"], sent_at]
    if any(one[TX_ID] == use[TX_ID] for one in seen):
        return []
    place = bisect_left(seen, use[:2], key=lambda one: one[:2])
    last = bisect_left(seen, [use[AT] + 10 * MINUTE_US, ""], key=lambda one: one[:2])
    concerned = seen[place : max(last, place + 1)]
    before = [{one.rule for one in judge(card, old, model)} for old in concerned]
    seen.insert(place, use)
    del seen[: max(0, len(seen) - HISTORY_LIMIT)]
    told = [alert(card, fields["card_id"], use, one, sent_at) for one in judge(card, use, model)]
    return told + _again(card, fields["card_id"], concerned, before, sent_at, model)


def add_profile(card: Card, fields: Mapping[str, Any], sent_at: int, model: Model) -> list[dict[str, Any]]:
    """Take a profile in; returns the alerts that it makes true or untrue."""
    since = micros(fields["since"])
    concerned = [one for one in card["seen"] if one[AT] >= since]
    before = [{one.rule for one in judge(card, old, model)} for old in concerned]
    insort(card["profiles"], [since, dict(fields)], key=lambda one: one[SINCE])
    del card["profiles"][: max(0, len(card["profiles"]) - PROFILE_LIMIT)]
    return _again(card, fields["card_id"], concerned, before, sent_at, model)


def _again(  # noqa: PLR0917 - an update and what it is about
    card: Card, card_id: str, concerned: Sequence[Use], before: Sequence[set[str]], sent_at: int, model: Model
) -> list[dict[str, Any]]:
    told = []
    for use, held in zip(concerned, before, strict=True):
        now = judge(card, use, model)
        told += [alert(card, card_id, use, one, sent_at) for one in now]
        gone = held - {one.rule for one in now}
        told += [
            alert(
                card, card_id, use, Verdict(rule=rule, value=0, limit=0, evidence=[], complete=True), sent_at
            )
            | {"holds": False}
            for rule in sorted(gone)
        ]
    return told


def judge(card: Card, use: Use, model: Model) -> list[Verdict]:
    """The rules that a transaction of the card breaks, as far as is known."""
    seen, at = card["seen"], use[AT]
    end = bisect_right(seen, at, key=lambda one: one[AT])
    minute = seen[bisect_right(seen, at - MINUTE_US, key=lambda one: one[AT]) : end]
    ten = seen[bisect_right(seen, at - 10 * MINUTE_US, key=lambda one: one[AT]) : end]
    place = bisect_left(seen, use[:2], key=lambda one: one[:2])
    previous = seen[place - 1] if place else use
    return list(_broken(card, use, minute, ten, previous, model))


def _broken(  # noqa: PLR0917 - what the rules look at
    card: Card, use: Use, minute: list[Use], ten: list[Use], previous: Use, model: Model
) -> Iterator[Verdict]:
    profile = profile_of(card, use[AT])
    count_max = _limit(profile, "count_max", 5)
    if len(minute) > count_max:
        yield _verdict(card, use, "velocity", 1, (len(minute), count_max), minute)
    spent, total_max = total(ten), _limit(profile, "total_max", 5_000.0)
    if spent > total_max:
        yield _verdict(card, use, "spending", 10, (spent, total_max), ten)
    km = distance_km(previous[LAT], previous[LON], use[LAT], use[LON])
    hours = max(use[AT] - previous[AT], SECOND_US) / HOUR_US
    kmh, kmh_max = km / hours if km >= KM_MIN else 0.0, _limit(profile, "kmh_max", 500.0)
    if kmh > kmh_max:
        yield _verdict(card, use, "travel", 0, (kmh, kmh_max), [previous, use], km)
    score = model.score(_features(use, len(minute), spent, kmh, profile))
    if score > model.limit:
        yield _verdict(card, use, "model", 10, (score, model.limit), ten)


def _verdict(  # noqa: PLR0917 - what a verdict is made of
    card: Card,
    use: Use,
    rule: str,
    minutes: int,
    measured: tuple[float, float],
    evidence: list[Use],
    km: float | None = None,
) -> Verdict:
    seen, profiles = card["seen"], card["profiles"]
    reaches_back = len(seen) < HISTORY_LIMIT or seen[0][AT] <= use[AT] - minutes * MINUTE_US
    knows_profile = len(profiles) < PROFILE_LIMIT or profiles[0][SINCE] <= use[AT]
    value, limit = measured
    complete = reaches_back and knows_profile
    return Verdict(rule=rule, value=value, limit=limit, evidence=evidence, complete=complete, km=km)


def _features(
    use: Use, count: int, spent: float, kmh: float, profile: Mapping[str, Any] | None
) -> dict[str, float]:
    lat, lon = (profile or {}).get("home_lat"), (profile or {}).get("home_lon")
    km = distance_km(use[LAT], use[LON], lat, lon) if lat is not None and lon is not None else 0.0
    return {
        "amount": log1p(max(use[AMOUNT], 0.0)),
        "count_1m": float(count),
        "total_10m": log1p(max(spent, 0.0)),
        "speed": log1p(kmh),
        "from_home": log1p(km),
        "risky": float(use[MERCHANT] in RISKY),
    }


def profile_of(card: Card, at_us: int) -> Mapping[str, Any] | None:
    """The version that counts at this moment; None if there is none."""
    number = bisect_right(card["profiles"], at_us, key=lambda one: one[SINCE])
    return card["profiles"][number - 1][FIELDS] if number else None


def _limit(profile: Mapping[str, Any] | None, name: str, usual: float) -> float:
    value: float | None = profile.get(name) if profile is not None else None
    return usual if value is None else value


def total(uses: Sequence[Use]) -> float:
    """Their money, added up in cents."""
    cents: int = sum(round(one[AMOUNT] * 100) for one in uses)
    return cents / 100


def alert(card: Card, card_id: str, use: Use, verdict: Verdict, sent_at: int) -> dict[str, Any]:
    """The alert as it is written."""
    profile = profile_of(card, use[AT]) or {}
    name = f"{verdict.rule}/{card_id}/{use[TX_ID]}"
    return {
        "alert_id": hashlib.sha256(name.encode()).hexdigest()[:32],
        "rule": verdict.rule,
        "card_id": card_id,
        "tx_id": use[TX_ID],
        "at": moment(use[AT]),
        "count": len(verdict.evidence),
        "evidence": [one[TX_ID] for one in verdict.evidence],
        "total": total(verdict.evidence),
        "transactions": [
            {
                "tx_id": one[TX_ID],
                "at": moment(one[AT]),
                "amount": one[AMOUNT],
                "merchant": one[MERCHANT],
                "lat": one[LAT],
                "lon": one[LON],
            }
            for one in verdict.evidence
        ],
        "value": round(verdict.value, 3),
        "limit": verdict.limit,
        "km": None if verdict.km is None else round(verdict.km, 1),
        **{field: profile.get(field) for field in ("holder_id", "tier", "home_lat", "home_lon")},
        "holds": True,
        "complete": verdict.complete,
        "sent_at": sent_at,
    }


def micros(text: str) -> int:
    """A moment as epoch microseconds."""
    parsed = datetime.fromisoformat(text)
    # All of it as a float would be rounded.
    return int(parsed.replace(microsecond=0).timestamp()) * SECOND_US + parsed.microsecond


def moment(at_us: int) -> str:
    """Epoch microseconds as the text that they were read from."""
    seconds, rest = divmod(at_us, SECOND_US)
    at = datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest)
    return at.isoformat(timespec="microseconds").replace("+00:00", "Z")
