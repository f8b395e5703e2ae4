"""What must hold whatever a client of queues sends: an answer or a closed connection, and nothing else."""

from __future__ import annotations

from collections import deque
from random import Random
from typing import TYPE_CHECKING, Any, Final, cast

from pamqp import commands
from pamqp import frame as pamqp_frame
from pamqp.heartbeat import Heartbeat

from headrace.config import MIB
from headrace.queue.amqp.connection import GREETING, Connection, ConnectionLimits, State
from headrace.queue.amqp.events import LoginAsked
from headrace.queue.amqp.frames import BODY, HEADER, METHOD, frame
from headrace.queue.amqp.methods import Method, write_method
from headrace.queue.amqp.session import Session
from headrace.queue.broker import QueueBroker
from headrace.queue.limits import QueueLimits
from headrace.testing.amqp import publish, start_ok, to_bytes
from headrace.testing.clock import ManualClock
from headrace.testing.fuzz.damage import damage

if TYPE_CHECKING:
    from collections.abc import Callable

NAMES: Final = ("", "work", "dead", "amq.topic", "amq.direct", "amq.new", "a b", "ü€𝄞", "x" * 255, "*.#")
NUMBERS: Final = (0, 1, 2, 9, 255, 65_535, 2**31 - 1, 2**32 - 1)
VALUES: Final[tuple[Any, ...]] = (
    None,
    True,
    0,
    -1,
    5,
    2**40,
    "",
    "work",
    "all",
    "reject-publish",
    1.5,
    [1, ["x"]],
    {"a": {}},
)
ARGUMENTS: Final = (
    "x-message-ttl",
    "x-expires",
    "x-max-length",
    "x-max-length-bytes",
    "x-max-priority",
    "x-overflow",
    "x-dead-letter-exchange",
    "x-dead-letter-routing-key",
    "x-single-active-consumer",
    "x-delivery-limit",
    "x-priority",
    "x-match",
    "alternate-exchange",
)
LIMITS: Final = ConnectionLimits(message_bytes_max=MIB, content_bytes_max=2 * MIB)
SENT_BYTES_MAX: Final = 4 * MIB
"""No case has reason to make the broker say more."""
_CLIENT_METHODS: Final = [
    kind
    for kind in cast("dict[int, type[Method]]", commands.INDEX_MAPPING).values()
    if not kind.name.endswith("Ok") and not kind.name.startswith("Connection.")
]


class PlayedLoop:
    """An event loop whose calls are made when it is asked to; time stands still."""

    def __init__(self) -> None:
        self._calls: deque[Callable[[], None]] = deque()

    def call_soon(self, callback: Callable[[], None], /) -> None:
        """Call at the next turn."""
        self._calls.append(callback)

    def call_later(self, delay: float, callback: Callable[[], None], /) -> PlayedLoop:  # noqa: ARG002
        """Never: time stands still."""
        return self

    def cancel(self) -> None:
        """Nothing was to be called."""

    def run(self) -> None:
        """Make all calls, those that they ask for included."""
        for _ in range(10_000):
            if not self._calls:
                return
            self._calls.popleft()()
        raise AssertionError("the broker does not come to rest")


class PlayedClient:
    """A session without a socket. Everybody is let in."""

    def __init__(self, broker: QueueBroker, loop: PlayedLoop) -> None:
        self.wire = Connection(LIMITS, 0.0, {"product": "Headrace"})
        self.session = Session(broker, self.wire, self)
        self.sent = b""
        self._loop = loop

    def log_in(self, asked: LoginAsked) -> None:  # noqa: ARG002  # The edge's signature.
        """Let the client in."""
        self._loop.call_soon(lambda: self.session.logged_in("guest"))

    def wake(self) -> None:
        """Sending is asked for by `receive`."""

    def receive(self, data: bytes) -> None:
        """Take bytes, and do all that comes of them."""
        self.wire.receive(data, 0.0)
        for _ in range(4):
            self.session.pump()
            self._loop.run()
            self.sent += self.session.take_outgoing()
            self.session.resume()
        assert len(self.sent) <= SENT_BYTES_MAX

    def answers(self) -> list[Any]:
        """All that was sent, as the library reads it: it must be what a client can read."""
        data, values = self.sent, []
        self.sent = b""
        if data.startswith(GREETING):
            return []
        while data:
            size, _, value = pamqp_frame.unmarshal(data)
            assert size, "half a frame was sent"
            data = data[size:]
            if not isinstance(value, Heartbeat):
                values.append(value)
        return values


