"""How many bytes of requests are held at once."""

from __future__ import annotations

from headrace.kafka.budget import InFlightBudget


def test_bytes_above_the_maximum_wait_until_others_are_given_back() -> None:
    budget = InFlightBudget(100)
    calls: list[str] = []
    assert budget.reserve(60, lambda: calls.append("first"))
    assert not budget.reserve(60, lambda: calls.append("second"))
    assert calls == []
    budget.release(60)
    assert calls == ["second"]
    assert budget.used_bytes == 0


def test_whoever_finds_no_room_again_keeps_waiting() -> None:
    budget = InFlightBudget(100)
    tries: list[bool] = []

    def retry() -> None:
        tries.append(budget.reserve(90, retry))

    budget.reserve(50, lambda: None)
    budget.reserve(50, lambda: None)
    assert not budget.reserve(90, retry)
    budget.release(50)
    assert tries == [False]
    budget.release(50)
    assert tries == [False, True]
    assert budget.used_bytes == 90


def test_whoever_asks_twice_is_called_once() -> None:
    budget = InFlightBudget(100)
    calls: list[bool] = []

    def note() -> None:
        calls.append(True)

    budget.reserve(100, note)
    assert not budget.reserve(50, note)
    assert not budget.reserve(50, note)
    budget.release(100)
    assert calls == [True]
