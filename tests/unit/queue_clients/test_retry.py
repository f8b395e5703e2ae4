"""What answers mean, and when to try again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.queue_clients.push.retry import Verdict, judged, pause_s, retry_after_s

NOW_MS = 1_794_916_800_000  # 2026-11-17T12:00:00Z
AGAIN = Verdict(decision="again")


@pytest.mark.parametrize(
    ("status", "decision"),
    [
        (200, "accepted"),
        (204, "accepted"),
        (299, "accepted"),
        (301, "given-up"),
        (302, "given-up"),
        (308, "given-up"),
        (400, "given-up"),
        (404, "given-up"),
        (408, "again"),
        (410, "given-up"),
        (425, "again"),
        (429, "again"),
        (500, "again"),
        (501, "given-up"),
        (503, "again"),
        (599, "again"),
    ],
)
def test_only_2xx_acknowledges_and_only_what_may_pass_is_tried_again(status: int, decision: str) -> None:
    assert judged(status, b"", None, now_ms=NOW_MS).decision == decision


def test_the_cause_has_the_status_and_the_beginning_of_what_was_said() -> None:
    assert judged(400, b" no such field ", None, now_ms=0).cause == "HTTP 400: no such field"
    assert len(judged(400, b"x" * 10_000, None, now_ms=0).cause) < 400


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("7", 7.0),
        (" 120 ", 120.0),
        ("Tue, 17 Nov 2026 12:01:00 GMT", 60.0),
        ("Tue, 17 Nov 2026 11:00:00 GMT", 0.0),
        ("soon", None),
        ("-5", None),
        ("", None),
        (None, None),
        ("9" * 400, 999_999_999.0),
    ],
)
def test_retry_after_is_read_as_seconds_or_as_a_date(value: str | None, seconds: float | None) -> None:
    assert retry_after_s(value, now_ms=NOW_MS) == seconds


def test_pauses_double_up_to_the_longest() -> None:
    pauses = [pause_s(number, AGAIN, first_s=1, longest_s=10, chance=1.0) for number in range(1, 7)]
    assert pauses == [1, 2, 4, 8, 10, 10]


@given(st.integers(1, 10_000), st.floats(0, 1))
def test_a_pause_is_between_half_of_its_length_and_all_of_it(attempt: int, chance: float) -> None:
    longest = pause_s(attempt, AGAIN, first_s=2, longest_s=300, chance=1.0)
    assert longest / 2 <= pause_s(attempt, AGAIN, first_s=2, longest_s=300, chance=chance) <= longest


def test_what_the_server_asks_for_is_honoured_up_to_the_longest_pause() -> None:
    asked = Verdict(decision="again", after_s=30)
    assert pause_s(1, asked, first_s=1, longest_s=300, chance=0.5) == 30
    assert pause_s(1, asked, first_s=1, longest_s=20, chance=0.5) == 20
    assert pause_s(9, asked, first_s=1, longest_s=300, chance=1.0) == 256
