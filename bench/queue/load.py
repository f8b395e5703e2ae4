"""Load for a queue server: publishers and consumers that cost little, the same for every server.

    python bench/queue/load.py flood '{"port": 5672, "publisher_count": 4, "consumer_count": 4, ...}'

Clients as people use them would be what is measured: they take ten times as long for a message as a server
does. So frames of messages are made once and sent again and again, and what comes back is looked at no
further than needed: which confirms, how many deliveries. All connections share one thread, which leaves a
core to the server.

- A publisher has up to `window` messages that are not confirmed; each is persistent.
- A consumer has up to `prefetch` messages that are not acknowledged, and acknowledges every `ACK_EVERY`,
  all at once.
"""

from __future__ import annotations

import json
import selectors
import socket
import struct
import sys
import time
from collections.abc import Callable
from typing import Any, Final

from pamqp import commands, frame
from pamqp.header import ProtocolHeader

ACK_EVERY: Final = 50
PREFETCH: Final = 1000
RECEIVE_BYTES: Final = 262_144
CHUNK: Final = 64
"""How many messages are handed to the socket at once."""
SAMPLE_BYTES: Final = 8
_FRAME: Final = struct.Struct(">BHI")
_METHOD: Final = struct.Struct(">HH")
_TAG: Final = struct.Struct(">Q")
_TIME: Final = struct.Struct(">q")
_END: Final = b"\xce"
_ACK: Final = struct.Struct(">BHIHHQBB")
_BASIC: Final = 60
_DELIVER: Final = 60
_ACKED: Final = 80


