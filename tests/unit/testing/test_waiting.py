"""Waiting for something to come true."""

from __future__ import annotations

import pytest

from headrace.testing.waiting import eventually


def test_the_first_true_answer_is_returned_and_nobody_is_asked_again() -> None:
    answers = iter([0, "", [3]])
    assert eventually(lambda: next(answers), pause_s=0) == [3]
    assert list(answers) == []


def test_a_condition_is_asked_once_even_if_there_is_no_time() -> None:
    assert eventually(lambda: True, within_s=0)


@pytest.mark.parametrize("what", ["the sun shining", lambda: "the sun shining"])
def test_who_waited_in_vain_is_told_what_for_and_the_last_answer(what: str) -> None:
    with pytest.raises(AssertionError, match=r"the sun shining did not come true within 0 s: still \[\]"):
        eventually(list, what, within_s=0)


def test_errors_of_the_condition_are_not_waited_out() -> None:
    with pytest.raises(ZeroDivisionError):
        eventually(lambda: 1 // 0)
