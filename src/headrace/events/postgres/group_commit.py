"""Appends that wait for each other go in one transaction.

The first thread that comes becomes the leader: it takes all that wait, its own among them, and carries them
out at once. Whoever comes meanwhile waits for the next turn, which one of the waiting leads. So a single
writer waits for nobody, and fifty share one round trip, one transaction and one flush of the disk.

A thread may be interrupted anywhere (Control-C, a timer's signal), also as it takes the lead or hands it on.
So that nobody waits for a thread that is gone:

- Who leads is known by its turn, and a turn is over when its thread has left `submit`, however it did. That
  is one assignment at the head of a `finally`, which Python does not interrupt.
- Those who wait look after a while whether anybody leads, and so does whoever comes next; one of them takes
  the lead.
- A job stays among those that wait until it is settled, and is marked before it is begun. What a new leader
  finds marked may have happened or not, and that is what its thread is told. It is not done a second time.
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
LOOK_EVERY_S: Final = 0.5
"""How often those who wait look whether anybody leads."""

Job = TypeVar("Job")
Result = TypeVar("Result")


class _Turn:
    """A thread's stay in `submit`."""

    __slots__ = ("is_over",)

    def __init__(self) -> None:
        self.is_over = False


class _Ticket(Generic[Job, Result]):
    """A job that waits, and what became of it. Its own thread looks when `moved` is set."""

    __slots__ = ("error", "is_begun", "is_settled", "job", "moved", "result", "turn", "weight")

    def __init__(self, job: Job, weight: int, turn: _Turn) -> None:
        self.job = job
        self.weight = weight
        self.turn = turn
        self.moved = Event()
        """Set once it is settled, or has to lead."""
        self.is_begun = False
        self.is_settled = False
        self.result: Result | None = None
        self.error: Exception | None = None

    def settle(self, answer: Result | Exception) -> None:
        """Note what became of it."""
        if isinstance(answer, Exception):
            self.error = answer
        else:
            self.result = answer
        self.is_settled = True

    def give_up(self) -> None:
        """Note that nobody knows what became of it."""
        self.settle(StoreUnavailable("an append was interrupted: it may have happened or not"))


class GroupCommit(Generic[Job, Result]):
    """Carries out jobs in groups, in the order in which they came. Safe to use from any thread."""

    def __init__(self, carry_out: Callable[[Sequence[Job]], Sequence[Result | Exception]]) -> None:
        """`carry_out` gives a result or an error for each job; an error that it raises is that of all."""
        self._carry_out = carry_out
        self._lock = Lock()
        self._waiting: list[_Ticket[Job, Result]] = []
        self._leader: _Turn | None = None

    def submit(self, job: Job, weight: int = 1) -> Result:
        """Wait until a job is carried out. Raises its error."""
        turn = _Turn()
        try:
            return self._submit(job, weight, turn)
        finally:
            turn.is_over = True

    def _submit(self, job: Job, weight: int, turn: _Turn) -> Result:
        with self._lock:
            is_first = self._takes_lead(turn)
            ticket = None if is_first and not self._waiting else self._queued(job, weight, turn)
        if ticket is None:
            return self._lead_alone(job)
        self._see_to(ticket)
        if ticket.error is not None:
            raise ticket.error
        assert ticket.result is not None, "a job that is settled has an error or a result"
        return ticket.result

    def _takes_lead(self, turn: _Turn) -> bool:
        """Lead if nobody does; say whether. Called under the lock."""
        if self._leader is not None and not self._leader.is_over:
            return False
        self._leader = turn
        return True

    def _queued(self, job: Job, weight: int, turn: _Turn) -> _Ticket[Job, Result]:
        ticket: _Ticket[Job, Result] = _Ticket(job, weight, turn)
        self._waiting.append(ticket)
        return ticket

    def _lead_alone(self, job: Job) -> Result:
        """Carry out a job that has met nobody, and hand over to whoever has come meanwhile."""
        try:
            (answer,) = self._carry_out((job,))
        finally:
            self._hand_over()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _see_to(self, ticket: _Ticket[Job, Result]) -> None:
        """Wait until a job is settled, and lead whenever it is this thread's turn to."""
        while not ticket.is_settled:
            if self._leader is ticket.turn:
                self._lead()
                continue
            ticket.moved.wait(LOOK_EVERY_S)
            # Whoever sets it has changed before that what is looked at after this.
            ticket.moved.clear()
            with self._lock:
                if not ticket.is_settled:
                    self._takes_lead(ticket.turn)

    def _lead(self) -> None:
        """Carry out one group, and hand over."""
        with self._lock:
            self._give_up_begun()
            group = self._next_group()
        try:
            self._settle(group)
        finally:
            for ticket in group:
                ticket.moved.set()
            self._hand_over()

    def _hand_over(self) -> None:
        """Let the first of those who wait lead, if somebody does."""
        with self._lock:
            self._waiting = [each for each in self._waiting if not (each.is_settled or each.turn.is_over)]
            heir = self._waiting[0] if self._waiting else None
            self._leader = None if heir is None else heir.turn
        if heir is not None:
            heir.moved.set()

    def _give_up_begun(self) -> None:
        """Settle what a leader that is gone had begun. Called under the lock, by a new one."""
        for ticket in self._waiting:
            if ticket.is_begun and not ticket.is_settled:
                ticket.give_up()
            if ticket.is_settled:
                ticket.moved.set()
        self._waiting = [each for each in self._waiting if not (each.is_settled or each.turn.is_over)]

    def _next_group(self) -> list[_Ticket[Job, Result]]:
        """Those that go together, which stay among the waiting. Called under the lock."""
        count, weight = 0, 0
        for ticket in self._waiting[:APPENDS_MAX]:
            weight += ticket.weight
            if count and weight > WEIGHT_MAX:
                break
            count += 1
        return self._waiting[:count]

    def _settle(self, group: Sequence[_Ticket[Job, Result]]) -> None:
        for ticket in group:
            ticket.is_begun = True
        answers: Sequence[Result | Exception]
        try:
            answers = self._carry_out([ticket.job for ticket in group])
        except Exception as error:  # noqa: BLE001 - it is raised where the jobs were submitted
            answers = [error] * len(group)
        except BaseException:
            # This thread was interrupted; the others only do not know what became of their jobs.
            for ticket in group:
                ticket.give_up()
            raise
        for ticket, answer in zip(group, answers, strict=True):
            ticket.settle(answer)