class RawClient:
    """A connection with one open channel, and nothing in between."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.received = bytearray()
        self.unsent = b""
        self.socket.sendall(ProtocolHeader(0, 9, 1).marshal())
        self.answer()
        self.send(0, commands.Connection.StartOk({}, "PLAIN", "\0guest\0guest", "en_US"))
        tune = self.answer()
        self.send(0, commands.Connection.TuneOk(tune.channel_max, tune.frame_max, 0))
        self.call(0, commands.Connection.Open())
        self.call(1, commands.Channel.Open())

    def send(self, channel: int, method: Any) -> None:
        """Send a method."""
        self.socket.sendall(frame.marshal(method, channel))

    def call(self, channel: int, method: Any) -> Any:
        """Send a method and return what is answered."""
        self.send(channel, method)
        return self.answer()

    def answer(self) -> Any:
        """The next method."""
        while True:
            if len(self.received) >= 7:
                size = _FRAME.unpack_from(self.received)[2]
                if len(self.received) >= size + 8:
                    count, _channel, method = frame.unmarshal(bytes(self.received[: size + 8]))
                    del self.received[:count]
                    if isinstance(method, commands.Channel.Close | commands.Connection.Close):
                        raise RuntimeError(f"the server refused: {method.reply_text}")
                    return method
            data = self.socket.recv(RECEIVE_BYTES)
            if not data:
                raise RuntimeError("the server hung up")
            self.received += data

    def push_out(self, data: bytes) -> None:
        """Send as much as the socket takes, and keep the rest."""
        self.unsent += data
        self.push_on()

    def push_on(self) -> None:
        """Send on what the socket has not taken yet."""
        if not self.unsent:
            return
        try:
            count = self.socket.send(self.unsent)
        except BlockingIOError:
            return
        self.unsent = self.unsent[count:]

    def take_in(self) -> bool:
        """Receive what is there; say whether that is anything."""
        try:
            data = self.socket.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return False
        if not data:
            raise RuntimeError("the server hung up")
        self.received += data
        return True


class Publisher(RawClient):
    """Publishes the same message over and over, and counts confirms."""

    def __init__(self, port: int, queue: str, *, count: int, body_bytes: int, window: int) -> None:
        super().__init__(port)
        self.call(1, commands.Confirm.Select())
        self.socket.setblocking(False)
        self.count, self.window = count, window
        self.sent = self.confirmed = 0
        self._all_up_to, self._early = 0, set[int]()
        self.head, self.tail = message_frames(queue, body_bytes)
        self.message = self.head + bytes(SAMPLE_BYTES) + self.tail

    @property
    def is_done(self) -> bool:
        """Whether all is confirmed."""
        return self.confirmed >= self.count

    def pump(self) -> None:
        """Publish as much as the window allows."""
        while not self.unsent:
            number = min(CHUNK, self.window - (self.sent - self.confirmed), self.count - self.sent)
            if number <= 0:
                return
            self.sent += number
            self.push_out(self.message * number)
        self.push_on()

    def publish_now(self) -> None:
        """Publish one message that says when."""
        self.sent += 1
        self.push_out(self.head + _TIME.pack(time.perf_counter_ns()) + self.tail)

    def receive(self) -> None:
        """Count what is confirmed."""
        if not self.take_in():
            return
        data, position = self.received, 0
        while len(data) - position >= 8:
            kind, _channel, size = _FRAME.unpack_from(data, position)
            if len(data) - position < size + 8:
                break
            if kind == 1:
                method = _METHOD.unpack_from(data, position + 7)
                if method != (_BASIC, _ACKED):
                    raise RuntimeError(f"a publisher got method {method}")
                self._confirm(_TAG.unpack_from(data, position + 11)[0], multiple=bool(data[position + 19]))
            position += size + 8
        del data[:position]

    def _confirm(self, tag: int, *, multiple: bool) -> None:
        """Tags may come out of order, one by one or all up to one."""
        early = self._early
        if multiple:
            self._all_up_to = max(self._all_up_to, tag)
            if early:
                early.difference_update([each for each in early if each <= tag])
        else:
            early.add(tag)
        while self._all_up_to + 1 in early:
            self._all_up_to += 1
            early.remove(self._all_up_to)
        self.confirmed = self._all_up_to + len(early)


class Consumer(RawClient):
    """Consumes, counts and acknowledges."""

    def __init__(self, port: int, queue: str, *, on_body: Callable[[int], None] | None = None) -> None:
        super().__init__(port)
        self.call(1, commands.Basic.Qos(0, PREFETCH, False))
        self.send(1, commands.Basic.Consume(queue=queue, consumer_tag="c"))
        self.answer()
        self.socket.setblocking(False)
        self.on_body = on_body
        self.count = self.tag = self.coming = self.unacknowledged = 0
        self._tag_at = 11 + 1 + len("c")

    def receive(self) -> None:
        """Take what comes."""
        if self.take_in():
            self.look()

    def look(self) -> None:
        """Count messages in what was received, and acknowledge them."""
        data, position, end = self.received, 0, len(self.received)
        unpack, tag_at, on_body = _FRAME.unpack_from, self._tag_at, self.on_body
        while end - position >= 8:
            kind, _channel, size = unpack(data, position)
            following = position + size + 8
            if following > end:
                break
            if kind == 1:
                if data[position + 10] != _DELIVER:
                    raise RuntimeError(f"a consumer got method {_METHOD.unpack_from(data, position + 7)}")
                self.coming = _TAG.unpack_from(data, position + tag_at)[0]
            elif kind == 3:
                self.tag = self.coming
                self.count += 1
                self.unacknowledged += 1
                if on_body is not None:
                    on_body(_TIME.unpack_from(data, position + 7)[0])
            position = following
        del data[:position]
        if self.unacknowledged >= ACK_EVERY:
            self.acknowledge()

    def acknowledge(self) -> None:
        """Acknowledge all that came."""
        if self.unacknowledged:
            self.unacknowledged = 0
            self.push_out(_ACK.pack(1, 1, 13, _BASIC, _ACKED, self.tag, 1, 0xCE))


def message_frames(queue: str, body_bytes: int) -> tuple[bytes, bytes]:
    """A persistent message, before and after the first bytes of its body."""
    publish = frame.marshal(commands.Basic.Publish(exchange="", routing_key=queue), 1)
    header = struct.pack(">HHQHB", _BASIC, 0, body_bytes, 0x1000, 2)
    head = publish + _FRAME.pack(2, 1, len(header)) + header + _END + _FRAME.pack(3, 1, body_bytes)
    return head, bytes(body_bytes - SAMPLE_BYTES) + _END


def declare(port: int, queue: str) -> None:
    """Have an empty durable queue."""
    client = RawClient(port)
    client.call(1, commands.Queue.Declare(queue=queue, durable=True))
    client.call(1, commands.Queue.Purge(queue=queue))
    client.socket.close()


def delete(port: int, queue: str) -> None:
    """Delete a queue with all that is in it."""
    client = RawClient(port)
    client.socket.settimeout(600)
    client.call(1, commands.Queue.Delete(queue=queue))
    client.socket.close()


def flood(
    *,
    port: int,
    queue: str,
    message_count: int,
    body_bytes: int = 1024,
    publisher_count: int = 1,
    consumer_count: int = 1,
    window: int = 1000,
) -> dict[str, float]:
    """Publish as fast as confirms come while consumers take it all; messages a second."""
    declare(port, queue)
    selector = selectors.DefaultSelector()
    consumers = [Consumer(port, queue) for _ in range(consumer_count)]
    share = message_count // publisher_count
    publishers = [
        Publisher(port, queue, count=share, body_bytes=body_bytes, window=window)
        for _ in range(publisher_count)
    ]
    for client in (*consumers, *publishers):
        selector.register(client.socket, selectors.EVENT_READ, client)
    total = share * publisher_count
    begin_s = time.perf_counter()
    confirmed_s = 0.0
    while True:
        for publisher in publishers:
            publisher.pump()
        is_stuck = any(client.unsent for client in publishers)
        for key, _events in selector.select(0.001 if is_stuck else 1.0):
            key.data.receive()
        for consumer in consumers:
            consumer.push_on()
        if not confirmed_s and all(publisher.is_done for publisher in publishers):
            confirmed_s = time.perf_counter() - begin_s
        if confirmed_s and (not consumers or sum(each.count for each in consumers) >= total):
            break
    all_s = time.perf_counter() - begin_s
    for client in (*consumers, *publishers):
        if isinstance(client, Consumer):
            client.acknowledge()
        client.socket.close()
    return {"confirmed_per_s": total / confirmed_s, "messages_per_s": total / all_s}


def paced(
    *, port: int, queue: str, rate: float, seconds: float, body_bytes: int = 1024, warm_up_s: float = 1.0
) -> dict[str, float]:
    """Publish at a steady rate; how long messages take from publish to delivery, in milliseconds."""
    declare(port, queue)
    latencies_ns: list[int] = []
    consumer = Consumer(
        port, queue, on_body=lambda sent_ns: latencies_ns.append(time.perf_counter_ns() - sent_ns)
    )
    count = int(rate * (seconds + warm_up_s))
    publisher = Publisher(port, queue, count=count, body_bytes=body_bytes, window=count)
    selector = selectors.DefaultSelector()
    for client in (consumer, publisher):
        selector.register(client.socket, selectors.EVENT_READ, client)
    begin_s = time.perf_counter()
    while consumer.count < count:
        due_s = begin_s + publisher.sent / rate - time.perf_counter()
        if publisher.sent < count and due_s <= 0:
            publisher.publish_now()
            due_s = 0
        for key, _events in selector.select(min(1.0, max(0.0, due_s)) if publisher.sent < count else 1.0):
            key.data.receive()
    measured = sorted(latencies_ns[int(rate * warm_up_s) :])
    return {
        "p50_ms": measured[len(measured) // 2] / 1e6,
        "p99_ms": measured[int(len(measured) * 0.99)] / 1e6,
        "max_ms": measured[-1] / 1e6,
    }


def main() -> None:
    """Run what is asked for and print its numbers as JSON."""
    name, arguments = sys.argv[1], json.loads(sys.argv[2])
    work: dict[str, Callable[..., dict[str, float]]] = {"flood": flood, "paced": paced}
    if name == "delete":
        delete(**arguments)
        print("{}")
        return
    print(json.dumps(work[name](**arguments)))


if __name__ == "__main__":
    main()
