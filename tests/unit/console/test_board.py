"""All that the page shows, from what the feed observes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from headrace.config import ConsoleConfig
from headrace.console.board import SERIES_LENGTH, Board
from headrace.console.observations import BrokerLost, FeedFailed, RecordsRead, TopicsMeasured

if TYPE_CHECKING:
    from tests.unit.console.conftest import Recorder

    from headrace.console.viewers import Viewer
    from headrace.testing.clock import ManualClock


@pytest.fixture
def board(clock: ManualClock) -> Board:
    return Board(ConsoleConfig(recent_alert_count_max=3, viewer_backlog_max=5), clock, session="s1")


def waiting(viewer: Viewer | None) -> list[tuple[str, str | None, Any]]:
    assert viewer is not None
    events = [*viewer._snapshot, *viewer._backlog]
    return [(event.name, event.id, json.loads(event.data)) for event in events]


def alert_ids(viewer: Viewer | None) -> list[str]:
    return [data["alert_id"] for name, _, data in waiting(viewer) if name == "alert"]


def test_a_new_page_gets_the_numbers_and_the_retained_alerts(board: Board, recorder: Recorder) -> None:
    board.apply(RecordsRead(records=tuple(recorder.alert(name) for name in "abcd")))
    viewer = board.join(None)
    assert waiting(viewer)[0][0] == "stats"
    assert alert_ids(viewer) == ["b", "c", "d"]


def test_a_page_that_reconnects_gets_only_what_it_has_missed(board: Board, recorder: Recorder) -> None:
    board.apply(RecordsRead(records=(recorder.alert("a"), recorder.alert("b"))))
    last_id = waiting(board.join(None))[-1][1]
    board.apply(RecordsRead(records=(recorder.alert("c"), recorder.alert("a"))))
    assert alert_ids(board.join(last_id)) == ["c", "a"]


@pytest.mark.parametrize(
    "foreign", ["s0-2", "2", "s1-", "s1-x", "s1--1", "s1-²", "nonsense", "s1-" + "0" * 5_000]
)
def test_an_id_that_is_not_of_this_session_gets_all_that_is_retained(
    board: Board, recorder: Recorder, foreign: str
) -> None:
    board.apply(RecordsRead(records=(recorder.alert("a"), recorder.alert("b"))))
    assert alert_ids(board.join(foreign)) == ["a", "b"]


def test_nothing_falls_between_the_snapshot_and_what_follows(board: Board, recorder: Recorder) -> None:
    board.apply(RecordsRead(records=(recorder.alert("a"),)))
    viewer = board.join(None)
    board.apply(RecordsRead(records=(recorder.alert("b"),)))
    assert alert_ids(viewer) == ["a", "b"]


def test_only_first_sightings_count_into_latency(
    board: Board, clock: ManualClock, recorder: Recorder
) -> None:
    sent_at = clock.now_ms()
    clock.advance(20)
    board.apply(RecordsRead(records=(recorder.alert("a", sent_at=sent_at),)))
    clock.advance(30_000)
    board.apply(RecordsRead(records=(recorder.alert("a", sent_at=sent_at),)))
    latency = board.stats()["latency"]
    assert (latency["count"], latency["p50_ms"], latency["max_ms"]) == (1, 20, 20)


def test_history_is_shown_and_does_not_count_into_latency(
    board: Board, clock: ManualClock, recorder: Recorder
) -> None:
    board.apply(RecordsRead(records=(recorder.alert("a", sent_at=clock.now_ms() - 10**9, live=False),)))
    assert [row["latency_ms"] for row in board.alerts()] == [None]
    assert board.stats()["latency"]["count"] == 0
    assert board.stats()["alerts"]["alert_count"] == 1


def test_rates_come_from_the_ends_of_the_topics(board: Board, clock: ManualClock) -> None:
    for second in range(3):
        board.apply(TopicsMeasured(input_end=1_000 * second, alerts_end=2 * second))
        board.tick()
        clock.advance(1_000)
    stats = board.stats()
    assert (stats["input"]["per_s"], stats["alerts"]["last_minute"]) == (1_000.0, 4)
    assert stats["series"]["input_per_s"] == [None, 1_000.0, 1_000.0]
    assert stats["series"]["alerts_per_s"] == [None, 2.0, 2.0]


def test_the_charts_reach_back_a_bounded_time(board: Board, clock: ManualClock) -> None:
    for _ in range(SERIES_LENGTH + 50):
        board.tick()
        clock.advance(1_000)
    assert {len(values) for values in board.stats()["series"].values()} == {SERIES_LENGTH}


def test_the_status_follows_the_broker(board: Board, clock: ManualClock) -> None:
    assert board.status().kind == "connecting"
    board.apply(TopicsMeasured(input_end=5, alerts_end=0))
    assert board.status().kind == "live"
    clock.advance(8_000)
    board.apply(TopicsMeasured(input_end=5, alerts_end=0))
    assert board.status().words == "no transactions for 8 s"
    clock.advance(1_000)
    board.apply(BrokerLost(reason=""))
    clock.advance(3_000)
    assert board.status().words == "broker 127.0.0.1:9092 not reachable for 4 s"
    board.apply(TopicsMeasured(input_end=6, alerts_end=0))
    assert board.status().kind == "live"
    board.apply(FeedFailed(reason="KafkaException: boom"))
    assert board.status().kind == "failed"


def test_a_page_that_is_full_is_cut_off_and_counted(board: Board, recorder: Recorder) -> None:
    board.join(None)
    board.apply(RecordsRead(records=tuple(recorder.alert(str(number)) for number in range(6))))
    assert board.stats()["viewers"] == {"count": 0, "count_max": 100, "cut_off_count": 1}


def test_every_record_of_a_batch_counts_in_exactly_one_number(board: Board, recorder: Recorder) -> None:
    records = (recorder.alert("a"), recorder.alert("a"), recorder.raw(b"?"), recorder.alert(rule="x"))
    board.apply(RecordsRead(records=records))
    counts = board.stats()["alerts"]
    assert (counts["alert_count"], counts["repeat_count"], counts["undecodable_count"]) == (2, 1, 1)


def test_what_leaves_is_ascii_json_even_for_a_lone_surrogate(board: Board, recorder: Recorder) -> None:
    board.apply(RecordsRead(records=(recorder.raw(b'{"alert_id": "\\ud800", "rule": "\\u2028"}'),)))
    viewer = board.join(None)
    assert viewer is not None
    assert all(event.data.isascii() and "\n" not in event.data for event in viewer._snapshot)


def test_a_withdrawal_of_what_was_not_seen_is_not_shown_and_not_timed(
    board: Board, recorder: Recorder, clock: ManualClock
) -> None:
    viewer = board.join(None)
    board.apply(RecordsRead(records=(recorder.alert("a", holds=False, sent_at=clock.now_ms()),)))
    stats = board.stats()
    assert (stats["alerts"]["alert_count"], stats["alerts"]["withdrawn_count"]) == (0, 1)
    assert stats["latency"]["count"] == 0
    assert alert_ids(viewer) == []
