"""One row per alert, however often it is delivered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from headrace.console.alerts import AlertBook
from headrace.console.decode import Alert, Undecodable

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.unit.console.conftest import Recorder

    from headrace.testing.clock import ManualClock


def positions(book: AlertBook) -> list[int]:
    return [row.position for row in book.rows()]


def test_an_alert_that_comes_again_replaces_the_former_in_its_place(recorder: Recorder) -> None:
    book = AlertBook(recent_alert_count_max=10)
    book.take(recorder.alert("a", total=1))
    book.take(recorder.alert("b", total=2))
    sighting = book.take(recorder.alert("a", total=3))
    newest, oldest = book.rows()
    assert sighting.is_repeat
    assert isinstance(oldest.content, Alert)
    assert (oldest.content.total, oldest.sighting_count) == (3.0, 2)
    assert isinstance(newest.content, Alert)
    assert newest.content.alert_id == "b"
    assert (book.counts.alert_count, book.counts.repeat_count) == (2, 1)


def test_a_repeat_keeps_the_latency_of_the_first_sighting(clock: ManualClock, recorder: Recorder) -> None:
    book = AlertBook(recent_alert_count_max=10)
    sent_at = clock.now_ms()
    clock.advance(30)
    book.take(recorder.alert("a", sent_at=sent_at))
    clock.advance(60_000)
    book.take(recorder.alert("a", sent_at=sent_at))
    assert book.rows()[0].latency_ms == 30


def test_latency_is_unknown_for_history_for_skewed_clocks_and_without_a_send_time(
    clock: ManualClock, recorder: Recorder
) -> None:
    book = AlertBook(recent_alert_count_max=10)
    book.take(recorder.alert("history", sent_at=clock.now_ms() - 5, live=False))
    book.take(recorder.alert("future", sent_at=clock.now_ms() + 5_000))
    book.take(recorder.alert("unsent"))
    book.take(recorder.alert("rounded up", sent_at=clock.now_ms() + 1))
    assert [row.latency_ms for row in reversed(book.rows())] == [None, None, None, 0]


def test_alerts_without_an_id_are_each_their_own(recorder: Recorder) -> None:
    book = AlertBook(recent_alert_count_max=10)
    book.take(recorder.alert(rule="velocity"))
    book.take(recorder.alert(rule="velocity"))
    assert (len(book.rows()), book.counts.alert_count) == (2, 2)


def test_a_tombstone_is_counted_as_a_deletion_and_is_no_row(recorder: Recorder) -> None:
    book = AlertBook(recent_alert_count_max=10)
    book.take(recorder.alert("a"))
    sighting = book.take(recorder.raw(None))
    assert (sighting.row, sighting.is_repeat) == (None, False)
    assert len(book.rows()) == 1
    assert (book.counts.alert_count, book.counts.deleted_count, book.counts.undecodable_count) == (1, 1, 0)


def test_a_withdrawal_marks_the_row_that_it_withdraws_and_counts_as_a_repeat(recorder: Recorder) -> None:
    book = AlertBook(recent_alert_count_max=10)
    book.take(recorder.alert("a"))
    sighting = book.take(recorder.alert("a", holds=False))
    assert sighting.row is not None
    assert isinstance(sighting.row.content, Alert)
    assert not sighting.row.content.holds
    assert (book.counts.alert_count, book.counts.repeat_count, book.counts.withdrawn_count) == (1, 1, 0)


def test_a_withdrawal_of_what_was_not_seen_is_counted_and_is_no_alert_until_it_holds(
    clock: ManualClock, recorder: Recorder
) -> None:
    book = AlertBook(recent_alert_count_max=10)
    for alert_id in ("a", "a", None):
        sighting = book.take(recorder.alert(alert_id, holds=False, sent_at=clock.now_ms()))
        assert (sighting.row, sighting.is_repeat) == (None, False)
    assert (book.rows(), book.counts.alert_count, book.counts.withdrawn_count) == ([], 0, 3)
    book.take(recorder.alert("a", holds=True, sent_at=clock.now_ms()))
    assert (len(book.rows()), book.counts.alert_count, book.counts.repeat_count) == (1, 1, 0)


def test_undecodable_records_are_counted_and_kept(recorder: Recorder) -> None:
    book = AlertBook(recent_alert_count_max=10)
    book.take(recorder.raw(b"garbage"))
    assert isinstance(book.rows()[0].content, Undecodable)
    assert (book.counts.undecodable_count, book.counts.alert_count) == (1, 0)


def test_a_page_that_comes_back_gets_what_is_new_and_what_has_changed(recorder: Recorder) -> None:
    book = AlertBook(recent_alert_count_max=10)
    for alert_id in ("a", "b", "c"):
        book.take(recorder.alert(alert_id))
    seen = book.rows_after(0)[-1].sequence
    book.take(recorder.alert("d"))
    book.take(recorder.alert("a"))
    assert [row.position for row in book.rows_after(seen)] == [4, 1]


def test_a_repeat_of_an_alert_that_left_the_page_is_counted_and_not_shown(recorder: Recorder) -> None:
    book = AlertBook(recent_alert_count_max=1)
    book.take(recorder.alert("a"))
    book.take(recorder.alert("b"))
    sighting = book.take(recorder.alert("a"))
    assert (sighting.row, sighting.is_repeat) == (None, True)
    assert positions(book) == [2]


def test_the_id_of_a_retained_row_is_never_forgotten(recorder: Recorder) -> None:
    book = AlertBook(recent_alert_count_max=3, remembered_id_count_max=1)
    for alert_id in ("a", "b", "c", "a"):
        book.take(recorder.alert(alert_id))
    assert (book.counts.alert_count, book.counts.repeat_count) == (3, 1)


def test_a_forgotten_id_counts_as_new(recorder: Recorder) -> None:
    book = AlertBook(recent_alert_count_max=1, remembered_id_count_max=2)
    for alert_id in ("a", "b", "c", "a"):
        book.take(recorder.alert(alert_id))
    assert (book.counts.alert_count, book.counts.repeat_count) == (4, 0)


@given(
    ids=st.lists(st.sampled_from([None, *"abcdefgh"]), max_size=80),
    recent=st.integers(1, 5),
    extra=st.integers(0, 6),
)
def test_the_book_agrees_with_a_naive_one(
    new_recorder: Callable[[], Recorder], ids: list[str | None], recent: int, extra: int
) -> None:
    recorder = new_recorder()
    remembered = recent + extra
    book = AlertBook(recent_alert_count_max=recent, remembered_id_count_max=remembered)
    first_sightings: list[tuple[int, str | None]] = []
    repeats = 0
    for alert_id in ids:
        book.take(recorder.alert(alert_id))
        known = [name for _, name in first_sightings if name is not None][-remembered:]
        if alert_id is not None and alert_id in known:
            repeats += 1
        else:
            first_sightings.append((len(first_sightings) + 1, alert_id))
    assert positions(book) == [position for position, _ in first_sightings[-recent:]][::-1]
    assert (book.counts.alert_count, book.counts.repeat_count) == (len(first_sightings), repeats)
    assert len(book._positions) <= remembered
    assert len(book._rows) <= recent


@given(
    ids=st.lists(st.sampled_from("abcdef"), max_size=60),
    reconnects=st.lists(st.integers(0, 60), max_size=5),
)
def test_a_page_that_reconnects_anywhere_ends_with_every_retained_row(
    new_recorder: Callable[[], Recorder], ids: list[str], reconnects: list[int]
) -> None:
    recorder, book = new_recorder(), AlertBook(recent_alert_count_max=3)
    page: dict[int, int] = {}
    last_seen = 0
    for index, alert_id in enumerate(ids):
        book.take(recorder.alert(alert_id))
        if index in reconnects or index == len(ids) - 1:
            for row in book.rows_after(last_seen):
                page[row.position] = row.sighting_count
                last_seen = row.sequence
    assert {row.position: row.sighting_count for row in book.rows()}.items() <= page.items()
