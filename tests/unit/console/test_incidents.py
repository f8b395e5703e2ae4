"""What happened when a driver died, from what the page sees."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from headrace.console.alerts import AlertCounts
from headrace.console.incidents import INCIDENT_COUNT_MAX, IncidentBook
from headrace.console.pipelines import Pipeline, pipeline_of
from headrace.driver.process import ProcessId
from headrace.driver.status import State, Status

START = datetime(2026, 1, 1, tzinfo=UTC)


def pipeline(name: str, pid: int, state: State = "running", since_ms: int = 0) -> Pipeline:
    status = Status(
        name=name,
        state=state,
        process=ProcessId(pid),
        started_at=START,
        updated_at=START,
        running_since=datetime.fromtimestamp(since_ms / 1000, UTC),
        mode="micro-batch",
        bootstrap="b",
        reads=("in",),
        writes="out",
    )
    return pipeline_of(status, {}, START)


class Story:
    """An incident book that is told what happens."""

    def __init__(self) -> None:
        self.book = IncidentBook()
        self.counts = AlertCounts()

    def see(self, now_ms: int, *pipelines: Pipeline) -> None:
        self.book.see(pipelines, self.counts, now_ms)

    def told(self) -> list[dict[str, Any]]:
        return self.book.as_json(self.counts)


@pytest.fixture
def story() -> Story:
    return Story()


def test_a_killed_driver_is_followed_until_its_alerts_come_again(story: Story) -> None:
    story.see(1_000, pipeline("a", 7))
    story.book.killed(7, 1_500)
    story.counts = AlertCounts(alert_count=10, repeat_count=1)
    story.see(2_000, pipeline("a", 7, "crashed"))
    (incident,) = story.told()
    assert (incident["pid"], incident["by_hand"], incident["died_ms"]) == (7, True, 1_500)
    assert (incident["running_ms"], incident["first_alert_ms"]) == (None, None)
    story.see(3_000, pipeline("a", 8, "starting"))
    story.see(6_000, pipeline("a", 8, "running", since_ms=5_000))
    story.counts = AlertCounts(alert_count=12, repeat_count=4)
    story.book.alert_seen(5_600, 1_600)
    story.book.alert_seen(5_700, 5_500)
    (incident,) = story.told()
    assert (incident["running_ms"], incident["first_alert_ms"]) == (5_000, 5_600)
    assert (incident["alerts_since"], incident["repeats_since"]) == (2, 3)
    assert incident["caught_up_count"] == 1


def test_a_death_that_nobody_asked_for_is_seen_too(story: Story) -> None:
    story.see(1_000, pipeline("a", 7))
    story.see(2_000, pipeline("a", 8, "starting"))
    (incident,) = story.told()
    assert (incident["by_hand"], incident["died_ms"]) == (False, 2_000)


def test_pipelines_of_one_driver_die_together_and_recover_when_the_last_does(story: Story) -> None:
    story.see(1_000, pipeline("a", 7), pipeline("b", 7), pipeline("c", 9))
    story.see(2_000, pipeline("a", 7, "crashed"), pipeline("b", 7, "crashed"), pipeline("c", 9))
    story.see(3_000, pipeline("a", 8, since_ms=2_900), pipeline("b", 8, "starting"), pipeline("c", 9))
    (incident,) = story.told()
    assert (incident["pipelines"], incident["running_ms"]) == (("a", "b"), None)
    story.see(4_000, pipeline("a", 8, since_ms=2_900), pipeline("b", 8, since_ms=3_900), pipeline("c", 9))
    assert [each["running_ms"] for each in story.told()] == [3_900]


@pytest.mark.parametrize("state", ["stopped", "failed"])
def test_a_driver_that_ended_by_itself_is_no_incident(story: Story, state: State) -> None:
    story.see(1_000, pipeline("a", 7))
    story.see(2_000, pipeline("a", 7, state))
    assert story.told() == []


def test_a_driver_that_was_dead_when_the_console_came_is_no_incident(story: Story) -> None:
    story.see(1_000, pipeline("a", 7, "crashed"))
    story.see(2_000, pipeline("a", 8))
    assert story.told() == []


def test_what_is_killed_again_before_it_runs_makes_two_incidents(story: Story) -> None:
    story.see(1_000, pipeline("a", 7))
    story.see(2_000, pipeline("a", 8, "starting"))
    story.see(3_000, pipeline("a", 8, "crashed"))
    story.see(9_000, pipeline("a", 9, since_ms=8_000))
    assert [(each["pid"], each["running_ms"]) for each in story.told()] == [(8, 8_000), (7, 8_000)]


def test_the_newest_incidents_are_kept_and_all_are_counted(story: Story) -> None:
    for pid in range(1, INCIDENT_COUNT_MAX + 6):
        story.see(pid * 1_000, pipeline("a", pid))
    assert len(story.told()) == INCIDENT_COUNT_MAX
    assert story.book.count == INCIDENT_COUNT_MAX + 4
    assert story.told()[0]["number"] == story.book.count
