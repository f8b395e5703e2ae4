"""The broker's own code on a disk that can lose its power, with syncs that end when the story says.

A broker has lives. Each begins with `start`, which recovers whatever the disk holds, and ends with `die`:
nothing happens any more of what it had planned for later. Its threads are played (see threads.py).
"""

from __future__ import annotations

from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from headrace.kafka.engine import Engine
from headrace.kafka.security.logins import Logins
from headrace.log.store import LogStore
from headrace.security.users import UserRegistry
from headrace.testing.disk import PowerLoss
from headrace.testing.simulation.cleaner import SimulatedCleaner
from headrace.testing.simulation.threads import Interrupted, LifeOver, PlayedSyncThreads, PlayedThreads

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from random import Random

    from headrace.clock import Clock
    from headrace.config import BrokerConfig
    from headrace.errors import StorageError
    from headrace.log.partition import PartitionLog
    from headrace.log.stored_batches import Lending
    from headrace.testing.disk import SimulatedDisk
    from headrace.testing.simulation.loop import Event, SimulatedLoop

DATA_DIR: Final = Path("/data")
BUSY_S_MAX: Final = 0.002
"""How long the event loop may be busy with what it has at hand."""


class Life:
    """The event loop and the threads of one life of the broker."""

    def __init__(self, broker: SimulatedBroker) -> None:
        self._broker = broker
        self.loop = broker.loop
        self.disk = broker.disk
        self.random = broker.random
        self.threads = PlayedThreads(self)
        self._sync_threads = PlayedSyncThreads(self, self.threads, self._synced)
        self._work: deque[tuple[Callable[[], None], Callable[[], None]]] = deque()
        self.is_over = False
        self.engine: Engine | None = None
        self.cleaner: SimulatedCleaner | None = None

    def time(self) -> float:
        """Seconds that only ever grow."""
        return self.loop.time()

    def create_future(self) -> asyncio.Future[Any]:
        """A future that nobody waits for here."""
        return self.loop.create_future()

    def call_later(self, delay: float, callback: Callable[[], None], /) -> Event:
        """Call back after so many seconds, if the broker is still alive then."""
        return self.loop.call_later(delay, lambda: self._guarded(callback))

    def call_soon(self, callback: Callable[[], None], /) -> Event:
        """Call back once the loop has done what it has at hand: at once, or after a few more requests."""
        return self.call_later(self.random.choice((0.0, self.random.uniform(0, BUSY_S_MAX))), callback)

    def start_sync(self, logs: tuple[PartitionLog, ...]) -> None:
        """Sync partitions, as the sync threads do."""
        self._sync_threads.sync(logs)

    def submit(self, work: Callable[[], None], then: Callable[[], None], /) -> None:
        """Do work that waits for the disk, one piece after the other, as the disk thread does."""
        self._work.append((work, then))
        if len(self._work) == 1:
            self._work_next()

    def end(self) -> None:
        """Let nothing happen any more."""
        self.is_over = True
        if self.cleaner is not None:
            self.cleaner.die()

    def _work_next(self) -> None:
        def run() -> None:
            work, then = self._work[0]
            work()
            self.threads.hand_over(then)
            self._work.popleft()
            self._work_next()

        if self._work:
            self.threads.hand_over(lambda: self.threads.when_idle(run))

    def _synced(self, logs: tuple[PartitionLog, ...], error: StorageError | None) -> None:
        assert self.engine is not None  # nothing is synced before there is an engine
        self.engine.synced(logs, error)

    def _guarded(self, callback: Callable[[], None]) -> None:
        if not self.is_over:
            try:
                self._broker.guard(callback)
            except LifeOver:
                assert self.is_over
            except Interrupted as interrupted:
                raise interrupted.error from None


class SimulatedBroker:
    """A broker that can be killed at any moment, and started again."""

    def __init__(
        self,
        config: BrokerConfig,
        disk: SimulatedDisk,
        clock: Clock,
        loop: SimulatedLoop,
        *,
        random: Random,
        lending: Lending | None = None,
        users_path: Path | None = None,
    ) -> None:
        """Users are kept on the machine's own disk, so there are none unless a path is named."""
        self._users_path = users_path
        self._lending = lending
        self.loop = loop
        self.random = random
        self._config = config
        self.disk = disk
        self._clock = clock
        self._life: Life | None = None
        self._store: LogStore | None = None
        self.on_death: Callable[[], None] = lambda: None

    @property
    def is_alive(self) -> bool:
        """Whether it runs."""
        return self._life is not None

    @property
    def is_waiting_for_the_disk(self) -> bool:
        """Whether a thread of its does: then it can't be stopped in good order yet."""
        return self._life is not None and not self._life.threads.are_idle

    @property
    def has_failed(self) -> bool:
        """Whether it has stopped taking writes after a failure of the disk."""
        return self._store is not None and self._store.failed is not None

    def start(self) -> None:
        """Begin a life. Raises StorageError where the disk fails, and PowerLoss where the power goes."""
        life = Life(self)
        store = LogStore.open(
            DATA_DIR,
            self._config.log,
            self._clock,
            disk=self.disk,
            new_id=self._new_id,
            lending=self._lending,
        )
        life.engine = Engine(
            self._config,
            store,
            self._clock,
            life,
            start_sync=life.start_sync,
            submit=life.submit,
            call_soon=life.call_soon,
            logins=self._logins(life),
            new_id=self._new_id,
        )
        life.engine.start()
        interval_s = self._config.log.cleaner_interval_ms / 1000
        life.cleaner = SimulatedCleaner(life, store, life.engine, self._clock, interval_s)
        life.cleaner.start()
        self._life, self._store = life, store

    def die(self) -> None:
        """End this life without a word."""
        if self._life is not None:
            self._life.end()
        self._life = self._store = None
        self.on_death()

    def stop(self) -> None:
        """End this life in good order. A failed disk is left as it is."""
        life, store = self._life, self._store
        if life is None or store is None or life.engine is None:
            return
        life.engine.stop()
        if life.cleaner is not None:
            life.cleaner.stop()
        store.close()
        self.die()

    def accept(self) -> asyncio.Protocol | None:
        """What serves a new connection; None when the broker is dead."""
        if self._life is None or self._life.engine is None:
            return None
        return self._life.engine.new_connection()

    def guard(self, work: Callable[[], None]) -> None:
        """Run code of the broker. If the power goes meanwhile, this life ends."""
        try:
            work()
        except PowerLoss:
            self.die()

    def _logins(self, life: Life) -> Logins | None:
        if self._users_path is None:
            return None
        return Logins(self._config, UserRegistry(self._users_path), self._clock, life, life.submit)

    def _new_id(self) -> UUID:
        return UUID(int=self.random.getrandbits(128))
