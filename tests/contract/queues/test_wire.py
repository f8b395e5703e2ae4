"""The protocol itself, frame by frame: what each server says to what no client of others sends."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest
from pamqp import commands
from pamqp import frame as pamqp_frame
from pamqp.body import ContentBody
from pamqp.header import ContentHeader
from pamqp.heartbeat import Heartbeat

from headrace.queue.amqp.connection import GREETING
from headrace.queue.amqp.frames import METHOD, frame
from headrace.queue.amqp.methods import write_method
from headrace.testing.amqp import start_ok, to_bytes
from queues.conftest import AmqpServer

WITHIN_S = 30.0


class RawClient:
    """A socket and frames."""

    def __init__(self, server: AmqpServer) -> None:
        self.socket = socket.create_connection(server.address, timeout=WITHIN_S)
        self._data = b""

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive(self) -> Any:
        """The next frame but heartbeats: channel and value; None at the end of the connection."""
        while True:
            if len(self._data) >= 7:
                size = int.from_bytes(self._data[3:7], "big") + 8
                if len(self._data) >= size:
                    _, channel, value = pamqp_frame.unmarshal(self._data[:size])
                    self._data = self._data[size:]
                    if not isinstance(value, Heartbeat):
                        return channel, value
                    continue
            try:
                data = self.socket.recv(65_536)
            except ConnectionResetError:
                return None
            if not data:
                return None
            self._data += data

    def expect(self, kind: type[Any]) -> Any:
        received = self.receive()
        assert received is not None
        assert isinstance(received[1], kind), received[1]
        return received[1]

    def closed_with(self) -> tuple[int, str]:
        """The code with which the connection is closed, and its name. The end is awaited."""
        close = self.expect(commands.Connection.Close)
        self.send(to_bytes(0, commands.Connection.CloseOk()))
        assert self.receive() is None
        return close.reply_code, close.reply_text.partition(" - ")[0]

    def log_in(self, response: bytes = start_ok()) -> Any:
        self.send(GREETING)
        self.expect(commands.Connection.Start)
        self.send(response)
        return self.expect(commands.Connection.Tune)

    def open(self, *, channel_count: int = 1) -> None:
        tune = self.log_in()
        self.send(
            to_bytes(
                0,
                commands.Connection.TuneOk(tune.channel_max, tune.frame_max, 0),
                commands.Connection.Open(virtual_host="/"),
            )
        )
        self.expect(commands.Connection.OpenOk)
        for number in range(1, channel_count + 1):
            self.send(to_bytes(number, commands.Channel.Open()))
            self.expect(commands.Channel.OpenOk)


@pytest.fixture
def stranger(amqp: AmqpServer) -> Iterator[RawClient]:
    stranger = RawClient(amqp)
    yield stranger
    stranger.socket.close()


@pytest.fixture
def raw(stranger: RawClient) -> RawClient:
    """A client with channel 1."""
    stranger.open()
    return stranger


@pytest.mark.parametrize(
    "greeting", [b"AMQP\x01\x01\x00\x0a", b"AMQP\x00\x00\x09\x02", b"GET / HTTP/1.1\r\n\r\n"]
)
def test_another_protocol_is_answered_with_the_one_that_is_spoken(
    stranger: RawClient, greeting: bytes
) -> None:
    stranger.send(greeting)
    answer = b""
    while len(answer) < 8:
        answer += stranger.socket.recv(8 - len(answer))
    assert answer == GREETING


def test_capabilities_that_clients_rely_on_are_offered(stranger: RawClient) -> None:
    stranger.send(GREETING)
    start = stranger.expect(commands.Connection.Start)
    assert {"PLAIN", "AMQPLAIN"} <= set(start.mechanisms.split())
    for name in (
        "publisher_confirms",
        "exchange_exchange_bindings",
        "basic.nack",
        "consumer_cancel_notify",
        "connection.blocked",
        "consumer_priorities",
        "authentication_failure_close",
        "per_consumer_qos",
    ):
        assert start.server_properties["capabilities"][name] is True


def test_limits_are_offered(stranger: RawClient) -> None:
    tune = stranger.log_in()
    assert (tune.channel_max, tune.frame_max, tune.heartbeat) == (2_047, 131_072, 60)


def test_amqplain_is_understood(stranger: RawClient) -> None:
    table = write_method(
        commands.Connection.StartOk,
        {"capabilities": {}},
        "AMQPLAIN",
        b"\x05LOGINS\x00\x00\x00\x05guest\x08PASSWORDS\x00\x00\x00\x05guest",
        "en_US",
    )
    assert stranger.log_in(frame(METHOD, 0, table)).frame_max == 131_072


@pytest.mark.parametrize("response", ["\0guest\0wrong", "\0nobody\0guest", "guest"])
def test_a_wrong_password_is_told_to_those_who_understand(stranger: RawClient, response: str) -> None:
    stranger.send(GREETING)
    stranger.expect(commands.Connection.Start)
    stranger.send(start_ok(response=response))
    if response == "guest":
        # RabbitMQ closes without a word what is not PLAIN at all.
        received = stranger.receive()
        assert received is None or received[1].reply_code == 403
        return
    close = stranger.expect(commands.Connection.Close)
    assert (close.reply_code, close.class_id, close.method_id) == (403, 0, 0)
    assert close.reply_text.startswith(
        "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN"
    )


def test_a_virtual_host_that_is_not_there_is_not_allowed(stranger: RawClient) -> None:
    tune = stranger.log_in()
    tuned = commands.Connection.TuneOk(tune.channel_max, tune.frame_max, 0)
    stranger.send(to_bytes(0, tuned, commands.Connection.Open(virtual_host="elsewhere")))
    assert stranger.closed_with() == (530, "NOT_ALLOWED")


@pytest.mark.parametrize(("channel_max", "frame_max"), [(2_048, 131_072), (2_047, 131_073), (2_047, 1_000)])
def test_limits_beyond_the_offer_are_refused(stranger: RawClient, channel_max: int, frame_max: int) -> None:
    stranger.log_in()
    stranger.send(to_bytes(0, commands.Connection.TuneOk(channel_max, frame_max, 0)))
    received = stranger.receive()
    # RabbitMQ closes without a word.
    assert received is None or (received[1].name, received[1].reply_code) == ("Connection.Close", 530)


HEADER = ContentHeader(0, 2, commands.Basic.Properties())
WRONG: dict[str, tuple[bytes, int]] = {
    "a second open": (to_bytes(1, commands.Channel.Open()), 504),
    "a method on a channel that is not open": (to_bytes(5, commands.Tx.Select()), 504),
    "a body without its method": (to_bytes(1, ContentBody(b"x")), 505),
    "a header without its method": (to_bytes(1, HEADER), 505),
    "a method instead of a header": (to_bytes(1, commands.Basic.Publish(), commands.Tx.Select()), 505),
    "a body instead of a header": (to_bytes(1, commands.Basic.Publish(), ContentBody(b"x")), 505),
    "a frame that ends wrongly": (b"\x01\x00\x01\x00\x00\x00\x04\x00\x5a\x00\x0a\x00", 501),
    "a frame that is too large": (b"\x01\x00\x01\x00\x03\x00\x00" + b"x" * 20, 501),
    "channel.flow that stops": (to_bytes(1, commands.Channel.Flow(active=False)), 540),
    "an immediate publish": (
        frame(METHOD, 1, write_method(commands.Basic.Publish, 0, "", "q", False, True))
        + to_bytes(1, HEADER, ContentBody(b"xx")),
        540,
    ),
    "recovering without requeue": (to_bytes(1, commands.Basic.Recover(requeue=False)), 540),
    "a limit on bytes": (to_bytes(1, commands.Basic.Qos(prefetch_size=10)), 540),
}


@pytest.mark.parametrize("data", WRONG.values(), ids=WRONG)
def test_what_is_wrong_with_the_protocol_ends_the_connection(raw: RawClient, data: tuple[bytes, int]) -> None:
    raw.send(data[0])
    assert raw.closed_with()[0] == data[1]


def test_a_closed_channel_names_the_method_that_was_at_fault(raw: RawClient) -> None:
    raw.send(to_bytes(1, commands.Queue.Declare(queue="never-declared", passive=True)))
    close = raw.expect(commands.Channel.Close)
    assert close.reply_code == 404
    assert close.reply_text == "NOT_FOUND - no queue 'never-declared' in vhost '/'"
    assert (close.class_id, close.method_id) == (50, 10)
    # What was on its way is dropped, and the channel can be opened again.
    raw.send(
        to_bytes(1, commands.Basic.Qos(prefetch_count=1), commands.Channel.CloseOk(), commands.Channel.Open())
    )
    raw.expect(commands.Channel.OpenOk)


def test_publishing_to_an_exchange_that_is_not_there_names_the_publish(raw: RawClient) -> None:
    raw.send(to_bytes(1, commands.Basic.Publish(exchange="not-there"), HEADER, ContentBody(b"xx")))
    close = raw.expect(commands.Channel.Close)
    assert (close.reply_code, close.class_id, close.method_id) == (404, 60, 40)


def test_confirms_come_in_order_whatever_was_pipelined(raw: RawClient) -> None:
    message = to_bytes(1, commands.Basic.Publish(exchange="amq.fanout"), HEADER, ContentBody(b"xx"))
    raw.send(to_bytes(1, commands.Confirm.Select()) + message * 500)
    raw.expect(commands.Confirm.SelectOk)
    confirmed = 0
    while confirmed < 500:
        ack = raw.expect(commands.Basic.Ack)
        assert ack.delivery_tag == confirmed + 1 or (ack.multiple and ack.delivery_tag > confirmed)
        confirmed = ack.delivery_tag


def test_answers_come_in_the_order_of_the_questions(raw: RawClient) -> None:
    raw.send(
        to_bytes(
            1,
            commands.Queue.Declare(queue="", exclusive=True),
            commands.Queue.Bind(queue="", exchange="amq.fanout"),
            commands.Basic.Qos(prefetch_count=1),
            commands.Basic.Consume(queue="", consumer_tag="me"),
        )
    )
    for kind in (
        commands.Queue.DeclareOk,
        commands.Queue.BindOk,
        commands.Basic.QosOk,
        commands.Basic.ConsumeOk,
    ):
        raw.expect(kind)


def test_nothing_is_answered_where_no_answer_is_wanted(raw: RawClient) -> None:
    raw.send(
        to_bytes(
            1,
            commands.Queue.Declare(queue="unanswered", exclusive=True, nowait=True),
            commands.Queue.Bind(queue="unanswered", exchange="amq.fanout", nowait=True),
            commands.Basic.Consume(queue="unanswered", consumer_tag="me", nowait=True),
            commands.Basic.Cancel(consumer_tag="me", nowait=True),
            commands.Queue.Purge(queue="unanswered", nowait=True),
            commands.Queue.Delete(queue="unanswered", nowait=True),
            commands.Confirm.Select(nowait=True),
            commands.Basic.Qos(prefetch_count=1),
        )
    )
    raw.expect(commands.Basic.QosOk)


def test_more_channels_than_negotiated_are_not_allowed(stranger: RawClient) -> None:
    tune = stranger.log_in()
    stranger.send(to_bytes(0, commands.Connection.TuneOk(3, tune.frame_max, 0), commands.Connection.Open()))
    stranger.expect(commands.Connection.OpenOk)
    for number in (1, 2, 3):
        stranger.send(to_bytes(number, commands.Channel.Open()))
        stranger.expect(commands.Channel.OpenOk)
    stranger.send(to_bytes(4, commands.Channel.Open()))
    assert stranger.closed_with()[0] == 530


def test_heartbeats_come_when_nothing_else_does(stranger: RawClient) -> None:
    tune = stranger.log_in()
    tuned = commands.Connection.TuneOk(tune.channel_max, tune.frame_max, 1)
    stranger.send(to_bytes(0, tuned, commands.Connection.Open(virtual_host="/")))
    stranger.expect(commands.Connection.OpenOk)
    assert stranger.socket.recv(8) == b"\x08\0\0\0\0\0\0\xce"
    # A client that sends none is let go.
    while stranger.receive() is not None:
        pass
