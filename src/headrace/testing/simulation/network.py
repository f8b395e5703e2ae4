"""Connections that behave as TCP does on a bad day.

What is sent arrives in order, later, whole or in pieces. When a connection breaks, its client hears of it at
once; of what it had sent, some first part still reaches the broker, perhaps much later, when the client has
long sent the same again on another connection. What the broker had sent and had not arrived is lost.

What has not arrived at a client counts as waiting in the broker's memory. When that is much, the broker hears
that the client reads too slowly, and later that it has caught up, as it does from a real event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

from headrace.config import KIB

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from random import Random

    from headrace.testing.simulation.loop import SimulatedLoop

LATENCY_S: Final = (0.0001, 0.003)
LATE_CHANCE: Final = 0.3
LATE_S_MAX: Final = 12.0
"""How long after its end a connection may still deliver what had been sent."""
SPLIT_CHANCE: Final = 0.05
UNSENT_BYTES_MAX: Final = 64 * KIB
"""So much may be on its way to a client before the broker hears that it reads too slowly."""


class ConnectionLost(Exception):
    """The connection has broken, or could not be made."""


class Listener(Protocol):
    """The broker, as the network sees it."""

    def accept(self) -> asyncio.Protocol | None:
        """What serves a new connection; None when nobody listens."""
        ...

    def guard(self, work: Callable[[], None]) -> None:
        """Run code of the broker, which may die of it."""
        ...


class _Direction:
    """One half of a connection. Pieces arrive in order, none before its time, None at the end."""

    def __init__(self, loop: SimulatedLoop, random: Random, arrive: Callable[[bytes | None], None]) -> None:
        self._loop = loop
        self._random = random
        self._arrive = arrive
        self._pieces: deque[tuple[float, bytes | None]] = deque()
        self._stalled_until_s = 0.0
        self._is_waiting = False

    def put(self, piece: bytes | None) -> None:
        """Send a piece."""
        arrives_s = self._loop.time() + self._random.uniform(*LATENCY_S)
        self._pieces.append((arrives_s, piece))
        self._wait()

    def stall(self, seconds: float) -> None:
        """Let nothing arrive for a time."""
        self._stalled_until_s = max(self._stalled_until_s, self._loop.time() + seconds)

    def go_on(self) -> None:
        """Let arrive what was stalled."""
        self._stalled_until_s = 0.0
        self._loop.call_later(0, self._deliver)

    def lose(self, *, everything: bool = False) -> None:
        """Lose some last part of what is on its way."""
        kept = 0 if everything else self._random.randint(0, len(self._pieces))
        while len(self._pieces) > kept:
            self._pieces.pop()

    def _wait(self) -> None:
        if self._pieces and not self._is_waiting:
            self._is_waiting = True
            arrives_s = max(self._pieces[0][0], self._stalled_until_s)
            self._loop.call_later(arrives_s - self._loop.time(), self._deliver)

    def _deliver(self) -> None:
        self._is_waiting = False
        if self._pieces and self._loop.time() >= self._stalled_until_s:
            self._arrive(self._pieces.popleft()[1])
        self._wait()


class Link:
    """One connection, with both of its ends."""

    def __init__(self, network: Network, protocol: asyncio.Protocol, number: int) -> None:
        self._network = network
        self._random = network.random
        self._number = number
        self._protocol: asyncio.Protocol | None = protocol
        self._is_broker_dead = False
        self._unsent_bytes_max = network.unsent_bytes_max
        self._is_paused = False
        self.unsent_bytes = 0
        """What the broker has sent and has not arrived."""
        self._to_broker = _Direction(network.loop, network.random, self._arrive_at_broker)
        self._to_client = _Direction(network.loop, network.random, self._arrive_at_client)
        self.is_open = True
        self.is_prompt = False
        """Whether nothing arrives late any more once the connection is broken."""
        self.on_data: Callable[[bytes], None] = lambda _data: None
        self.on_lost: Callable[[], None] = lambda: None
        transport = BrokerTransport(self, number)
        network.listener.guard(lambda: protocol.connection_made(transport))

    def send(self, data: bytes) -> None:
        """The client sends."""
        if self.is_open:
            for piece in self._in_pieces(data):
                self._to_broker.put(piece)

    def answer(self, data: bytes) -> None:
        """The broker sends."""
        for piece in self._in_pieces(data):
            self._to_client.put(piece)
        self.unsent_bytes += len(data)
        if self._protocol is not None and not self._is_paused and self.unsent_bytes > self._unsent_bytes_max:
            self._is_paused = True
            self._protocol.pause_writing()

    def cut(self) -> None:
        """Break the connection, as the network does, or the client."""
        if not self.is_open:
            return
        self._to_broker.lose()
        self._to_broker.put(None)
        if self.is_prompt:
            self._to_broker.go_on()
        elif self._random.random() < LATE_CHANCE:
            self._to_broker.stall(self._random.uniform(0, LATE_S_MAX))
        self._lose()

    def stall(self, seconds: float) -> None:
        """Let nothing arrive for a time, in either direction."""
        self._to_broker.stall(seconds)
        self._to_client.stall(seconds)

    def go_on(self) -> None:
        """Let arrive what was stalled, also after the connection's end."""
        self._to_broker.go_on()
        self._to_client.go_on()

    def broker_died(self) -> None:
        """The broker's process is gone. Some of what it had sent may still arrive."""
        if self._is_broker_dead:
            return
        self._protocol = None
        self._is_broker_dead = True
        self._to_client.lose()
        self._to_client.put(None)

    def close_by_broker(self, *, loses: bool) -> None:
        """The broker closes the connection."""
        protocol, self._protocol = self._protocol, None
        if protocol is None:
            return
        self._network.loop.call_later(0, lambda: self._tell_lost(protocol))
        if loses:
            self._to_client.lose(everything=True)
        self._to_client.put(None)

    def _tell_lost(self, protocol: asyncio.Protocol) -> None:
        if not self._is_broker_dead:
            self._network.listener.guard(lambda: protocol.connection_lost(None))

    def _lose(self) -> None:
        if self.is_open:
            self.is_open = False
            self._network.forget(self._number)
            self.on_lost()

    def _in_pieces(self, data: bytes) -> Iterable[bytes]:
        if len(data) > 1 and self._random.random() < SPLIT_CHANCE:
            middle = self._random.randrange(1, len(data))
            return (data[:middle], data[middle:])
        return (data,)

    def _arrive_at_broker(self, piece: bytes | None) -> None:
        protocol = self._protocol
        if protocol is None:
            return
        if piece is None:
            self._protocol = None
            self._tell_lost(protocol)
        else:
            self._network.listener.guard(lambda: protocol.data_received(piece))

    def _arrive_at_client(self, piece: bytes | None) -> None:
        if piece is None:
            self._lose()
            return
        self.unsent_bytes -= len(piece)
        if self.is_open:
            self.on_data(piece)
        protocol = self._protocol
        if protocol is not None and self._is_paused and self.unsent_bytes <= self._unsent_bytes_max // 4:
            self._is_paused = False
            self._network.listener.guard(protocol.resume_writing)


