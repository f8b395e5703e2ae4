"""The rule, by example: what the reference says must be so plain that nobody doubts it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from examples.fraud.reference import Transaction, alerts

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def used(*seconds: float, card: str = "c") -> list[Transaction]:
    """A card, used so many seconds after noon."""
    return [
        Transaction(tx_id=f"{card}{number}", card_id=card, amount=10.01, at=NOON + timedelta(seconds=second))
        for number, second in enumerate(seconds)
    ]


def test_five_transactions_in_a_minute_are_nothing_special() -> None:
    assert alerts(used(0, 10, 20, 30, 40)) == {}


def test_the_sixth_within_a_minute_raises_an_alert_with_all_six_as_evidence() -> None:
    (alert,) = alerts(used(0, 10, 20, 30, 40, 59.999)).values()

    assert (alert.tx_id, alert.count, alert.total) == ("c5", 6, 60.06)
    assert alert.evidence == ("c0", "c1", "c2", "c3", "c4", "c5")


def test_a_minute_does_not_include_its_beginning() -> None:
    assert alerts(used(0, 10, 20, 30, 40, 60)) == {}


def test_each_further_transaction_raises_an_alert_of_its_own() -> None:
    found = alerts(used(0, 1, 2, 3, 4, 5, 6, 7)).values()

    assert [(alert.tx_id, alert.count) for alert in found] == [("c5", 6), ("c6", 7), ("c7", 8)]


def test_transactions_at_the_same_moment_are_all_in_each_others_window() -> None:
    found = alerts(used(0, 0, 0, 0, 0, 0)).values()

    assert [alert.count for alert in found] == [6] * 6


def test_a_transaction_that_is_delivered_twice_counts_once() -> None:
    five = used(0, 1, 2, 3, 4)

    assert alerts([*five, *five]) == {}


def test_cards_have_nothing_to_do_with_each_other() -> None:
    assert alerts([*used(0, 1, 2), *used(0, 1, 2, card="d")]) == {}


def test_the_order_of_arrival_does_not_matter() -> None:
    transactions = used(0, 1, 2, 3, 4, 5, 6)

    assert alerts(transactions) == alerts(reversed(transactions))


def test_an_alert_has_the_same_id_whenever_it_is_computed() -> None:
    (first,) = alerts(used(0, 1, 2, 3, 4, 5))
    assert first in alerts(used(0, 1, 2, 3, 4, 5, 1.5, 2.5))
