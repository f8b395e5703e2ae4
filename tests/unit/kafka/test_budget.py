"""How many bytes of requests are held at once."""

from __future__ import annotations

from headrace.kafka.budget import InFlightBudget


def test_bytes_above_the_maximum_wait_until_others_are_given_back() -> None:
    budget = InFlightBudget(100, frame_bytes_max=60)
    calls: list[str] = []
    assert budget.reserve(60, lambda: calls.append("first"), ends_frame=True)
    assert not budget.reserve(60, lambda: calls.append("second"), ends_frame=True)
    assert calls == []
    budget.release(60)
    assert calls == ["second"]
    assert budget.used_bytes == 0


def test_whoever_finds_no_room_again_keeps_waiting() -> None:
    budget = InFlightBudget(100, frame_bytes_max=90)
    tries: list[bool] = []

    def retry() -> None:
        tries.append(budget.reserve(90, retry, ends_frame=True))

    budget.reserve(50, lambda: None, ends_frame=True)
    budget.reserve(50, lambda: None, ends_frame=True)
    assert not budget.reserve(90, retry, ends_frame=True)
    budget.release(50)
    assert tries == [False]
    budget.release(50)
    assert tries == [False, True]
    assert budget.used_bytes == 90


def test_whoever_asks_twice_is_called_once() -> None:
    budget = InFlightBudget(100, frame_bytes_max=100)
    calls: list[bool] = []

    def note() -> None:
        calls.append(True)

    budget.reserve(100, lambda: None, ends_frame=True)
    assert not budget.reserve(50, note, ends_frame=True)
    assert not budget.reserve(50, note, ends_frame=True)
    budget.release(100)
    assert calls == [True]


def test_the_last_bytes_are_for_one_unfinished_frame_at_a_time() -> None:
    budget = InFlightBudget(100, frame_bytes_max=60)
    called: list[str] = []

    def first() -> None:
        called.append("first")

    def second() -> None:
        called.append("second")

    assert budget.reserve(20, first, ends_frame=False)
    assert budget.reserve(20, second, ends_frame=False)
    assert budget.reserve(10, second, ends_frame=False)
    assert not budget.reserve(10, first, ends_frame=False)
    assert budget.reserve(30, second, ends_frame=True)
    assert budget.reserve(10, first, ends_frame=False)
    assert not budget.reserve(20, first, ends_frame=True)
    budget.release(60)
    assert called == ["first"]
    assert budget.reserve(20, first, ends_frame=True)


def test_a_frame_that_has_gone_leaves_the_last_bytes_to_others() -> None:
    budget = InFlightBudget(100, frame_bytes_max=60)
    assert budget.reserve(40, lambda: None, ends_frame=False)
    assert budget.reserve(50, lambda: None, ends_frame=False)
    assert not budget.reserve(1, lambda: None, ends_frame=False)
    budget.release(50)
    assert budget.reserve(50, lambda: None, ends_frame=False)
