"""When a driver that has ended is started again."""

from __future__ import annotations

import signal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.driver.restarts import Again, Ending, RestartPolicy, Stop

POLICY = RestartPolicy(count_max=3, pause_s_first=1.0, pause_s_max=3.0, forgotten_after_s=300.0)


def ending(exit_code: int = 1, *, ran_for_s: float = 10.0, has_worked: bool = True) -> Ending:
    return Ending(exit_code=exit_code, ran_for_s=ran_for_s, has_worked=has_worked)


@pytest.mark.parametrize("exit_code", [0, 2])
def test_one_that_was_stopped_or_misused_is_not_started_again(exit_code: int) -> None:
    assert POLICY.decide(ending(exit_code), 0) == Stop(is_hopeless=False)


@pytest.mark.parametrize("exit_code", [1, 3, -signal.SIGKILL, -signal.SIGSEGV])
def test_one_that_died_is_started_again(exit_code: int) -> None:
    assert POLICY.decide(ending(exit_code), 0) == Again(pause_s=1.0, restarts_in_a_row=1)


def test_one_that_never_worked_is_not_started_again() -> None:
    assert POLICY.decide(ending(has_worked=False), 0) == Stop(is_hopeless=False)


def test_the_pause_doubles_up_to_its_maximum() -> None:
    pauses = []
    restarts = 0
    while isinstance(decision := POLICY.decide(ending(), restarts), Again):
        pauses.append(decision.pause_s)
        restarts = decision.restarts_in_a_row
    assert pauses == [1.0, 2.0, 3.0]
    assert decision == Stop(is_hopeless=True)


def test_a_run_that_lasted_makes_the_restarts_before_it_forgotten() -> None:
    assert POLICY.decide(ending(ran_for_s=300.0), 3) == Again(pause_s=1.0, restarts_in_a_row=1)


@given(st.lists(st.tuples(st.integers(-31, 5), st.floats(0, 1000)), max_size=30))
def test_there_are_never_more_restarts_in_a_row_than_allowed(runs: list[tuple[int, float]]) -> None:
    in_a_row = expected = 0
    for exit_code, ran_for_s in runs:
        decision = POLICY.decide(ending(exit_code, ran_for_s=ran_for_s), in_a_row)
        if exit_code in {0, 2}:
            assert decision == Stop(is_hopeless=False)
            break
        expected = 1 if ran_for_s >= 300 else expected + 1
        if expected > 3:
            assert decision == Stop(is_hopeless=True)
            break
        assert isinstance(decision, Again)
        assert decision.restarts_in_a_row == expected
        in_a_row = decision.restarts_in_a_row
