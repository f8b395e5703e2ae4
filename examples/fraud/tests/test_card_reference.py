"""The rule, by example: what the reference says must be so plain that nobody doubts it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from card_reference import Alert, Model, Profile, Transaction, alerts, held

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


def paid(*uses: tuple[float, float], card: str = "c") -> list[Transaction]:
    """A card, used so many seconds after noon for so much."""
    return [
        Transaction(tx_id=f"{card}{number}", card_id=card, amount=amount, at=NOON + timedelta(seconds=second))
        for number, (second, amount) in enumerate(uses)
    ]


def at(second: float, lat: float, lon: float, tx_id: str) -> Transaction:
    """The card, used at a place."""
    return Transaction(
        tx_id=tx_id, card_id="c", amount=1, at=NOON + timedelta(seconds=second), lat=lat, lon=lon
    )


BERLIN, PARIS = (52.52, 13.41), (48.86, 2.35)
"""878 km apart."""


def by_rule(found: dict[str, Alert]) -> dict[str, list[str]]:
    rules: dict[str, list[str]] = {}
    for alert in found.values():
        rules.setdefault(alert.rule, []).append(alert.tx_id)
    return rules


def test_five_thousand_in_ten_minutes_are_nothing_special_and_a_cent_more_is() -> None:
    assert alerts(paid((0, 2_500), (599, 2_500))) == {}

    (alert,) = alerts(paid((0, 2_500), (599, 2_500.01))).values()
    assert (alert.rule, alert.tx_id, alert.value, alert.limit) == ("spending", "c1", 5_000.01, 5_000)


def test_ten_minutes_do_not_include_their_beginning() -> None:
    assert alerts(paid((0, 5_000), (600, 5_000))) == {}


def test_nobody_gets_from_berlin_to_paris_in_an_hour() -> None:
    (alert,) = alerts([at(0, *BERLIN, "a"), at(3_600, *PARIS, "b")]).values()

    assert (alert.rule, alert.tx_id, alert.evidence) == ("travel", "b", ("a", "b"))
    assert alert.value == pytest.approx(878, abs=2)
    assert alerts([at(0, *BERLIN, "a"), at(2 * 3_600, *PARIS, "b")]) == {}


def test_a_short_way_is_no_journey_however_fast() -> None:
    assert alerts([at(0, 52.52, 13.41, "a"), at(1, 52.92, 13.41, "b")]) == {}


def test_a_stop_on_the_way_that_comes_to_be_known_can_clear_a_traveller() -> None:
    journey = [at(0, *BERLIN, "a"), at(60, *PARIS, "c")]
    at_home_after_all = at(30, *PARIS, "b")

    assert by_rule(alerts(journey)) == {"travel": ["c"]}
    assert by_rule(alerts([*journey, at_home_after_all])) == {"travel": ["b"]}


def test_the_limits_are_those_of_the_profile_at_the_time_of_the_transaction() -> None:
    strict = Profile(card_id="c", since=NOON + timedelta(seconds=2), count_max=2, holder_id="h", tier="gold")
    generous = Profile(card_id="c", since=NOON + timedelta(seconds=4), count_max=100)

    found = alerts(used(0, 1, 2, 3, 4, 5, 6), [generous, strict])

    assert [(alert.tx_id, alert.limit, alert.holder_id, alert.tier) for alert in found.values()] == [
        ("c2", 2, "h", "gold"),
        ("c3", 2, "h", "gold"),
    ]


def test_a_score_above_the_limit_raises_an_alert() -> None:
    names = ("amount", "count_1m", "total_10m", "speed", "from_home", "risky")
    model = Model(weights={**dict.fromkeys(names, 0.0), "count_1m": 10.0}, intercept=-15.0)

    assert by_rule(alerts(used(0, 1, 2), model=model)) == {"model": ["c1", "c2"]}


def test_of_several_versions_of_an_alert_the_last_one_holds_unless_it_is_withdrawn() -> None:
    (alert,) = alerts(used(0, 1, 2, 3, 4, 5)).values()
    names = ("alert_id", "rule", "card_id", "tx_id", "total", "value", "limit", "holder_id", "tier")
    version = {name: getattr(alert, name) for name in names} | {
        "at": alert.at.isoformat(),
        "evidence": list(alert.evidence),
        "count": 6,
    }

    assert held([{**version, "count": 5, "holds": True}, {**version, "holds": True}]) == {
        alert.alert_id: alert
    }
    assert held([{**version, "holds": True}, {**version, "holds": False}]) == {}