class BrokerTransport(asyncio.Transport):
    """The broker's end of a connection."""

    def __init__(self, link: Link, number: int) -> None:
        names = {"peername": ("10.0.0.1", 1024 + number % 60_000), "sockname": ("127.0.0.1", 9092)}
        super().__init__(extra=names)
        self._link = link
        self._is_closing = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send."""
        if not self._is_closing:
            self._link.answer(bytes(data))

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        """Send."""
        self.write(b"".join(list_of_data))

    def get_write_buffer_size(self) -> int:
        """How much of what was sent is waiting."""
        return self._link.unsent_bytes

    def is_closing(self) -> bool:
        """Whether it has been closed."""
        return self._is_closing

    def pause_reading(self) -> None:
        """Reading goes on: what a client may have in flight here is less than any limit."""

    def resume_reading(self) -> None:
        """Reading goes on."""

    def close(self) -> None:
        """Send what is due, then close."""
        self._close(loses=False)

    def abort(self) -> None:
        """Close now."""
        self._close(loses=True)

    def _close(self, *, loses: bool) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._link.close_by_broker(loses=loses)


class Network:
    """All connections to one broker."""

    def __init__(
        self,
        loop: SimulatedLoop,
        random: Random,
        listener: Listener,
        *,
        unsent_bytes_max: int = UNSENT_BYTES_MAX,
    ) -> None:
        self.unsent_bytes_max = unsent_bytes_max
        self.loop = loop
        self.random = random
        self.listener = listener
        self._links: dict[int, Link] = {}
        self._all: list[Link] = []
        self._count = 0

    @property
    def links(self) -> list[Link]:
        """The connections that are open, the oldest first."""
        return list(self._links.values())

    def connect(self) -> Link:
        """Connect to the broker."""
        protocol = self.listener.accept()
        if protocol is None:
            raise ConnectionLost
        self._count += 1
        link = Link(self, protocol, self._count)
        self._links[self._count] = link
        self._all.append(link)
        return link

    def broker_died(self) -> None:
        """The broker's process is gone, and its end of all connections with it."""
        for link in self._all:
            link.broker_died()

    def go_on(self) -> None:
        """Let arrive everything that was stalled."""
        for link in self._all:
            link.go_on()

    def forget(self, number: int) -> None:
        """Note that a connection has ended."""
        self._links.pop(number, None)
