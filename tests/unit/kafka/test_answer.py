"""Answers that come later."""

from __future__ import annotations

from typing import Any

from headrace.kafka.answer import Pending, when_all


def test_a_response_is_handed_on_when_it_comes() -> None:
    pending: Pending[str] = Pending()
    heard: list[str] = []
    pending.then(heard.append)
    assert not pending.is_resolved
    pending.resolve("done")
    assert heard == ["done"]


def test_a_response_that_is_there_already_is_handed_on_at_once() -> None:
    pending: Pending[str] = Pending()
    heard: list[str] = []
    pending.resolve("done")
    pending.then(heard.append)
    assert heard == ["done"]


def test_only_the_first_response_counts() -> None:
    pending: Pending[str] = Pending()
    heard: list[str] = []
    pending.then(heard.append)
    pending.resolve("first")
    pending.resolve("second")
    assert heard == ["first"]


def test_whoever_works_on_an_abandoned_answer_is_told_once_and_nobody_hears_the_response() -> None:
    pending: Pending[str] = Pending()
    heard: list[str] = []
    stopped: list[bool] = []
    pending.then(heard.append)
    pending.on_abandoned = lambda: stopped.append(True)
    pending.abandon()
    pending.resolve("too late")
    assert (heard, stopped) == ([], [True])


def test_an_answer_that_was_given_is_not_abandoned() -> None:
    pending: Pending[str] = Pending()
    stopped: list[bool] = []
    pending.on_abandoned = lambda: stopped.append(True)
    pending.resolve("done")
    pending.abandon()
    assert stopped == []


def test_a_response_of_several_parts_comes_with_the_last_of_them_in_their_order() -> None:
    first: Pending[int] = Pending()
    last: Pending[int] = Pending()
    last.resolve(3)
    answers: list[tuple[int, ...]] = []
    parts: list[int | Pending[int]] = [first, 2, last]
    combined: Any = when_all(parts, tuple)
    assert isinstance(combined, Pending)
    combined.then(answers.append)
    assert answers == []
    first.resolve(1)
    assert answers == [(1, 2, 3)]
    assert when_all(parts, sum) == 6
