"""Why a message died, and what it is when it goes back to work."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from headrace.queue_clients.deaths import (
    DEATH_COUNT_MAX,
    REDRIVEN,
    cause_of,
    deaths_of,
    sent_back,
    with_death,
)

NOON = datetime(2026, 11, 17, 12, tzinfo=UTC)


def _died(headers: dict[str, Any], **changes: Any) -> dict[str, Any]:
    given = {"queue": "orders", "reason": "push-failed", "exchange": "", "routing_key": "orders"}
    return with_death(headers, **{**given, "died_at": NOON, "cause": "HTTP 400", **changes})


def test_the_last_death_comes_first() -> None:
    headers = _died(_died({}, queue="first"), queue="second", routing_key="key")
    assert [each.queue for each in deaths_of(headers)] == ["second", "first"]
    assert deaths_of(headers)[0].routing_keys == ("key",)
    assert deaths_of(headers)[0].died_at == NOON


def test_a_message_that_dies_the_same_way_again_is_counted_and_not_listed_twice() -> None:
    headers = _died(_died(_died({}), queue="other"))
    assert [(each.queue, each.count) for each in deaths_of(headers)] == [("orders", 2), ("other", 1)]


def test_the_cause_is_told_in_words_of_bounded_length() -> None:
    assert cause_of(_died({})) == "HTTP 400"
    assert len(cause_of(_died({}, cause="x" * 100_000)) or "") == 1000


def test_the_history_of_a_message_is_bounded() -> None:
    headers: dict[str, Any] = {}
    for number in range(3 * DEATH_COUNT_MAX):
        headers = _died(headers, queue=f"q{number}")
    assert len(deaths_of(headers)) == DEATH_COUNT_MAX


def test_a_message_that_goes_back_has_no_deaths_no_further_keys_and_a_count() -> None:
    headers = {
        "x-death": [],
        "x-first-death-queue": "q",
        "x-last-death-reason": "rejected",
        "x-delivery-count": 3,
        "CC": ["elsewhere"],
        "tenant": "acme",
    }
    assert sent_back(headers) == {"tenant": "acme", REDRIVEN: 1}
    assert sent_back(sent_back(headers))[REDRIVEN] == 2


@pytest.mark.parametrize(
    "entries", [None, "text", 7, [1, "x"], [{}], [{"queue": 5}], {"queue": "q"}, [{"queue": ""}]]
)
def test_headers_that_anybody_could_have_written_are_passed_over(entries: object) -> None:
    assert deaths_of({"x-death": entries}) == ()
    assert len(deaths_of(_died({"x-death": entries}))) == 1


def test_texts_that_came_as_bytes_are_read() -> None:
    found = deaths_of({"x-death": [{"queue": b"q", "reason": b"\xff", "routing-keys": [b"k"]}]})
    assert (found[0].queue, found[0].reason, found[0].routing_keys) == ("q", "\ufffd", ("k",))
