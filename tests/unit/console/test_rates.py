"""How fast a topic grows."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.console.rates import GrowthWindow

samples = st.lists(st.tuples(st.floats(0.01, 4), st.integers(0, 5_000)), min_size=1, max_size=50)


def naive(history: list[tuple[float, int]], window_s: float) -> list[tuple[float, int]]:
    """The samples since the last one that went back, no further back than the window."""
    last_s = history[-1][0]
    since = max((i for i in range(1, len(history)) if history[i][1] < history[i - 1][1]), default=0)
    return [(at_s, end) for at_s, end in history[since:] if at_s >= last_s - window_s]


@given(samples, st.booleans())
def test_the_rate_is_the_growth_over_the_window_by_its_length(
    steps: list[tuple[float, int]], reset: bool
) -> None:
    window, history, now_s, end = GrowthWindow(window_s=5.0), [], 0.0, 0
    for index, (gap_s, growth) in enumerate(steps):
        now_s += gap_s
        end = 0 if reset and index == len(steps) // 2 else end + growth
        window.add(now_s, end)
        history.append((now_s, end))
    kept = naive(history, 5.0)
    assert window.increase(now_s) == kept[-1][1] - kept[0][1]
    if len(kept) == 1:
        assert window.per_second(now_s) is None
    else:
        expected = (kept[-1][1] - kept[0][1]) / (kept[-1][0] - kept[0][0])
        assert window.per_second(now_s) == pytest.approx(expected)


def test_a_rate_that_nobody_refreshes_is_unknown_rather_than_old() -> None:
    window = GrowthWindow(window_s=5.0, fresh_s=3.0)
    window.add(0.0, 0)
    window.add(1.0, 100)
    assert window.per_second(4.0) == 100.0
    assert window.per_second(4.1) is None
    assert window.increase(4.1) is None


def test_a_topic_that_stands_still_has_a_rate_of_zero() -> None:
    window = GrowthWindow(window_s=5.0)
    window.add(0.0, 7)
    window.add(1.0, 7)
    assert window.per_second(1.0) == 0.0


def test_a_topic_made_anew_starts_from_nothing() -> None:
    window = GrowthWindow(window_s=60.0)
    window.add(0.0, 1_000)
    window.add(1.0, 10)
    window.add(2.0, 30)
    assert window.per_second(2.0) == 20.0
    assert window.increase(2.0) == 20


def test_memory_is_bounded() -> None:
    window = GrowthWindow(window_s=1e9, sample_count_max=10)
    for second in range(100):
        window.add(float(second), second)
    assert window.increase(99.0) == 9