def new_broker() -> tuple[QueueBroker, PlayedLoop]:
    """Queues in memory."""
    loop = PlayedLoop()
    return QueueBroker(QueueLimits(), ManualClock(), loop), loop


def opening() -> bytes:
    """What a client says until channel 1 is open."""
    tuned = commands.Connection.TuneOk(2_047, 131_072, 0)
    return b"".join(
        (
            GREETING,
            start_ok(),
            to_bytes(0, tuned, commands.Connection.Open(virtual_host="/")),
            to_bytes(1, commands.Channel.Open()),
        )
    )


def odd_method(random: Random) -> bytes:
    """A method with odd arguments, on channel 1."""
    kind = random.choice(_CLIENT_METHODS)
    values = [_value(kind.amqp_type(name), random) for name in kind.attributes()]
    payload = frame(METHOD, 1, write_method(kind, *values))
    if kind is commands.Basic.Publish:
        body = random.randbytes(random.choice((0, 1, 50)))
        properties = random.choice((b"\x00\x00", b"\x10\x00\x02", b"\x20\x00\x00\x00\x00\x00", b"\xff\xfe"))
        payload += frame(HEADER, 1, b"\x00\x3c\x00\x00" + len(body).to_bytes(8, "big") + properties)
        payload += frame(BODY, 1, body) if body else b""
    return payload


def _value(kind: str, random: Random) -> Any:
    if kind == "bit":
        return random.random() < 0.5
    if kind == "shortstr":
        return random.choice((*NAMES, "direct", "fanout", "topic", "headers"))
    if kind == "longstr":
        return random.randbytes(random.randrange(20))
    if kind == "table":
        return {random.choice(ARGUMENTS): random.choice(VALUES) for _ in range(random.randrange(4))}
    limit = {"octet": 255, "short": 65_535, "long": 2**32 - 1}.get(kind, 2**32 - 1)
    return min(random.choice(NUMBERS), limit)


def check_methods(seed: int) -> None:
    """Odd methods, some of them damaged, are answered or end the connection; the broker serves as before."""
    random = Random(seed)  # noqa: S311  # The seed decides what happens.
    broker, loop = new_broker()
    client = PlayedClient(broker, loop)
    client.receive(opening())
    for _ in range(30):
        data = odd_method(random)
        client.receive(damage(data, random) if random.random() < 0.2 else data)
        client.answers()
        if client.wire.state is not State.OPEN:
            break
        if 1 in client.wire.channels and client.wire.channels[1].is_closing:
            client.receive(to_bytes(1, commands.Channel.CloseOk(), commands.Channel.Open()))
    client.session.close()
    check_serves(broker, loop)


def check_garbage(seed: int) -> None:
    """Bytes that are no AMQP, at any time of a connection, and cut at any place."""
    random = Random(seed)  # noqa: S311  # The seed decides what happens.
    broker, loop = new_broker()
    client = PlayedClient(broker, loop)
    stream = opening() + publish(b"x" * 300, routing_key="work") + odd_method(random)
    data = damage(stream, random, after=random.choice((0, len(GREETING), len(opening()))))
    if random.random() < 0.2:
        data += random.randbytes(2_000)
    while data:
        size = random.choice((1, 7, 100, len(data)))
        client.receive(data[:size])
        data = data[size:]
    client.answers()
    client.session.close()
    check_serves(broker, loop)


def check_serves(broker: QueueBroker, loop: PlayedLoop) -> None:
    """Another client is served as if nothing had been."""
    client = PlayedClient(broker, loop)
    declare = commands.Queue.Declare(queue="", exclusive=True)
    client.receive(opening() + to_bytes(1, declare))
    queue = client.answers()[-1].queue
    client.receive(publish(b"hello", routing_key=queue) + to_bytes(1, commands.Basic.Get(queue=queue)))
    assert client.answers()[-1].value == b"hello"
    client.session.close()
    loop.run()
