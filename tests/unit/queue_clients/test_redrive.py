"""Which dead letters go back, and where to."""

from __future__ import annotations

import pytest

from headrace.errors import ConfigError
from headrace.queue_clients.redrive import Redrive
from headrace.queue_clients.redrive_filter import RedriveFilter
from headrace.testing.deliveries import death, delivery

LETTER = delivery(
    b'{"amount": 7}', headers={"x-death": [death(), death("older", "expired")], "tenant": "acme"}
)


@pytest.mark.parametrize(
    ("which", "passes"),
    [
        (RedriveFilter(), True),
        (RedriveFilter(reason="rejected"), True),
        (RedriveFilter(reason="expired"), False),
        (RedriveFilter(origin="orders"), True),
        (RedriveFilter(origin="older"), False),
        (RedriveFilter(routing_key="new"), True),
        (RedriveFilter(routing_key="orders"), False),
        (RedriveFilter(headers={"tenant": "acme"}), True),
        (RedriveFilter(headers={"tenant": "other"}), False),
        (RedriveFilter(headers={"missing": ""}), False),
        (RedriveFilter(body=lambda body: b"amount" in body), True),
        (RedriveFilter(body=lambda body: b"price" in body), False),
        (RedriveFilter(reason="rejected", headers={"tenant": "other"}), False),
    ],
)
def test_all_that_a_filter_asks_for_must_hold_for_the_last_death(which: RedriveFilter, passes: bool) -> None:
    assert which.passes(LETTER) is passes


def test_a_message_that_never_died_passes_only_who_asks_for_no_death() -> None:
    assert RedriveFilter().passes(delivery())
    assert not RedriveFilter(reason="rejected").passes(delivery())


@pytest.mark.parametrize(("value", "text"), [(True, "true"), (7, "7"), (b"x", "x"), ("x", "x")])
def test_headers_are_compared_as_texts(value: object, text: str) -> None:
    assert RedriveFilter(headers={"h": text}).passes(delivery(headers={"h": value}))


def test_a_dead_letter_goes_to_the_queue_where_it_died_and_to_no_other_that_its_exchange_feeds() -> None:
    assert Redrive(queue="dead").target_of(LETTER) == ("", "orders")


def test_a_dead_letter_goes_where_it_is_told_to() -> None:
    assert Redrive(queue="dead", to_queue="repair").target_of(LETTER) == ("", "repair")
    assert Redrive(queue="dead", to_exchange="shop").target_of(LETTER) == ("shop", "new")
    assert Redrive(queue="dead", to_exchange="shop").target_of(delivery()) == ("shop", "orders")


def test_nobody_guesses_where_a_message_without_a_death_belongs() -> None:
    assert Redrive(queue="dead").target_of(delivery()) is None
    assert Redrive(queue="orders").target_of(LETTER) is None


def test_a_redrive_in_circles_or_to_two_places_is_refused() -> None:
    with pytest.raises(ConfigError, match="can't go to dead"):
        Redrive(queue="dead", to_queue="dead")
    with pytest.raises(ConfigError, match="not both"):
        Redrive(queue="dead", to_queue="a", to_exchange="b")
