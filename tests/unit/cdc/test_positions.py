from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.cdc.positions import LSN_MAX, Progress, format_lsn, parse_lsn
from headrace.errors import ProtocolError


@given(st.integers(0, LSN_MAX))
def test_a_position_comes_back_from_its_text(lsn: int) -> None:
    assert parse_lsn(format_lsn(lsn)) == lsn


def test_positions_are_written_as_postgresql_writes_them() -> None:
    assert format_lsn(0x16_B374D848) == "16/B374D848"
    assert parse_lsn("0/190241F8") == 419578360


@pytest.mark.parametrize("text", ["", "16", "16/", "/1", "16/B374D8480", "x/1", "1/-1", "1/1 "])
def test_what_is_no_position_is_refused(text: str) -> None:
    with pytest.raises(ProtocolError, match="16/B374D848"):
        parse_lsn(text)


@pytest.mark.parametrize("lsn", [-1, LSN_MAX + 1])
def test_a_number_that_is_no_position_is_refused(lsn: int) -> None:
    with pytest.raises(ValueError, match="64 bits"):
        format_lsn(lsn)


def test_an_idle_capture_follows_the_end_of_the_log() -> None:
    progress = Progress(100)
    progress.idle_at(150)
    assert progress.confirmable == 150


def test_nothing_is_confirmed_past_a_transaction_that_is_not_published() -> None:
    progress = Progress(100)
    progress.begun()
    progress.idle_at(500)
    assert progress.confirmable == 100
    progress.delivered(200)
    progress.idle_at(500)
    assert progress.confirmable == 100
    progress.published(200)
    assert progress.confirmable == 200
    progress.idle_at(500)
    assert progress.confirmable == 500


def test_publishing_one_transaction_does_not_confirm_the_next() -> None:
    progress = Progress()
    progress.begun()
    progress.delivered(200)
    progress.begun()
    progress.published(200)
    progress.idle_at(900)
    assert progress.confirmable == 200
    assert progress.is_pending


def test_of_several_transactions_in_flight_all_must_be_published_before_the_log_is_followed() -> None:
    progress = Progress()
    for end in (200, 300):
        progress.begun()
        progress.delivered(end)
    progress.published(200)
    progress.idle_at(900)
    assert progress.confirmable == 200
    progress.published(300)
    progress.idle_at(900)
    assert progress.confirmable == 900


def test_what_is_confirmable_never_goes_back() -> None:
    progress = Progress(500)
    progress.idle_at(100)
    progress.begun()
    progress.delivered(300)
    progress.published(300)
    assert progress.confirmable == 500
