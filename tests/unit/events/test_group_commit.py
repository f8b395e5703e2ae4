"""Jobs that wait for each other are carried out together."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from headrace.errors import StoreUnavailable
from headrace.events.postgres import group_commit
from headrace.events.postgres.group_commit import GroupCommit
from headrace.testing.waiting import eventually


class Worker:
    """Notes groups, and holds the first one until it is let go."""

    def __init__(self) -> None:
        self.groups: list[list[int]] = []
        self.go = Event()

    def carry_out(self, jobs: Sequence[int]) -> list[int | Exception]:
        self.groups.append(list(jobs))
        assert self.go.wait(60)
        return [ValueError(str(job)) if job < 0 else job * 2 for job in jobs]


def run(jobs: Sequence[int], weight: int = 1) -> tuple[Worker, list[object]]:
    """Submit one job, and the others while it is held."""
    worker = Worker()
    group: GroupCommit[int, int] = GroupCommit(worker.carry_out)

    def submit(job: int) -> object:
        try:
            return group.submit(job, weight)
        except ValueError as error:
            return f"error {error}"

    with ThreadPoolExecutor(len(jobs)) as threads:
        futures = [threads.submit(submit, jobs[0])]
        eventually(lambda: worker.groups)
        for number, job in enumerate(jobs[1:], 1):
            futures.append(threads.submit(submit, job))
            eventually(lambda: len(group._waiting) == number)  # noqa: B023
        worker.go.set()
        return worker, [future.result() for future in futures]


def test_a_single_job_waits_for_nobody() -> None:
    worker, results = run([1])

    assert (worker.groups, results) == ([[1]], [2])


def test_what_comes_meanwhile_goes_together_in_order() -> None:
    worker, results = run([1, 2, 3, 4])

    assert worker.groups == [[1], [2, 3, 4]]
    assert results == [2, 4, 6, 8]


def test_an_error_is_that_of_its_job_alone() -> None:
    _, results = run([1, 2, -3, 4])

    assert results == [2, 4, "error -3", 8]


def test_groups_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_commit, "APPENDS_MAX", 2)
    worker, results = run([1, 2, 3, 4, 5, 6])

    assert worker.groups == [[1], [2, 3], [4, 5], [6]]
    assert results == [2, 4, 6, 8, 10, 12]


def test_heavy_jobs_go_alone() -> None:
    worker, _ = run([1, 2, 3], weight=group_commit.WEIGHT_MAX)

    assert worker.groups == [[1], [2], [3]]


class Interrupted(Event):
    """Waiting on it is interrupted, as by Control-C."""

    def wait(self, timeout: float | None = None) -> bool:
        raise KeyboardInterrupt


def test_a_thread_that_is_interrupted_hands_the_lead_on(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker()
    group: GroupCommit[int, int] = GroupCommit(worker.carry_out)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(group.submit, 1)
        eventually(lambda: worker.groups)
        with monkeypatch.context() as patched:
            patched.setattr(group_commit, "Event", Interrupted)
            with pytest.raises(KeyboardInterrupt):
                group.submit(2)
        third = threads.submit(group.submit, 3)
        worker.go.set()
        assert (first.result(60), third.result(60)) == (2, 6)

    assert worker.groups == [[1], [3]]


def test_who_is_interrupted_as_it_is_to_lead_lets_the_next_one_lead() -> None:
    worker = Worker()
    worker.go.set()
    group: GroupCommit[int, int] = GroupCommit(worker.carry_out)
    heir, other = group_commit._Ticket[int, int](1, 1), group_commit._Ticket[int, int](2, 1)
    group._waiting, group._is_led, heir.is_leader = [heir, other], True, True
    heir.moved = Interrupted()

    with pytest.raises(KeyboardInterrupt):
        group._await(heir)

    assert (other.is_leader, other.moved.is_set(), group._waiting) == (True, True, [other])


def test_after_an_error_of_the_whole_group_others_go_on() -> None:
    calls = list[list[int]]()

    def fail_once(jobs: Sequence[int]) -> list[int]:
        calls.append(list(jobs))
        if len(calls) == 1:
            raise ValueError("lost")
        return list(jobs)

    group: GroupCommit[int, int] = GroupCommit(fail_once)
    with pytest.raises(ValueError, match="lost"):
        group.submit(1)

    assert group.submit(2) == 2


def test_the_interrupt_of_a_leader_is_not_raised_in_the_threads_of_others() -> None:
    started, go = Event(), Event()

    def carry_out(jobs: Sequence[int]) -> list[int]:
        if jobs[0] == 1:
            started.set()
            assert go.wait(60)
            return list(jobs)
        raise KeyboardInterrupt

    group: GroupCommit[int, int] = GroupCommit(carry_out)
    with ThreadPoolExecutor(3) as threads:
        threads.submit(group.submit, 1)
        assert started.wait(60)
        leader = threads.submit(group.submit, 2)
        eventually(lambda: len(group._waiting) == 1)
        other = threads.submit(group.submit, 3)
        eventually(lambda: len(group._waiting) == 2)
        go.set()

        assert isinstance(leader.exception(60), KeyboardInterrupt)
        lost = other.exception(60)

    assert isinstance(lost, StoreUnavailable)
    assert not lost.definite
    assert group.submit(1) == 1
