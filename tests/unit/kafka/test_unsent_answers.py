"""How many bytes of answers wait for clients to take them."""

from __future__ import annotations

import pytest

from headrace.kafka.budget import PACE_BYTES_PER_S_MIN, PACE_WINDOW_S
from headrace.kafka.unsent_answers import HELD_FILES_MAX, Backlog, UnsentAnswers


def test_answers_of_all_connections_count_and_give_their_room_back() -> None:
    unsent = UnsentAnswers(100)
    first, second = Backlog(unsent), Backlog(unsent)
    first.note(60)
    second.note(50)
    assert (unsent.size_bytes, unsent.room_bytes) == (110, 0)
    assert second.note(30)
    assert not second.note(30), "nothing more was taken"
    assert (unsent.size_bytes, unsent.room_bytes) == (90, 10)


def test_whoever_waits_for_room_is_called_once_when_there_is_some() -> None:
    unsent = UnsentAnswers(100)
    slow = Backlog(unsent)
    calls: list[str] = []

    def try_again() -> None:
        calls.append("again")

    slow.note(150)
    assert not unsent.has_room(try_again)
    assert not unsent.has_room(try_again)
    assert unsent.is_short
    slow.note(100)
    assert calls == [], "there is no room yet"
    slow.note(99)
    assert (calls, unsent.is_short) == (["again"], False)
    assert unsent.has_room(try_again)


def test_whoever_finds_no_room_again_keeps_waiting() -> None:
    unsent = UnsentAnswers(100)
    slow, quick = Backlog(unsent), Backlog(unsent)
    outcomes: list[bool] = []

    def take_all() -> None:
        outcomes.append(unsent.has_room(take_all))
        if outcomes[-1]:
            quick.note(100)

    def take_rest() -> None:
        outcomes.append(unsent.has_room(take_rest))

    slow.note(100)
    assert not unsent.has_room(take_all)
    assert not unsent.has_room(take_rest)
    slow.note(0)
    assert outcomes == [True, False]
    quick.note(0)
    assert outcomes == [True, False, True]


def test_a_client_is_too_slow_only_while_others_wait_and_it_takes_little() -> None:
    unsent = UnsentAnswers(100)
    slow = Backlog(unsent)
    size_bytes = 100 * PACE_BYTES_PER_S_MIN
    slow.note(size_bytes)
    step_s = PACE_WINDOW_S + 1
    assert not any(slow.is_too_slow(number * step_s) for number in range(5)), "nobody waits"
    assert not unsent.has_room(lambda: None)
    now_s = 10 * step_s
    assert not slow.is_too_slow(now_s), "it is measured from now on"
    slow.note(size_bytes := size_bytes - int(step_s * PACE_BYTES_PER_S_MIN))
    assert not slow.is_too_slow(now_s + step_s)
    slow.note(size_bytes - int(step_s * PACE_BYTES_PER_S_MIN) + 1)
    assert slow.is_too_slow(now_s + 2 * step_s)


def test_a_client_that_holds_less_than_its_share_need_not_make_way() -> None:
    unsent = UnsentAnswers(100)
    most, much, little = Backlog(unsent), Backlog(unsent), Backlog(unsent)
    most.note(80)
    much.note(60)
    little.note(10)
    assert not unsent.has_room(lambda: None)
    step_s = PACE_WINDOW_S + 1
    assert not any(each.is_too_slow(0.0) for each in (most, much, little)), "they are measured from now on"
    assert [each.is_too_slow(step_s) for each in (most, much, little)] == [True, True, False]
    most.note(0)
    much.note(0)
    assert unsent.holder_count == 1


def test_the_only_one_that_holds_answers_makes_way_however_little_it_holds() -> None:
    unsent = UnsentAnswers(1)
    only = Backlog(unsent)
    only.note(1)
    assert not unsent.has_room(lambda: None)
    assert not only.is_too_slow(0.0)
    assert only.is_too_slow(PACE_WINDOW_S + 1)


def test_clients_that_take_turns_in_holding_less_make_way_all_the_same() -> None:
    unsent = UnsentAnswers(100)
    pair = [Backlog(unsent), Backlog(unsent)]
    for each in pair:
        each.note(60)
    assert not unsent.has_room(lambda: None)
    outcomes = []
    for turn in range(4):
        pair[turn % 2].note(pair[turn % 2].size_bytes - 2)
        outcomes.append([each.is_too_slow(turn * PACE_WINDOW_S) for each in pair])
    assert outcomes == [[False, False], [True, True], [False, True], [True, True]]


def test_slow_clients_make_way_when_half_of_the_files_are_held_and_they_hold_their_share() -> None:
    unsent = UnsentAnswers(100)
    large, small = Backlog(unsent), Backlog(unsent)
    large.note_files(HELD_FILES_MAX // 2)
    small.note_files(1)
    unsent.held_file_count = HELD_FILES_MAX // 2
    assert not large.is_too_slow(0.0)
    assert not large.is_too_slow(PACE_WINDOW_S), "there are enough files yet"
    unsent.held_file_count += 1
    assert not large.is_too_slow(100.0)
    assert not small.is_too_slow(100.0)
    assert large.is_too_slow(100.0 + PACE_WINDOW_S)
    assert not small.is_too_slow(100.0 + PACE_WINDOW_S), "it would make room for nobody"


def test_what_a_client_takes_from_files_counts_for_its_pace() -> None:
    unsent = UnsentAnswers(100)
    reads = Backlog(unsent)
    reads.note(100)
    reads.note_files(1)
    assert not unsent.has_room(lambda: None)
    assert not reads.is_too_slow(0.0)
    reads.note_files(1, sent_bytes=int(PACE_BYTES_PER_S_MIN * PACE_WINDOW_S))
    assert not reads.is_too_slow(PACE_WINDOW_S)
    assert reads.is_too_slow(2 * PACE_WINDOW_S)


def test_a_mistake_in_one_that_waits_for_room_keeps_nobody_else_waiting(
    caplog: pytest.LogCaptureFixture,
) -> None:
    unsent = UnsentAnswers(100)
    slow = Backlog(unsent)
    calls: list[str] = []

    def fail() -> None:
        raise ZeroDivisionError

    slow.note(150)
    assert not unsent.has_room(fail)
    assert not unsent.has_room(lambda: calls.append("again"))
    slow.note(0)
    assert calls == ["again"]
    assert "ZeroDivisionError" in caplog.text
