"""Whether anything stands still, in words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headrace.console.status import Contact, duration, status_of

LIVE = Contact(
    bootstrap="127.0.0.1:9092",
    input_topic="transactions",
    alerts_topic="fraud-alerts",
    reached=True,
    input_end=100,
    alerts_end=0,
    input_idle_s=1.0,
)


def words(contact: Contact) -> tuple[str, str]:
    status = status_of(contact, now_ms=1_000_000)
    return status.kind, status.words


def test_an_input_that_grows_is_live() -> None:
    assert words(LIVE) == ("live", "live")


def test_an_input_that_stands_still_is_a_stall_with_its_length() -> None:
    status = status_of(replace(LIVE, input_idle_s=12.4), now_ms=1_000_000)
    assert (status.kind, status.words, status.since_ms) == ("stalled", "no transactions for 12 s", 987_600)


def test_a_lost_broker_is_named_with_its_address_and_the_time() -> None:
    lost = replace(LIVE, lost_for_s=75.0, lost_reason="Broker: SASL Authentication failed")
    assert words(lost) == (
        "unreachable",
        "broker 127.0.0.1:9092 not reachable for 1 min 15 s (Broker: SASL Authentication failed)",
    )


def test_a_console_that_has_just_started_is_connecting_and_then_says_that_nobody_answers() -> None:
    never = replace(LIVE, reached=False, input_end=None, alerts_end=None)
    assert words(never) == ("connecting", "connecting to 127.0.0.1:9092")
    assert words(replace(never, lost_for_s=1.0))[0] == "connecting"
    assert words(replace(never, lost_for_s=4.0))[0] == "unreachable"


def test_missing_topics_are_named() -> None:
    assert words(replace(LIVE, alerts_end=None)) == (
        "waiting",
        "waiting for topic fraud-alerts to be created",
    )
    assert words(replace(LIVE, alerts_end=None, input_end=None)) == (
        "waiting",
        "waiting for topics transactions and fraud-alerts to be created",
    )


def test_an_input_that_never_had_a_record_is_waited_for() -> None:
    assert words(replace(LIVE, input_end=0, input_idle_s=100)) == (
        "waiting",
        "waiting for the first record on transactions",
    )


def test_a_console_that_has_stopped_reading_says_so_before_all_else() -> None:
    kind, text = words(replace(LIVE, failure="KafkaException: boom", lost_for_s=9.0))
    assert kind == "failed"
    assert "KafkaException: boom" in text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.9, "0 s"), (59, "59 s"), (60, "1 min 0 s"), (3_599, "59 min 59 s"), (7_500, "2 h 5 min")],
)
def test_durations_are_read_at_a_glance(seconds: float, text: str) -> None:
    assert duration(seconds) == text
