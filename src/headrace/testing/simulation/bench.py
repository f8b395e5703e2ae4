"""A broker in a simulated world where nothing breaks, to be asked one thing after the other."""

from __future__ import annotations

from contextlib import contextmanager
from random import Random
from typing import TYPE_CHECKING, Any, Final, TypeVar

from headrace.testing.disk import SimulatedDisk
from headrace.testing.history import History, Outcome, Send
from headrace.testing.simulation.admin import Admin
from headrace.testing.simulation.broker import SimulatedBroker
from headrace.testing.simulation.client import World
from headrace.testing.simulation.clock import SimulatedClock
from headrace.testing.simulation.consumers import LastReader
from headrace.testing.simulation.loop import SimulatedLoop
from headrace.testing.simulation.mistakes import heard_mistakes
from headrace.testing.simulation.network import Network
from headrace.testing.simulation.producers import IdempotentProducer

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator
    from pathlib import Path

    from headrace.config import BrokerConfig
    from headrace.testing.simulation.network import Link
    from headrace.testing.simulation.topics import TopicInfo

Result = TypeVar("Result")

REQUEST_S: Final = 0.02
"""By then, most requests have been answered."""
SETTLE_S: Final = 120.0
"""By then, whatever waits has been answered or given up."""
WORK_S_MAX: Final = 60.0


class SimulatedBench:
    """One broker, and connections to it."""

    def __init__(self, seed: int, config: BrokerConfig, users_path: Path) -> None:
        self._random = Random(seed)  # noqa: S311  # cases, not secrets
        self._loop = SimulatedLoop()
        clock = SimulatedClock(self._loop)
        self._broker = SimulatedBroker(
            config, SimulatedDisk(clock), clock, self._loop, random=self._random, users_path=users_path
        )
        self._network = Network(self._loop, self._random, self._broker)
        self._history = History()
        self._world = World(
            loop=self._loop,
            clock=clock,
            network=self._network,
            history=self._history,
            trace=lambda _text: None,
        )
        self._link: Link | None = None
        self._answers = b""
        self._unanswered_count = 0
        self._mistakes: list[str] = []

    @contextmanager
    def running(self) -> Iterator[None]:
        """Let the broker run; at the end, raise if its log told of a mistake."""
        with heard_mistakes(self._mistakes.append):
            self._broker.start()
            yield
        self._check_mistakes()

    def create_topic(self, name: str) -> TopicInfo:
        """Make a topic with two partitions."""
        return self._do(Admin(self._world, "admin", self._random).create_topic(name, 2))

    def deliver(self, frame: bytes, *, is_answered: bool = True) -> None:
        """Send a frame, on a new connection if the last one was closed, and give it some time."""
        if self._link is None or not self._link.is_open:
            self._link = self._network.connect()
            self._link.on_data = self._receive
            self._answers = b""
            self._unanswered_count = 0
        self._unanswered_count += is_answered
        self._link.send(len(frame).to_bytes(4, "big") + frame)
        self._loop.run(until=lambda: False, for_s=REQUEST_S)
        # A request that waits long would keep the next ones waiting behind it.
        if self._random.random() < 0.1:
            self._link.cut()
        self._check_mistakes()

    def settle(self) -> None:
        """Let everything that waits come to an end: every request is answered, or its connection closed."""
        self._loop.run(until=lambda: False, for_s=SETTLE_S)
        if self._link is not None and self._link.is_open:
            assert self._unanswered_count == 0, f"{self._unanswered_count} requests were never answered"

    def check_serves(self) -> None:
        """Produce to a new topic and read it."""
        partitions = self.create_topic("afterwards").partitions
        self._do(IdempotentProducer(self._world, "producer", self._random, partitions, 5).run())
        reader = LastReader(self._world, "reader", self._random, partitions, is_read_committed=True)
        self._do(reader.run())
        sent = [each for each in self._history.operations if isinstance(each, Send)]
        assert len(sent) == 5
        assert all(each.outcome is Outcome.OK for each in sent)

    def _receive(self, data: bytes) -> None:
        self._answers += data
        while len(self._answers) >= 4 and len(self._answers) - 4 >= int.from_bytes(self._answers[:4], "big"):
            self._answers = self._answers[4 + int.from_bytes(self._answers[:4], "big") :]
            self._unanswered_count -= 1

    def _do(self, coroutine: Coroutine[Any, None, Result]) -> Result:
        task = self._loop.start(coroutine)
        assert self._loop.run(until=lambda: task.is_done, for_s=WORK_S_MAX), "the broker does not answer"
        return task.result()

    def _check_mistakes(self) -> None:
        assert not self._mistakes, "\n".join(self._mistakes)
