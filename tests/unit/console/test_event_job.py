"""Work over a whole history: one at a time, with its progress."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.console.event_job import Busy, EventJob, Tell
from headrace.errors import ConfigError
from headrace.testing.clock import ManualClock
from headrace.testing.waiting import WITHIN_S, eventually


class Held:
    """Work that waits for the test."""

    def __init__(self) -> None:
        self.told, self.may_end = threading.Event(), threading.Event()

    def __call__(self, tell: Tell) -> dict[str, Any]:
        tell(3, 10)
        self.told.set()
        assert self.may_end.wait(WITHIN_S)
        tell(10, 10)
        return {"words": "done"}


@pytest.fixture
def job() -> Iterator[EventJob]:
    made = EventJob(ManualClock())
    yield made
    made.close()


def test_nothing_is_under_way_at_first(job: EventJob) -> None:
    assert job.status().shown()["state"] == "none"


def test_a_work_tells_how_far_it_is_and_what_came_out(job: EventJob) -> None:
    held = Held()
    assert job.start("replay", held).state == "running"
    assert held.told.wait(WITHIN_S)
    assert (job.status().done, job.status().total) == (3, 10)
    held.may_end.set()
    eventually(lambda: job.status().state == "done")
    assert job.status().result == {"words": "done"}
    assert job.status().done == 10


def test_a_second_work_is_refused_while_the_first_is_under_way(job: EventJob) -> None:
    held = Held()
    job.start("compare", held)
    with pytest.raises(Busy, match="under way"):
        job.start("replay", held)
    held.may_end.set()
    eventually(lambda: job.status().state == "done")
    job.start("replay", lambda _: {})
    eventually(lambda: job.status().shown()["kind"] == "replay" and job.status().state == "done")


@pytest.mark.parametrize(
    ("error", "text"), [(ConfigError("no such table"), "no such table"), (KeyError("x"), "KeyError: 'x'")]
)
def test_what_went_wrong_is_said(job: EventJob, error: Exception, text: str) -> None:
    def work(_: Tell) -> dict[str, Any]:
        raise error

    job.start("compare", work)
    eventually(lambda: job.status().state == "failed")
    assert job.status().error == text


def test_a_work_is_given_up_when_the_console_stops(job: EventJob) -> None:
    told, closing = threading.Event(), threading.Event()

    def work(tell: Tell) -> dict[str, Any]:
        told.set()
        assert closing.wait(WITHIN_S)
        while True:
            tell(1, 2)

    job.start("compare", work)
    assert told.wait(WITHIN_S)
    closing.set()
    job.close()
    assert job.status().state == "failed"
    with pytest.raises(Busy, match="about to stop"):
        job.start("compare", work)
