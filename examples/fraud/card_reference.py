"""What alerts a log must raise, computed the plain way: no Spark, no stream, no bound.

It shares nothing with the pipeline but the rules in words, and is so plain that nobody doubts it. It is about
sets: in which order transactions and profiles come does not matter.
"""

from __future__ import annotations

import hashlib
import json
import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

MINUTE = timedelta(minutes=1)
RISKY = {"electronics", "gift-cards", "jewellery"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """What the rules look at."""

    tx_id: str
    card_id: str
    amount: float
    at: datetime
    merchant: str | None = None
    lat: float = 0.0
    lon: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What is known of a card's holder, from a moment on."""

    card_id: str
    since: datetime
    holder_id: str | None = None
    tier: str | None = None
    home_lat: float | None = None
    home_lon: float | None = None
    count_max: int | None = None
    total_max: float | None = None
    kmh_max: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """What must be said about one transaction."""

    alert_id: str
    rule: str
    card_id: str
    tx_id: str
    at: datetime
    count: int
    evidence: tuple[str, ...]
    total: float
    value: float
    limit: float
    holder_id: str | None = None
    tier: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A logistic regression: the weight of each feature, and what is added."""

    weights: Mapping[str, float]
    intercept: float
    limit: float = 0.9

    def score(self, features: Mapping[str, float]) -> float:
        """How sure the model is that it is fraud."""
        total = self.intercept + sum(self.weights[name] * value for name, value in features.items())
        return 1 / (1 + math.exp(-total)) if total > -700 else 0.0


def alerts(
    transactions: Iterable[Transaction], profiles: Iterable[Profile] = (), model: Model | None = None
) -> dict[str, Alert]:
    """All alerts, by their id."""
    by_card: defaultdict[str, dict[str, Transaction]] = defaultdict(dict)
    for transaction in transactions:
        by_card[transaction.card_id].setdefault(transaction.tx_id, transaction)
    known: defaultdict[str, set[Profile]] = defaultdict(set)
    for profile in profiles:
        known[profile.card_id].add(profile)
    found = (
        alert
        for card_id, card in by_card.items()
        for alert in _alerts_of_card(list(card.values()), known[card_id], model)
    )
    return {alert.alert_id: alert for alert in found}


def _alerts_of_card(
    card: Sequence[Transaction], profiles: Iterable[Profile], model: Model | None
) -> Iterator[Alert]:
    in_order = sorted(card, key=lambda one: (one.at, one.tx_id))
    versions = sorted(profiles, key=lambda one: one.since)
    for index, last in enumerate(in_order):
        version = bisect_right([one.since for one in versions], last.at)
        profile = versions[version - 1] if version else Profile(card_id=last.card_id, since=last.at)
        minute, ten = (_window(in_order, last, n * MINUTE) for n in (1, 10))
        previous = in_order[index - 1] if index else last
        yield from _verdicts(last, minute, ten, previous, profile)
        if model is not None:
            score = model.score(features(last, minute, ten, previous, profile))
            if score > model.limit:
                yield _alert("model", last, ten, score, model.limit, profile)


def _window(in_order: Sequence[Transaction], last: Transaction, length: timedelta) -> list[Transaction]:
    return [one for one in in_order if last.at - length < one.at <= last.at]


def _verdicts(
    last: Transaction,
    minute: list[Transaction],
    ten: list[Transaction],
    previous: Transaction,
    profile: Profile,
) -> Iterator[Alert]:
    count_max = 5 if profile.count_max is None else profile.count_max
    if len(minute) > count_max:
        yield _alert("velocity", last, minute, len(minute), count_max, profile)
    total_max = 5_000.0 if profile.total_max is None else profile.total_max
    if _total(ten) > total_max:
        yield _alert("spending", last, ten, _total(ten), total_max, profile)
    kmh_max = 500.0 if profile.kmh_max is None else profile.kmh_max
    kmh = speed_kmh(previous, last)
    if kmh > kmh_max:
        yield _alert("travel", last, [previous, last], kmh, kmh_max, profile)


def features(
    last: Transaction,
    minute: list[Transaction],
    ten: list[Transaction],
    previous: Transaction,
    profile: Profile,
) -> dict[str, float]:
    """What the model looks at."""
    is_known = profile.home_lat is not None and profile.home_lon is not None
    from_home = distance_km(last.lat, last.lon, profile.home_lat or 0, profile.home_lon or 0)
    return {
        "amount": math.log1p(max(last.amount, 0.0)),
        "count_1m": float(len(minute)),
        "total_10m": math.log1p(max(_total(ten), 0.0)),
        "speed": math.log1p(speed_kmh(previous, last)),
        "from_home": math.log1p(from_home) if is_known else 0.0,
        "risky": float(last.merchant in RISKY),
    }


def speed_kmh(previous: Transaction, last: Transaction) -> float:
    """How fast one must travel to make both; nothing where they are less than 50 km apart."""
    km = distance_km(previous.lat, previous.lon, last.lat, last.lon)
    hours = max(last.at - previous.at, timedelta(seconds=1)) / timedelta(hours=1)
    return km / hours if km >= 50 else 0.0


def distance_km(lat: float, lon: float, other_lat: float, other_lon: float) -> float:
    """The way over ground between two places."""
    a, b = math.radians(lat), math.radians(other_lat)
    half = math.sin((b - a) / 2) ** 2
    half += math.cos(a) * math.cos(b) * math.sin(math.radians(other_lon - lon) / 2) ** 2
    return 2 * 6371.0 * math.asin(min(1.0, math.sqrt(half)))


def _total(window: Iterable[Transaction]) -> float:
    return sum(round(one.amount * 100) for one in window) / 100


def _alert(  # noqa: PLR0917 - what an alert is made of
    rule: str, last: Transaction, window: list[Transaction], value: float, limit: float, profile: Profile
) -> Alert:
    name = f"{rule}/{last.card_id}/{last.tx_id}"
    return Alert(
        alert_id=hashlib.sha256(name.encode()).hexdigest()[:32],
        rule=rule,
        card_id=last.card_id,
        tx_id=last.tx_id,
        at=last.at,
        count=len(window),
        evidence=tuple(one.tx_id for one in window),
        total=_total(window),
        value=round(value, 3),
        limit=limit,
        holder_id=profile.holder_id,
        tier=profile.tier,
    )


def read_transaction(value: bytes) -> Transaction:
    """A transaction as the topic has it."""
    fields = json.loads(value)
    return Transaction(**{**fields, "at": _moment(fields["at"])})


def read_profile(value: bytes) -> Profile:
    """A profile as the topic has it."""
    fields = json.loads(value)
    return Profile(**{**fields, "since": _moment(fields["since"])})


def read_alert(fields: Mapping[str, Any]) -> Alert:
    """An alert as the topic `fraud-alerts` has it, as one to compare with."""
    names = ("alert_id", "rule", "card_id", "tx_id", "count", "total", "value", "limit", "holder_id", "tier")
    return Alert(
        **{name: fields[name] for name in names},
        at=_moment(fields["at"]),
        evidence=tuple(fields["evidence"]),
    )


def held(versions: Iterable[Mapping[str, Any]]) -> dict[str, Alert]:
    """The alerts that hold, of versions in the order of the topic: of each id the last, if not withdrawn."""
    last = {fields["alert_id"]: fields for fields in versions}
    return {alert_id: read_alert(fields) for alert_id, fields in last.items() if fields["holds"]}


def read_model(text: str) -> Model:
    """The model as it is published."""
    fields = json.loads(text)
    return Model(weights=fields["weights"], intercept=fields["intercept"], limit=fields["limit"])


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)
