from __future__ import annotations

import pytest

from headrace.queue.work_queue import WorkQueue
from headrace.testing.queue_story import QueueStory, Verdict

SEEDS = range(24)
STEPS = 500


@pytest.fixture(scope="module")
def verdicts() -> dict[int, Verdict]:
    return {seed: QueueStory(seed).play(STEPS) for seed in SEEDS}


def test_nothing_confirmed_is_lost_nothing_acknowledged_returns_and_duplicates_are_flagged(
    verdicts: dict[int, Verdict],
) -> None:
    assert {seed: each.violations for seed, each in verdicts.items() if each.violations} == {}


def test_the_stories_have_what_they_are_told_for(verdicts: dict[int, Verdict]) -> None:
    stories = verdicts.values()
    assert sum(each.confirmed_count for each in stories) > 5000
    assert sum(each.acked_count for each in stories) > 500
    assert sum(each.crash_count for each in stories) > 50
    assert sum(each.redelivered_count for each in stories) > 500
    assert any(each.reclaimed for each in stories)


def test_a_story_of_a_broker_that_delivers_too_early_is_not_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WorkQueue, "_may_deliver", lambda _self, _entry: True)
    assert any(
        "not flagged" in each for seed in range(12) for each in QueueStory(seed).play(STEPS).violations
    )
