"""A broker of queues that kills itself in the middle of its work, at each failpoint, one after the other.

Meanwhile a publisher sends messages with confirms, again under another name where no confirm came, and a
worker takes them, acknowledges most of them and rejects some, which makes them dead letters. Then

- every confirmed message was acknowledged, or is a dead letter once;
- what was acknowledged or rejected, and answered, never comes again;
- what comes a second time says that it does.
"""

from __future__ import annotations

import random
import socket
from collections import Counter, deque
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final

import pytest
from pamqp import commands
from pamqp import frame as pamqp_frame
from pamqp.heartbeat import Heartbeat

from headrace.config import KIB, Address, BrokerConfig, QueueConfig
from headrace.queue.amqp.connection import GREETING
from headrace.queue.amqp.frames import BODY, HEADER, METHOD, FrameReader, frame
from headrace.queue.amqp.methods import write_method
from headrace.testing.amqp import start_ok, to_bytes
from headrace.testing.failpoints import FAILPOINTS, kill_at
from headrace.testing.process import BrokerProcess
from headrace.testing.waiting import eventually

MESSAGE_COUNT: Final = 100_000
WINDOW_COUNT: Final = 300
"""How many messages are on their way without a confirm."""
PERSISTENT: Final = b"\x10\x00\x02"
ANY_PORT: Final = Address("127.0.0.1", 0)
SEGMENT_BYTES: Final = 16 * KIB
"""So little that the journal gives space back again and again."""
HEARTBEAT_S: Final = 30


