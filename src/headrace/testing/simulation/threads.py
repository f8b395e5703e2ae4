"""The broker's threads, played on the one that there is: while one waits for the disk, the loop goes on.

A thread's work is done in one go, up to a sync of a file. While that lasts, everything happens that is due:
requests come, records are appended, other threads begin, the power goes. So whatever the work has looked at
may be different when the sync has ended.

Work that has begun meanwhile ends before the sync does, since it lies above it on the stack. So nothing may
begin that would wait for a lock which is held below it: a sync waits for the partition's other writers, and
the disk thread and the cleaner begin while nobody else is at work.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final

from headrace.errors import TooManyOpenFiles
from headrace.kafka.sync_threads import THREAD_COUNT_MAX, SyncRound, sync_failure

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.errors import StorageError
    from headrace.log.partition import PartitionLog
    from headrace.testing.simulation.broker import Life

    Logs = tuple[PartitionLog, ...]

THREAD_COUNTS: Final = (1, 2, THREAD_COUNT_MAX, THREAD_COUNT_MAX)
"""The system may allow fewer than are wanted."""
HAND_OVER_S_MAX: Final = 0.0002
"""How long it takes until another thread sees what it has been given."""
SYNC_S: Final = (0.0002, 0.004)
SLOW_SYNC_CHANCE: Final = 0.03
SLOW_SYNC_S_MAX: Final = 0.5


class LifeOver(BaseException):
    """The broker has died while a thread of its waited for the disk."""


class Interrupted(BaseException):
    """Something has failed that happened while a thread waited for the disk: no matter of that thread's."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


class PlayedThreads:
    """The threads of one life of the broker."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._disk = life.disk
        self._loop = life.loop
        self._random = life.random
        self._count = 0

    @property
    def are_idle(self) -> bool:
        """Whether none of them waits for the disk."""
        return self._count == 0

    def hand_over(self, call: Callable[[], None]) -> None:
        """Make a call on another thread, or on the event loop's, a little later."""
        self._life.call_later(self._random.uniform(0, HAND_OVER_S_MAX), call)

    def when_idle(self, work: Callable[[], None]) -> None:
        """Do a thread's work once no other one waits for the disk."""
        if self.are_idle:
            self.run(work)
        else:
            self.hand_over(partial(self.when_idle, work))

    def run(self, work: Callable[[], None]) -> None:
        """Do a thread's work now."""
        before = self._disk.meanwhile
        self._disk.meanwhile = self._let_others_go_on
        self._count += 1
        try:
            work()
        finally:
            self._count -= 1
            self._disk.meanwhile = before
            if self.are_idle:
                self._disk.refusal = None

    def _let_others_go_on(self) -> None:
        self._disk.meanwhile = _nothing
        try:
            self._loop.run(until=lambda: self._life.is_over, for_s=self._sync_s())
        except Exception as error:
            raise Interrupted(error) from error
        if self._life.is_over:
            # Whatever the dead would still do on their way out does not happen.
            self._disk.refusal = LifeOver()
            raise self._disk.refusal
        self._disk.meanwhile = self._let_others_go_on

    def _sync_s(self) -> float:
        is_slow = self._random.random() < SLOW_SYNC_CHANCE
        return self._random.uniform(SYNC_S[0], SLOW_SYNC_S_MAX if is_slow else SYNC_S[1])


class PlayedSyncThreads:
    """Syncs partitions as `SyncThreads` does, several at the same time, in an order that chance decides."""

    def __init__(
        self, life: Life, threads: PlayedThreads, on_synced: Callable[[Logs, StorageError | None], None]
    ) -> None:
        self._threads = threads
        self._on_synced = on_synced
        self._idle_count = life.random.choice(THREAD_COUNTS)
        self._random = life.random
        self._work: deque[tuple[PartitionLog, SyncRound]] = deque()

    def sync(self, logs: Logs) -> None:
        """Ask for a sync of these partitions."""
        wanted = SyncRound(logs, self._tell)
        self._work.extend((log, wanted) for log in self._random.sample(logs, len(logs)))
        while self._work and self._idle_count:
            self._idle_count -= 1
            self._threads.hand_over(partial(self._sync, *self._work.popleft()))

    def _sync(self, log: PartitionLog, wanted: SyncRound) -> None:
        if log.is_being_written:
            self._threads.hand_over(partial(self._sync, log, wanted))
        else:
            self._threads.run(partial(self._sync_now, log, wanted))

    def _sync_now(self, log: PartitionLog, wanted: SyncRound) -> None:
        error = sync_failure(log)
        if isinstance(error, TooManyOpenFiles):
            self._threads.hand_over(partial(self._sync, log, wanted))
            return
        wanted.ended(error)
        if self._work:
            self._threads.hand_over(partial(self._sync, *self._work.popleft()))
        else:
            self._idle_count += 1

    def _tell(self, logs: Logs, error: StorageError | None) -> None:
        self._threads.hand_over(lambda: self._on_synced(logs, error))


def _nothing() -> None:
    """Nothing happens meanwhile."""
