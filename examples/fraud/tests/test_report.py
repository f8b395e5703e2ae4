"""What fraud costs, by how often one looks."""

from __future__ import annotations

from datetime import timedelta
from xml.etree import ElementTree as ET

import card_reference as reference
from report import START, day_of, losses, seen_by_batch, svg, table


def paid(minute: float, amount: float, card: str = "c") -> reference.Transaction:
    at = START + timedelta(minutes=minute)
    return reference.Transaction(tx_id=f"{card}{minute}", card_id=card, amount=amount, at=at)


def alert(minute: float, card: str = "c") -> reference.Alert:
    return reference.Alert(
        alert_id=f"{card}{minute}",
        rule="velocity",
        card_id=card,
        tx_id="",
        at=START + timedelta(minutes=minute),
        count=6,
        evidence=(),
        total=0,
        value=6,
        limit=5,
    )


def lost(frauds: list[reference.Transaction], alerts: list[reference.Alert]) -> dict[str, float]:
    return {one.name: one.lost for one in losses(frauds, alerts)}


def test_what_is_paid_after_an_alert_was_seen_is_saved() -> None:
    frauds = [paid(5, 1.0), paid(5.5, 10.0), paid(6.5, 100.0), paid(20, 1_000.0), paid(70, 10_000.0)]

    assert lost(frauds, [alert(5)]) == {
        "stream": 1.0,
        "batch every 1 min": 11.0,
        "batch every 15 min": 111.0,
        "batch every 60 min": 1_111.0,
        "nobody looks": 11_111.0,
    }


def test_an_alert_from_before_the_theft_saves_nothing() -> None:
    assert lost([paid(5, 1.0)], [alert(1)])["stream"] == 1.0


def test_an_alert_of_another_card_saves_nothing() -> None:
    assert lost([paid(5, 1.0), paid(6, 1.0)], [alert(5, card="d")])["stream"] == 2.0


def test_a_batch_sees_a_moment_at_the_end_of_the_interval_that_it_is_in() -> None:
    quarter = timedelta(minutes=15)

    assert seen_by_batch(START, quarter) == START + quarter
    assert seen_by_batch(START + quarter, quarter) == START + 2 * quarter


def test_a_day_has_thefts_and_looking_more_often_costs_less() -> None:
    arrivals = day_of(1, 10_000)
    transactions = [reference.read_transaction(one.value) for one in arrivals]
    frauds = [one for one, arrival in zip(transactions, arrivals, strict=True) if arrival.is_fraud]
    found = losses(frauds, reference.alerts(transactions).values())

    assert [one.lost for one in found] == sorted(one.lost for one in found)
    assert found[0].lost < found[-1].lost == found[-1].fraud
    assert table(found).count("\n") == len(found) + 1
    assert ET.fromstring(svg(found)).tag.endswith("svg")  # noqa: S314 - we have just written it
