"""Queues on a bench: the engine's real code on a disk, a clock and threads that are played.

Time stands still between the calls of a test, and passes in `run`. A sync takes a while, in which other
things happen; what is written during it is not kept by it. Without a disk, the broker keeps all in memory.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple

from headrace.queue.broker import QueueBroker
from headrace.queue.engine import QueueEngine
from headrace.queue.limits import QueueLimits
from headrace.testing.simulation.clock import SimulatedClock
from headrace.testing.simulation.loop import SimulatedLoop

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.errors import StorageError
    from headrace.queue.channel import Channel
    from headrace.queue.connection import Connection
    from headrace.queue.interface import Fetched
    from headrace.queue.message import Message
    from headrace.testing.disk import SimulatedDisk

DIRECTORY: Final = Path("/data")
SYNC_S_MAX: Final = 0.004
HAND_OVER_S_MAX: Final = 0.0005


class Delivery(NamedTuple):
    """What a consumer was told."""

    consumer_tag: str
    delivery_tag: int
    redelivered: bool
    body: bytes
    properties: bytes
    exchange: str
    routing_key: str


class QueueLoop(SimulatedLoop):
    """A simulated loop that also has what comes next."""

    def call_soon(self, callback: Callable[[], None], /) -> object:
        """Call once what is at hand is done."""
        return self.call_later(0, callback)


class RecordingSink:
    """Notes what a channel, or a connection, is told."""

    def __init__(self) -> None:
        self.deliveries: list[Delivery] = []
        self.returns: list[tuple[int, str, bytes]] = []
        self.confirms: list[tuple[int, bool]] = []
        self.refusals: list[tuple[int, bool]] = []
        self.cancels: list[str] = []
        self.blocks: list[str | None] = []

    @property
    def bodies(self) -> list[bytes]:
        """The bodies of what was delivered."""
        return [delivery.body for delivery in self.deliveries]

    def deliver(self, consumer_tag: str, delivery_tag: int, redelivered: bool, message: Message) -> None:
        """basic.deliver."""
        assert message.body is not None
        self.deliveries.append(
            Delivery(
                consumer_tag,
                delivery_tag,
                redelivered,
                message.body,
                message.properties,
                message.exchange,
                message.routing_key,
            )
        )

    def returned(self, reply_code: int, reply_text: str, message: Message) -> None:
        """basic.return."""
        assert message.body is not None
        self.returns.append((reply_code, reply_text, message.body))

    def confirmed(self, delivery_tag: int, multiple: bool) -> None:
        """basic.ack to a publisher."""
        self.confirms.append((delivery_tag, multiple))

    def refused(self, delivery_tag: int, multiple: bool) -> None:
        """basic.nack to a publisher."""
        self.refusals.append((delivery_tag, multiple))

    def cancelled(self, consumer_tag: str) -> None:
        """basic.cancel to a consumer."""
        self.cancels.append(consumer_tag)

    def blocked(self, reason: str) -> None:
        """connection.blocked."""
        self.blocks.append(reason)

    def unblocked(self) -> None:
        """connection.unblocked."""
        self.blocks.append(None)


class QueueBench:
    """A broker of queues whose world is played."""

    def __init__(
        self, *, disk: SimulatedDisk | None = None, limits: QueueLimits | None = None, seed: int = 0
    ) -> None:
        self.loop = QueueLoop()
        self.clock = SimulatedClock(self.loop)
        self.disk = disk
        self.limits = limits or QueueLimits()
        self.random = Random(seed)  # noqa: S311  # A story that can be repeated.
        self.failures: list[StorageError] = []
        self._syncing_count = 0
        self._life = 0
        self.engine: QueueEngine | None = None
        self.broker: QueueBroker
        self.open()

    def open(self) -> None:
        """Start the broker."""
        self._life += 1
        self._syncing_count = 0
        if self.disk is None:
            self.broker = QueueBroker(self.limits, self.clock, self.loop)
            return
        self.disk.make_directory(DIRECTORY)
        self.disk.sync_directory(Path("/"))
        self.engine = QueueEngine(
            DIRECTORY,
            self.limits,
            self.clock,
            self.loop,
            start_sync=self._start_sync,
            submit=self._submit,
            disk=self.disk,
            on_failure=self.failures.append,
        )
        self.broker = self.engine.broker

    def channel(self, *, user: str = "guest", vhost: str = "/") -> tuple[Channel, RecordingSink]:
        """A channel of a new connection."""
        sink = RecordingSink()
        return self.connection(user=user, vhost=vhost).open_channel(sink), sink

    def connection(
        self, *, user: str = "guest", vhost: str = "/", sink: RecordingSink | None = None
    ) -> Connection:
        """A new connection."""
        return self.broker.open_connection(vhost, user, sink or RecordingSink())

    def run(self, for_s: float = 1.0) -> None:
        """Let time pass, and everything happen that is due."""
        self.loop.run(until=lambda: False, for_s=for_s)

    def get(self, channel: Channel, queue: str, *, no_ack: bool = False) -> Fetched | None:
        """Fetch one message."""
        answers: list[Fetched | None] = []
        channel.basic_get(queue, answers.append, no_ack=no_ack)
        if not answers:
            self.run()
        (answer,) = answers
        return answer

    def restart(self) -> None:
        """Stop in good order, and start again."""
        assert self.engine is not None
        self.run()
        self.engine.stop()
        self.open()

    def kill(self) -> None:
        """End the process: what was written is there, what was not is not."""
        assert self.disk is not None
        self._end()
        self.disk.kill()

    def lose_power(self) -> None:
        """End the machine: what was not synced is lost, as chance has it."""
        assert self.disk is not None
        self._end()
        self.disk.crash(self.random)

    def _end(self) -> None:
        self._life += 1
        self.broker.services.stop()
        self.loop = QueueLoop()
        self.loop.run(until=lambda: False, for_s=(self.clock.now_ms() + 1 - _BEGINNING_MS) / 1000)
        self.clock = SimulatedClock(self.loop)

    def _start_sync(self) -> None:
        life = self._life
        self._later(lambda: self._sync(life))

    def _sync(self, life: int) -> None:
        """Sync while other things happen."""
        engine, disk = self.engine, self.disk
        if life != self._life or engine is None or disk is None:
            return
        if self._syncing_count:
            self._later(lambda: self._sync(life))
            return
        before, disk.meanwhile = disk.meanwhile, self._meanwhile
        self._syncing_count += 1
        try:
            error = engine.sync()
        finally:
            disk.meanwhile = before
            self._syncing_count -= 1
        self._later(lambda: engine.synced(error) if life == self._life else None)

    def _meanwhile(self) -> None:
        assert self.disk is not None
        self.disk.meanwhile = lambda: None
        self.loop.run(until=lambda: False, for_s=self.random.uniform(0, SYNC_S_MAX))

    def _submit(self, work: Callable[[], None], then: Callable[[], None]) -> None:
        life = self._life

        def begin() -> None:
            if life != self._life:
                return
            if self._syncing_count:
                self._later(begin)
                return
            work()
            self._later(lambda: then() if life == self._life else None)

        self._later(begin)

    def _later(self, call: Callable[[], None]) -> None:
        self.loop.call_later(self.random.uniform(0, HAND_OVER_S_MAX), call)


_BEGINNING_MS: Final = SimulatedClock(SimulatedLoop()).now_ms()
