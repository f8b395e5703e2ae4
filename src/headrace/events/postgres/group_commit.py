"""Appends that wait for each other go in one transaction.

The first thread that comes becomes the leader: it takes all that wait, its own among them, and carries them
out at once. Whoever comes meanwhile waits for the next turn, which one of the waiting leads. So a single
writer waits for nobody, and fifty share one round trip, one transaction and one flush of the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Event, Lock
from typing import Final, Generic, TypeVar

from headrace.errors import StoreUnavailable

APPENDS_MAX: Final = 128
"""How many go in one transaction at most."""
WEIGHT_MAX: Final = 5_000
"""How many events they have in all, at most; one append that has more goes alone."""

Job = TypeVar("Job")
Result = TypeVar("Result")


class _Ticket(Generic[Job, Result]):
    """A job that waits, and what became of it. Its own thread reads it once `moved` is set."""

    __slots__ = ("error", "is_leader", "job", "moved", "result", "weight")

    def __init__(self, job: Job, weight: int) -> None:
        self.job = job
        self.weight = weight
        self.moved = Event()
        """Set once it is carried out, or has to lead."""
        self.is_leader = False
        self.result: Result | None = None
        self.error: BaseException | None = None


class GroupCommit(Generic[Job, Result]):
    """Carries out jobs in groups, in the order in which they came. Safe to use from any thread."""

    def __init__(self, carry_out: Callable[[Sequence[Job]], Sequence[Result | Exception]]) -> None:
        """`carry_out` gives a result or an error for each job; an error that it raises is that of all."""
        self._carry_out = carry_out
        self._lock = Lock()
        self._waiting: list[_Ticket[Job, Result]] = []
        self._is_led = False

    def submit(self, job: Job, weight: int = 1) -> Result:
        """Wait until a job is carried out. Raises its error."""
        with self._lock:
            ticket = self._queued(job, weight) if self._is_led else None
            self._is_led = True
        if ticket is None:
            return self._lead_alone(job)
        self._await(ticket)
        if ticket.is_leader:
            self._lead()
        if ticket.error is not None:
            raise ticket.error
        assert ticket.result is not None, "a leader's group begins with its own job"
        return ticket.result

    def _queued(self, job: Job, weight: int) -> _Ticket[Job, Result]:
        ticket: _Ticket[Job, Result] = _Ticket(job, weight)
        self._waiting.append(ticket)
        return ticket

    def _lead_alone(self, job: Job) -> Result:
        """Carry out a job that has met nobody, and hand over to whoever has come meanwhile."""
        try:
            (answer,) = self._carry_out((job,))
        finally:
            with self._lock:
                following = self._heir()
            if following is not None:
                following.moved.set()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _await(self, ticket: _Ticket[Job, Result]) -> None:
        try:
            ticket.moved.wait()
        except BaseException:
            # An interrupted thread must not be the one that the others wait for.
            with self._lock:
                if ticket in self._waiting:
                    self._waiting.remove(ticket)
                following = self._heir() if ticket.is_leader else None
            if following is not None:
                following.moved.set()
            raise

    def _heir(self) -> _Ticket[Job, Result] | None:
        """Who leads next. Called under the lock, by a leader that leads no more."""
        following = self._waiting[0] if self._waiting else None
        self._is_led = following is not None
        if following is not None:
            following.is_leader = True
        return following

    def _lead(self) -> None:
        """Carry out one group, which has the leader's own job in it, and hand over."""
        with self._lock:
            group = self._next_group()
        try:
            self._settle(group)
        finally:
            with self._lock:
                following = self._heir()
            for ticket in group:
                ticket.moved.set()
            if following is not None:
                following.moved.set()

    def _next_group(self) -> list[_Ticket[Job, Result]]:
        count, weight = 0, 0
        for ticket in self._waiting[:APPENDS_MAX]:
            weight += ticket.weight
            if count and weight > WEIGHT_MAX:
                break
            count += 1
        group, self._waiting = self._waiting[:count], self._waiting[count:]
        return group

    def _settle(self, group: Sequence[_Ticket[Job, Result]]) -> None:
        try:
            answers = self._carry_out([ticket.job for ticket in group])
        except BaseException as error:
            if not isinstance(error, Exception):
                # This thread was interrupted; the others only do not know what became of their jobs.
                for ticket in group:
                    ticket.error = StoreUnavailable("an append was interrupted: it may have happened or not")
                raise
            for ticket in group:
                ticket.error = error
            return
        for ticket, answer in zip(group, answers, strict=True):
            if isinstance(answer, Exception):
                ticket.error = answer
            else:
                ticket.result = answer
