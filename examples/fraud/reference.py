"""The alerts that a list of transactions must raise, computed the plain way: no Spark, no stream, no bound.

It shares nothing with the pipeline but the rule in words: a transaction raises an alert when more than 5
transactions of its card, itself included, lie within the minute that ends with it.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """What the rule looks at."""

    tx_id: str
    card_id: str
    amount: float
    at: datetime


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


def alerts(transactions: Iterable[Transaction]) -> dict[str, Alert]:
    """All alerts, by their id."""
    by_card: defaultdict[str, set[Transaction]] = defaultdict(set)
    for transaction in transactions:
        by_card[transaction.card_id].add(transaction)
    found = (alert for card in by_card.values() for alert in _alerts_of_card(card))
    return {alert.alert_id: alert for alert in found}


def _alerts_of_card(card: set[Transaction]) -> Iterable[Alert]:
    in_order = sorted(card, key=lambda transaction: (transaction.at, transaction.tx_id))
    for last in in_order:
        begin = last.at - timedelta(minutes=1)
        window = [transaction for transaction in in_order if begin < transaction.at <= last.at]
        if len(window) > 5:
            yield _alert(last, window)


def _alert(last: Transaction, window: list[Transaction]) -> Alert:
    name = f"velocity/{last.card_id}/{last.tx_id}"
    return Alert(
        alert_id=hashlib.sha256(name.encode()).hexdigest()[:32],
        rule="velocity",
        card_id=last.card_id,
        tx_id=last.tx_id,
        at=last.at,
        count=len(window),
        evidence=tuple(transaction.tx_id for transaction in window),
        total=sum(round(transaction.amount * 100) for transaction in window) / 100,
    )


def read_alert(fields: Mapping[str, Any]) -> Alert:
    """An alert as the topic `fraud-alerts` has it, as one to compare with."""
    return Alert(
        alert_id=fields["alert_id"],
        rule=fields["rule"],
        card_id=fields["card_id"],
        tx_id=fields["tx_id"],
        at=datetime.fromisoformat(fields["at"]),
        count=fields["count"],
        evidence=tuple(fields["evidence"]),
        total=fields["total"],
    )
