"""A broker's engine whose time, disk and threads are moved by hand, for tests of what is durable when.

bench = EngineByHand()
bench.store.catalog.begin_creation("t", 1).at_once()
answer = bench.ask(...)     nothing is durable yet
bench.sync()                what was asked for has been synced
bench.advance(1_000)        time passes, and timers ring
bench.crash()               the power goes: what was not synced is lost, and the broker starts again
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from headrace.config import Address, BrokerConfig, LogConfig
from headrace.kafka.answer import Pending
from headrace.kafka.api import APIS
from headrace.kafka.engine import Engine
from headrace.kafka.services import Call
from headrace.log.store import LogStore
from headrace.testing.clock import ManualClock
from headrace.testing.disk import SimulatedDisk

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.log.partition import PartitionLog

DATA_DIR = Path("/data")
"""On a disk that is played."""


class Timer:
    """A call that will be made when somebody moves the time there."""

    def __init__(self, at_s: float, callback: Callable[[], None]) -> None:
        self.at_s = at_s
        self.callback = callback
        self.is_cancelled = False

    def cancel(self) -> None:
        """Don't make the call."""
        self.is_cancelled = True


class EngineByHand:
    """Nothing becomes durable until `sync` or `settle`."""

    def __init__(self, **settings: Any) -> None:
        """`settings` are fields of BrokerConfig."""
        self.clock = ManualClock()
        self.disk = SimulatedDisk()
        self._config = BrokerConfig(data_dir=DATA_DIR, **settings)
        self.open()

    def open(self) -> None:
        """Start the broker on what is on the disk."""
        self.timers: list[Timer] = []
        self.syncs: list[tuple[PartitionLog, ...]] = []
        self.store = LogStore.open(DATA_DIR, LogConfig(), self.clock, disk=self.disk)
        loop: Any = SimpleNamespace(time=self.clock.monotonic_s, call_later=self.call_later)
        self.engine = Engine(
            self._config, self.store, self.clock, loop, start_sync=self.syncs.append, submit=self.submit
        )
        self.services = self.engine.services
        self.engine.start()

    def call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        """As an event loop's."""
        timer = Timer(self.clock.monotonic_s() + delay_s, callback)
        self.timers.append(timer)
        return timer

    def submit(self, work: Callable[[], None], then: Callable[[], None]) -> None:
        """Work for the disk that is not a sync is done at once."""
        work()
        then()

    def advance(self, by_ms: int) -> None:
        """Let time pass."""
        self.clock.advance(by_ms)
        for timer in [each for each in self.timers if each.at_s <= self.clock.monotonic_s()]:
            self.timers.remove(timer)
            if not timer.is_cancelled:
                timer.callback()

    def sync(self) -> None:
        """Do the syncs that have been asked for; what follows from them asks for more."""
        due, self.syncs[:] = list(self.syncs), []
        for logs in due:
            for log in logs:
                log.sync()
            self.engine.synced(logs, None)

    def settle(self) -> None:
        """Sync until there is nothing left to sync."""
        while self.syncs:
            self.sync()

    def crash(self, seed: int = 0) -> None:
        """The power goes, and the broker starts again."""
        self.disk.crash(Random(seed))  # noqa: S311  # what is lost is no secret
        self.open()

    def ask(self, key: int, version: int, request: Any, *, port: int = 0) -> Any:
        """The answer, or a Pending that has none yet. The port tells connections apart."""
        call = Call(
            services=self.services,
            client_id="test",
            host="127.0.0.1",
            port=port,
            address=Address("127.0.0.1", 9_092),
            api_version=version,
        )
        answer = APIS[key].handler(call, request)
        return answer.response if isinstance(answer, Pending) and answer.is_resolved else answer

    def tell(self, key: int, version: int, request: Any, *, port: int = 0) -> Any:
        """The answer, however many syncs it takes."""
        answer = self.ask(key, version, request, port=port)
        self.settle()
        return answer.response if isinstance(answer, Pending) else answer
