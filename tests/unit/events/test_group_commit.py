"""Jobs that wait for each other are carried out together."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Event
from types import FrameType

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


class Interruption:
    """Raises KeyboardInterrupt in its thread, as a signal would, at the nth line of the module.

    Not where Python takes no signal: at the line that ends a turn, and as a lock is let go.
    """

    def __init__(self, at: int) -> None:
        self._at = at
        self.has_come = False
        lines = enumerate(inspect.getsource(group_commit).splitlines(), 1)
        spared = ("turn.is_over = True", "with self._lock:")
        self._spared = {number for number, line in lines if line.strip() in spared}

    def __call__(self, frame: FrameType, event: str, _argument: object) -> Interruption | None:
        if frame.f_code.co_filename != group_commit.__file__:
            return None
        if event == "line" and not self.has_come and frame.f_lineno not in self._spared:
            self._at -= 1
            if self._at == 0:
                self.has_come = True
                raise KeyboardInterrupt
        return self


def interrupted(at: int, submit: Callable[[], int]) -> tuple[bool, object]:
    """Whether the interrupt has come, and what became of the job."""
    interruption = Interruption(at)
    sys.settrace(interruption)
    try:
        return interruption.has_come, submit()
    except KeyboardInterrupt as error:
        # It is kept, as an interactive shell would, and all frames with it.
        return True, error
    finally:
        sys.settrace(None)


@pytest.fixture
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_commit, "LOOK_EVERY_S", 0.01)


@pytest.mark.usefixtures("_looks_often")
def test_who_is_interrupted_anywhere_on_its_own_leaves_nobody_waiting() -> None:
    at, has_come = 0, True
    while has_come:
        at += 1
        group: GroupCommit[int, int] = GroupCommit(list)
        has_come, _kept = interrupted(at, partial(group.submit, 1))
        with ThreadPoolExecutor(2) as threads:
            others = [threads.submit(group.submit, job) for job in (2, 3)]
            assert [other.result(60) for other in others] == [2, 3], f"interrupted at {at}"
    assert at > 10


@pytest.mark.usefixtures("_looks_often")
def test_who_is_interrupted_anywhere_among_others_leaves_none_waiting_and_nothing_is_done_twice() -> None:
    at, has_come = 0, True
    while has_come:
        at += 1
        worker = Worker()
        group: GroupCommit[int, int] = GroupCommit(worker.carry_out)
        with ThreadPoolExecutor(4) as threads:
            first = threads.submit(group.submit, 1)
            eventually(lambda: worker.groups)  # noqa: B023
            second = threads.submit(interrupted, at, partial(group.submit, 2))
            eventually(lambda: second.done() or group._waiting)  # noqa: B023
            others = [threads.submit(group.submit, job) for job in (3, 4)]
            worker.go.set()
            has_come, _kept = second.result(60)
            assert first.result(60) == 2
            for job, other in zip((3, 4), others, strict=True):
                error = other.exception(60)
                assert error is None or isinstance(error, StoreUnavailable), f"interrupted at {at}"
                assert error is not None or other.result() == job * 2
            done = [job for jobs in worker.groups for job in jobs]
            assert max(map(done.count, done)) == 1, f"interrupted at {at}: {worker.groups}"
            assert group.submit(5) == 10
    assert at > 20


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
