"""How many bytes of requests are held at once."""

from __future__ import annotations

from headrace.kafka.budget import (
    PACE_BYTES_PER_S_MIN,
    PACE_WINDOW_S,
    SMALL_FRAME_BYTES_MAX,
    Budgets,
    InFlightBudget,
    Pace,
)

MIB = 1024 * 1024


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


def test_small_frames_pass_while_large_ones_have_taken_all_of_their_room() -> None:
    budgets = Budgets(256 * MIB, frame_bytes_max=100 * MIB)
    for number in range(10):
        size_bytes = 90 * MIB
        budgets.of(size_bytes).reserve(size_bytes, lambda number=number: number, ends_frame=False)  # type: ignore[misc]
    assert budgets.large.is_short
    small = SMALL_FRAME_BYTES_MAX
    assert all(budgets.of(small).reserve(small, lambda: None, ends_frame=True) for _ in range(100))
    assert not budgets.small.is_short


def test_small_and_large_frames_together_stay_below_the_maximum() -> None:
    budgets = Budgets(256 * MIB, frame_bytes_max=100 * MIB)
    for size_bytes in (SMALL_FRAME_BYTES_MAX, 20 * MIB):
        while budgets.of(size_bytes).reserve(size_bytes, lambda: None, ends_frame=True):
            pass
    assert 200 * MIB < budgets.used_bytes <= 256 * MIB


def test_where_there_is_little_room_all_frames_share_it() -> None:
    budgets = Budgets(2 * MIB, frame_bytes_max=2 * MIB)
    assert budgets.small is budgets.large
    budgets.of(10).reserve(10, lambda: None, ends_frame=True)
    assert budgets.used_bytes == 10


def test_a_frame_that_does_not_grow_is_too_slow_however_much_of_it_has_come() -> None:
    pace = Pace()
    assert not pace.is_too_slow(90 * MIB, 0.0)
    assert not pace.is_too_slow(90 * MIB, PACE_WINDOW_S / 2)
    assert pace.is_too_slow(90 * MIB, PACE_WINDOW_S)


def test_a_frame_that_keeps_its_pace_may_take_as_long_as_it_needs() -> None:
    pace = Pace()
    for second in range(100):
        assert not pace.is_too_slow(second * PACE_BYTES_PER_S_MIN, float(second))


def test_a_new_frame_is_not_measured_by_the_last_one() -> None:
    pace = Pace()
    pace.is_too_slow(5 * MIB, 0.0)
    pace.reset()
    assert not pace.is_too_slow(0, 100.0)