class Client:
    """A blocking client of AMQP that can send without waiting."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address, timeout=60)
        self._reader = FrameReader(131_072)
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        self.send(GREETING + start_ok())
        self.await_method(commands.Connection.Tune)
        tuned = commands.Connection.TuneOk(2_047, 131_072, HEARTBEAT_S)
        self.send(to_bytes(0, tuned, commands.Connection.Open()) + to_bytes(1, commands.Channel.Open()))
        self.await_method(commands.Channel.OpenOk)

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def call(self, kind: type[Any], *arguments: Any) -> None:
        """Send a method on channel 1."""
        self.send(frame(METHOD, 1, write_method(kind, *arguments)))

    def frames(self) -> Iterator[tuple[int, int, bytes]]:
        """Wait for bytes, and give the frames that are there then."""
        data = self._socket.recv(262_144)
        if not data:
            raise ConnectionError("the broker has closed the connection")
        self._reader.receive(data)
        while (found := self._reader.take_frame()) is not None:
            yield found

    def await_method(self, kind: type[Any]) -> Any:
        while True:
            found = None
            for number, channel, payload in self.frames():
                _, _, value = pamqp_frame.unmarshal(frame(number, channel, payload))
                assert not isinstance(value, commands.Channel.Close), dict(value)
                _check_open(value)
                if isinstance(value, kind):
                    found = value
            if found is not None:
                return found

    def close(self) -> None:
        self._socket.close()


class Worker(Thread):
    """Does its work on one connection after the other, for the broker dies again and again."""

    def __init__(self, address: tuple[str, int]) -> None:
        super().__init__(daemon=True)
        self._address = address
        self.stopping = Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        while not self.stopping.is_set():
            try:
                client = Client(self._address)
            except OSError:
                self.stopping.wait(0.02)
                continue
            try:
                self.work(client)
            except OSError:
                continue
            except BaseException as error:  # noqa: BLE001  # The test is told.
                self.error = error
                return
            finally:
                client.close()

    def work(self, client: Client) -> None:
        raise NotImplementedError


class Publisher(Worker):
    """Publishes numbers. One that was not confirmed is sent again, under the number of the attempt."""

    def __init__(self, address: tuple[str, int]) -> None:
        super().__init__(address)
        self.allowed_count = 0
        self.confirmed: set[str] = set()
        self.confirmed_numbers: set[int] = set()
        self._attempts: Counter[int] = Counter()
        self._to_send: list[int] = []
        self._next = 0

    def work(self, client: Client) -> None:
        client.call(commands.Confirm.Select, False)
        client.await_method(commands.Confirm.SelectOk)
        unconfirmed: dict[int, tuple[int, str]] = {}
        tag = 0
        try:
            while not self.stopping.is_set():
                parts = []
                while len(unconfirmed) < WINDOW_COUNT and (number := self._take()) is not None:
                    tag += 1
                    self._attempts[number] += 1
                    name = f"{number}:{self._attempts[number]}"
                    unconfirmed[tag] = (number, name)
                    parts.append(_message(name))
                if parts:
                    client.send(b"".join(parts))
                if unconfirmed:
                    self._take_confirms(client, unconfirmed)
                else:
                    self.stopping.wait(0.01)
        finally:
            self._to_send += [number for number, _ in unconfirmed.values()]

    def _take(self) -> int | None:
        if self._to_send:
            return self._to_send.pop()
        if self._next < self.allowed_count:
            self._next += 1
            return self._next - 1
        return None

    def _take_confirms(self, client: Client, unconfirmed: dict[int, tuple[int, str]]) -> None:
        for kind, channel, payload in client.frames():
            _, _, value = pamqp_frame.unmarshal(frame(kind, channel, payload))
            if isinstance(value, Heartbeat):
                continue
            _check_open(value)
            assert isinstance(value, commands.Basic.Ack), value
            last = value.delivery_tag
            for tag in [tag for tag in unconfirmed if tag == last or (value.multiple and tag < last)]:
                number, name = unconfirmed.pop(tag)
                self.confirmed.add(name)
                self.confirmed_numbers.add(number)


class Consumer(Worker):
    """Takes messages, acknowledges nine of ten, rejects the tenth, and waits until that was heard."""

    def __init__(self, address: tuple[str, int]) -> None:
        super().__init__(address)
        self.seen: set[str] = set()
        self.settled: dict[str, str] = {}
        """What was certainly acknowledged or rejected: the broker has answered since."""
        self.uncertain: dict[str, str] = {}
        """What was acknowledged or rejected before the broker died without an answer."""
        self.mistakes: list[str] = []

    def work(self, client: Client) -> None:
        client.call(commands.Basic.Qos, 0, 200, False)
        client.call(commands.Basic.Consume, 0, "work", "", False, False, False, False, {})
        settling: deque[dict[str, str]] = deque([{}])
        """By basic.qos that was not answered yet: what was settled before it."""
        try:
            self._take(client, settling)
        finally:
            for each in settling:
                self.uncertain.update(each)

    def _take(self, client: Client, settling: deque[dict[str, str]]) -> None:
        is_redelivered = False
        tag = 0
        while not self.stopping.is_set():
            parts: list[bytes] = []
            taken: dict[str, str] = {}
            for kind, _, payload in client.frames():
                if kind == METHOD and payload.startswith(b"\x00\x3c\x00\x3c"):
                    method = commands.Basic.Deliver()
                    method.unmarshal(payload[4:])
                    tag, is_redelivered = method.delivery_tag or 0, method.redelivered
                elif kind == METHOD and payload.startswith(b"\x00\x3c\x00\x0b"):
                    # The broker has heard of all that was settled before the question.
                    self.settled.update(settling.popleft())
                elif kind == BODY:
                    name = payload.decode()
                    self._look_at(name, is_redelivered)
                    is_dead = name.partition(":")[0].endswith("7")
                    taken[name] = "rejected" if is_dead else "acknowledged"
                    parts.append(_settlement(tag, is_dead=is_dead))
            if parts:
                parts.append(frame(METHOD, 1, write_method(commands.Basic.Qos, 0, 200, False)))
                settling.append(taken)
                client.send(b"".join(parts))

    def is_done_with(self, names: set[str]) -> bool:
        """Whether none of these need come again. It is asked often, so they are counted first."""
        if len(self.settled) + len(self.uncertain) < len(names):
            return False
        return names.copy() <= {*self.settled.copy(), *self.uncertain.copy()}

    def _look_at(self, name: str, is_redelivered: bool) -> None:
        if name in self.settled:
            self.mistakes.append(f"{name} was {self.settled[name]} and comes again")
        if name in self.seen and not is_redelivered:
            self.mistakes.append(f"{name} comes again and does not say so")
        self.seen.add(name)


def _check_open(value: object) -> None:
    """A broker that stops in good order says so."""
    if isinstance(value, commands.Connection.Close):
        raise ConnectionError(f"the broker has closed the connection: {value.reply_text}")


def _message(name: str) -> bytes:
    body = name.encode()
    header = b"\x00\x3c\x00\x00" + len(body).to_bytes(8, "big") + PERSISTENT
    publish = write_method(commands.Basic.Publish, 0, "", "work", False, False)
    return frame(METHOD, 1, publish) + frame(HEADER, 1, header) + frame(BODY, 1, body)


def _settlement(tag: int, *, is_dead: bool) -> bytes:
    if is_dead:
        return frame(METHOD, 1, write_method(commands.Basic.Reject, tag, False))
    return frame(METHOD, 1, write_method(commands.Basic.Ack, tag, False))


def _drained(address: tuple[str, int], queue: str) -> list[str]:
    """All that a queue has."""
    client = Client(address)
    names: list[str] = []
    try:
        client.call(commands.Queue.Declare, 0, queue, True, True, False, False, False, {})
        count = client.await_method(commands.Queue.DeclareOk).message_count
        client.call(commands.Basic.Consume, 0, queue, "", False, True, False, False, {})
        while len(names) < count:
            names += [payload.decode() for kind, _, payload in client.frames() if kind == BODY]
    finally:
        client.close()
    return names


@pytest.mark.long
@pytest.mark.simulation
def test_nothing_confirmed_is_lost_and_nothing_acknowledged_comes_again_at_any_failpoint(
    tmp_path: Path,
) -> None:
    config = BrokerConfig(
        listen=ANY_PORT, queues=QueueConfig(listen=ANY_PORT, journal_segment_bytes=SEGMENT_BYTES)
    )
    chance = random.Random(11)
    with BrokerProcess(tmp_path, config=config) as broker:
        address = broker.amqp_address
        setup = Client((address.host, address.port))
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
        setup.call(commands.Queue.Declare, 0, "dead", False, True, False, False, False, {})
        setup.await_method(commands.Queue.DeclareOk)
        setup.call(commands.Queue.Declare, 0, "work", False, True, False, False, False, arguments)
        setup.await_method(commands.Queue.DeclareOk)
        setup.close()
        publisher, consumer = Publisher((address.host, address.port)), Consumer((address.host, address.port))
        publisher.start()
        consumer.start()
        broker.stop()
        failpoints = sorted(name for name in FAILPOINTS if name.startswith("queue."))
        assert failpoints
        for number, name in enumerate(failpoints, 1):
            publisher.allowed_count = MESSAGE_COUNT * number // (len(failpoints) + 1)
            broker.start(kill_at(name, after=chance.randint(0, 3)))
            broker.await_killed()
            assert (publisher.error, consumer.error) == (None, None)
        publisher.allowed_count = MESSAGE_COUNT
        broker.start()
        eventually(
            lambda: len(publisher.confirmed_numbers) == MESSAGE_COUNT or publisher.error or consumer.error,
            "all messages being confirmed",
            within_s=300,
        )
        eventually(
            lambda: consumer.is_done_with(publisher.confirmed) or consumer.error,
            "all messages being settled",
            within_s=300,
        )
        for worker in (publisher, consumer):
            worker.stopping.set()
            assert worker.error is None
        dead = Counter(_drained((address.host, address.port), "dead"))
    for worker in (publisher, consumer):
        worker.join()
    assert consumer.mistakes == []
    assert [name for name, count in dead.items() if count > 1] == []
    rejected = {name for name, how in consumer.settled.items() if how == "rejected"}
    maybe_rejected = {name for name, how in consumer.uncertain.items() if how == "rejected"}
    assert rejected <= set(dead) <= rejected | maybe_rejected
