"""A connection's life without sockets: handshake, channels, errors and heartbeats."""

from __future__ import annotations

from typing import Any

import pytest
from pamqp import commands
from pamqp.body import ContentBody
from pamqp.header import ContentHeader
from pamqp.heartbeat import Heartbeat

from headrace.errors import QueueRefused
from headrace.queue.amqp.channel import Publish
from headrace.queue.amqp.connection import GREETING, Connection, ConnectionLimits, State
from headrace.queue.amqp.events import Ack, ChannelClosed, ChannelOpened, LoginAsked
from headrace.queue.amqp.frames import METHOD, frame
from headrace.queue.amqp.methods import write_method
from headrace.testing.amqp import LIMITS, events, only, opened, publish, start_ok, taken, to_bytes


def greeted(limits: ConnectionLimits = LIMITS) -> Connection:
    connection = Connection(limits, 0.0, {"product": "Headrace"})
    assert events(connection, GREETING) == []
    return connection


def logged_in() -> Connection:
    connection = greeted()
    events(connection, start_ok())
    connection.login_succeeded()
    taken(connection)
    return connection


def closed_with(connection: Connection) -> tuple[int, str]:
    method = taken(connection)[-1][1]
    assert isinstance(method, commands.Connection.Close)
    assert connection.state is State.CLOSING
    return method.reply_code or 0, str(method.reply_text).partition(" - ")[0]


def test_the_handshake_begins_with_what_the_broker_can_do() -> None:
    start = only(greeted())
    assert isinstance(start, commands.Connection.Start)
    assert (start.version_major, start.version_minor) == (0, 9)
    assert start.mechanisms.split() == ["PLAIN", "AMQPLAIN"]
    properties: Any = start.server_properties
    assert properties["product"] == "Headrace"
    assert properties["capabilities"]["publisher_confirms"] is True


@pytest.mark.parametrize("greeting", [b"AMQP\x01\x01\x00\x0a", b"AMQP\x00\x01\x00\x00", b"GET / HT"])
def test_another_protocol_is_answered_with_ours_and_closed(greeting: bytes) -> None:
    connection = Connection(LIMITS, 0.0, {})
    assert events(connection, greeting) == []
    assert connection.outgoing == [GREETING]
    assert connection.state is State.CLOSED


def test_a_log_in_is_asked_for_and_nothing_is_taken_meanwhile() -> None:
    connection = greeted()
    open_it = to_bytes(0, commands.Connection.Open())
    ((_, asked),) = events(connection, start_ok() + open_it)
    assert asked == LoginAsked(mechanism="PLAIN", response=b"\0guest\0guest")
    assert connection.state is State.LOGIN
    assert connection.buffered_bytes == len(open_it)


def test_limits_are_offered_after_the_log_in() -> None:
    connection = greeted()
    taken(connection)
    events(connection, start_ok())
    connection.login_succeeded()
    tune = only(connection)
    assert isinstance(tune, commands.Connection.Tune)
    assert (tune.channel_max, tune.frame_max, tune.heartbeat) == (10, 131_072, 60)


def test_a_failed_log_in_is_told_to_those_who_understand() -> None:
    connection = greeted()
    events(connection, start_ok())
    connection.login_failed()
    assert closed_with(connection) == (403, "ACCESS_REFUSED")
    connection = greeted()
    taken(connection)
    events(connection, start_ok(capabilities={}))
    connection.login_failed()
    assert connection.outgoing == []
    assert connection.state is State.CLOSED


def test_nothing_is_explained_before_the_log_in() -> None:
    for data in (start_ok(mechanism="EXTERNAL"), to_bytes(0, commands.Connection.Open()), b"\x09" * 20):
        connection = greeted()
        taken(connection)
        assert events(connection, data) == []
        assert connection.outgoing == []
        assert connection.state is State.CLOSED


def test_a_large_frame_before_the_log_in_is_refused() -> None:
    connection = greeted()
    assert events(connection, b"\x01\x00\x00\x00\x00\x40\x00") == []
    assert connection.state is State.CLOSED


@pytest.mark.parametrize(
    "asked",
    [{"frame_max": 4095}, {"frame_max": 0}, {"frame_max": 131_073}, {"channel_max": 0}, {"channel_max": 11}],
)
def test_limits_beyond_the_offer_are_not_allowed(asked: dict[str, int]) -> None:
    connection = logged_in()
    values = {"channel_max": 10, "frame_max": 131_072, "heartbeat": 0, **asked}
    events(connection, to_bytes(0, commands.Connection.TuneOk(**values)))
    assert closed_with(connection) == (530, "NOT_ALLOWED")


def test_a_frame_above_the_negotiated_size_ends_the_connection() -> None:
    connection = opened(frame_max=4096)
    events(connection, frame(METHOD, 1, b"x" * 4089))
    assert closed_with(connection) == (501, "FRAME_ERROR")


def test_a_virtual_host_may_be_refused() -> None:
    connection = logged_in()
    tuned = commands.Connection.TuneOk(channel_max=10, frame_max=131_072, heartbeat=0)
    events(connection, to_bytes(0, tuned, commands.Connection.Open(virtual_host="other")))
    connection.fail_connection(
        QueueRefused(530, "NOT_ALLOWED - vhost other not found", closes_connection=True)
    )
    assert closed_with(connection) == (530, "NOT_ALLOWED")


def test_channels_open_and_close() -> None:
    connection = opened()
    ((number, event),) = events(connection, to_bytes(2, commands.Channel.Open()))
    assert (number, type(event)) == (2, ChannelOpened)
    assert [(n, type(value)) for n, value in taken(connection)] == [(2, commands.Channel.OpenOk)]
    ((number, event),) = events(connection, to_bytes(2, commands.Channel.Close(200, "", 0, 0)))
    assert (number, type(event)) == (2, ChannelClosed)
    assert [(n, type(value)) for n, value in taken(connection)] == [(2, commands.Channel.CloseOk)]
    assert set(connection.channels) == {1}


def test_a_channel_may_be_flown_again_but_not_stopped() -> None:
    connection = opened()
    assert events(connection, to_bytes(1, commands.Channel.Flow(active=True))) == []
    assert isinstance(only(connection), commands.Channel.FlowOk)
    events(connection, to_bytes(1, commands.Channel.Flow(active=False)))
    assert closed_with(connection) == (540, "NOT_IMPLEMENTED")


def test_a_new_secret_is_taken_note_of() -> None:
    connection = opened()
    assert events(connection, to_bytes(0, commands.Connection.UpdateSecret("new", "expired"))) == []
    assert isinstance(only(connection), commands.Connection.UpdateSecretOk)


def test_messages_come_whole() -> None:
    connection = opened(frame_max=4096)
    body = bytes(range(256)) * 40
    ((number, event),) = events(
        connection, publish(body, frame_max=4096, exchange="e", routing_key="k", mandatory=True)
    )
    assert isinstance(event, Publish)
    assert (number, event.exchange, event.routing_key, event.is_mandatory) == (1, "e", "k", True)
    assert event.body == body
    assert event.properties == b"\x80\x00\x0atext/plain"


def test_messages_of_several_channels_may_come_at_the_same_time() -> None:
    connection = opened()
    events(connection, to_bytes(2, commands.Channel.Open()))
    taken(connection)
    header = ContentHeader(0, 2, commands.Basic.Properties())
    found = events(
        connection,
        to_bytes(1, commands.Basic.Publish(routing_key="one"), header)
        + to_bytes(2, commands.Basic.Publish(routing_key="two"), header)
        + to_bytes(1, ContentBody(b"1"))
        + to_bytes(2, ContentBody(b"22"))
        + to_bytes(1, ContentBody(b"1")),
    )
    assert [(n, event.routing_key, event.body) for n, event in found] == [
        (2, "two", b"22"),
        (1, "one", b"11"),
    ]


def test_an_empty_message_comes_without_a_body() -> None:
    ((_, event),) = events(opened(), publish(b""))
    assert event.body == b""


def test_acknowledgements_and_other_methods_come_as_they_are() -> None:
    found = events(
        opened(),
        to_bytes(1, commands.Basic.Ack(9, True), commands.Basic.Get(queue="q"), commands.Tx.Select()),
    )
    assert [type(event) for _, event in found] == [Ack, commands.Basic.Get, commands.Tx.Select]
    assert (found[0][1].delivery_tag, found[0][1].is_multiple) == (9, True)


WRONG: dict[str, tuple[bytes, int]] = {
    "a second open": (to_bytes(1, commands.Channel.Open()), 504),
    "a method on a channel that is not open": (to_bytes(5, commands.Tx.Select()), 504),
    "a body on a channel that is not open": (to_bytes(5, ContentBody(b"x")), 504),
    "a channel beyond the limit": (to_bytes(11, commands.Channel.Open()), 530),
    "a body without its method": (to_bytes(1, ContentBody(b"x")), 505),
    "a header without its method": (to_bytes(1, ContentHeader(0, 2, commands.Basic.Properties())), 505),
    "a method instead of a header": (to_bytes(1, commands.Basic.Publish(), commands.Tx.Select()), 505),
    "a body instead of a header": (to_bytes(1, commands.Basic.Publish(), ContentBody(b"x")), 505),
    "content on channel 0": (to_bytes(0, ContentBody(b"x")), 505),
    "a heartbeat on a channel": (b"\x08\x00\x01\x00\x00\x00\x00\xce", 501),
    "an unknown method": (frame(METHOD, 1, b"\x00\x3c\x00\x63"), 540),
    "a method of a broker": (to_bytes(0, commands.Connection.Tune()), 503),
    "an immediate publish": (
        frame(METHOD, 1, write_method(commands.Basic.Publish, 0, "", "q", False, True)),
        540,
    ),
    "a body that is too long": (
        to_bytes(
            1, commands.Basic.Publish(), ContentHeader(0, 2, commands.Basic.Properties()), ContentBody(b"123")
        ),
        501,
    ),
    "a header of another class": (
        to_bytes(1, commands.Basic.Publish()) + frame(2, 1, b"\x00\x0a" + b"\0" * 12),
        505,
    ),
    "a frame that ends wrongly": (b"\x01\x00\x01\x00\x00\x00\x00\x00", 501),
    "a frame type that there is not": (b"\x07\x00\x01\x00\x00\x00\x00\xce", 501),
}


@pytest.mark.parametrize("data", WRONG.values(), ids=WRONG)
def test_what_is_wrong_with_the_protocol_ends_the_connection(data: tuple[bytes, int]) -> None:
    connection = opened()
    events(connection, data[0])
    assert closed_with(connection)[0] == data[1]


def test_a_message_that_is_too_large_closes_its_channel_before_its_body_comes() -> None:
    connection = opened()
    header = ContentHeader(0, 100_001, commands.Basic.Properties())
    ((number, event),) = events(connection, to_bytes(1, commands.Basic.Publish(), header))
    assert (number, type(event)) == (1, ChannelClosed)
    close = only(connection)
    assert isinstance(close, commands.Channel.Close)
    assert (close.reply_code, close.class_id, close.method_id) == (406, 60, 40)


def test_messages_in_part_are_limited_over_all_channels() -> None:
    connection = opened()
    data = b""
    for number in range(2, 5):
        data += to_bytes(number, commands.Channel.Open(), commands.Basic.Publish())
        data += to_bytes(
            number, ContentHeader(0, 90_000, commands.Basic.Properties()), ContentBody(b"x" * 60_000)
        )
    events(connection, data)
    assert closed_with(connection) == (506, "RESOURCE_ERROR")


def test_room_of_messages_that_are_whole_is_given_back() -> None:
    connection = opened(frame_max=65_536)
    for _ in range(10):
        assert len(events(connection, publish(b"x" * 90_000, frame_max=65_536))) == 1
    assert connection.state is State.OPEN


def test_a_refused_channel_drops_what_comes_until_its_client_knows() -> None:
    connection = opened()
    refusal = QueueRefused(404, "NOT_FOUND - no queue 'q' in vhost '/'")
    events(connection, to_bytes(1, commands.Basic.Get(queue="q")))
    assert connection.fail(1, refusal) is not None
    close = only(connection)
    assert isinstance(close, commands.Channel.Close)
    assert (close.reply_code, close.reply_text) == (404, "NOT_FOUND - no queue 'q' in vhost '/'")
    assert (close.class_id, close.method_id) == (60, 70)
    assert events(connection, publish(b"lost") + to_bytes(1, commands.Basic.Get(queue="q"))) == []
    connection.send(1, commands.Basic.QosOk)
    assert taken(connection) == []
    assert events(connection, to_bytes(1, commands.Channel.CloseOk())) == []
    ((_, event),) = events(connection, to_bytes(1, commands.Channel.Open()))
    assert isinstance(event, ChannelOpened)


def test_a_hard_refusal_ends_the_connection() -> None:
    connection = opened()
    refusal = QueueRefused(540, "NOT_IMPLEMENTED - this", closes_connection=True)
    assert connection.fail(1, refusal) is None
    assert closed_with(connection) == (540, "NOT_IMPLEMENTED")
    assert events(connection, publish(b"lost")) == []
    events(connection, to_bytes(0, commands.Connection.CloseOk()))
    assert connection.state is State.CLOSED


def test_a_long_reason_is_cut_where_the_wire_has_no_room() -> None:
    connection = opened()
    connection.fail(1, QueueRefused(404, "NOT_FOUND - " + "ü" * 200))
    assert len(only(connection).reply_text.encode()) <= 255


def test_a_client_may_close_its_connection() -> None:
    connection = opened()
    events(connection, to_bytes(0, commands.Connection.Close(200, "bye", 0, 0)))
    assert isinstance(only(connection), commands.Connection.CloseOk)
    assert connection.state is State.CLOSED


def test_the_end_is_heard_even_where_frames_can_not_be_told_apart() -> None:
    connection = opened()
    events(connection, b"\x07\x00\x01\x00\x00\x00\x00\xce")
    assert closed_with(connection)[0] == 501
    events(connection, b"garbage")
    assert connection.state.name == "CLOSING"
    events(connection, b"more" + to_bytes(0, commands.Connection.CloseOk()))
    assert connection.state is State.CLOSED


def test_both_sides_may_close_at_the_same_time() -> None:
    connection = opened()
    connection.shut_down()
    assert closed_with(connection) == (320, "CONNECTION_FORCED")
    events(connection, to_bytes(0, commands.Connection.Close(200, "bye", 0, 0)))
    assert isinstance(only(connection), commands.Connection.CloseOk)
    assert connection.state is State.CLOSED


def test_a_client_that_goes_on_wrongly_while_it_is_closed_is_not_waited_for() -> None:
    connection = opened()
    connection.shut_down()
    events(connection, b"\x07\x00\x01\x00\x00\x00\x00\xce")
    assert connection.state is State.CLOSED


def test_heartbeats_are_sent_when_nothing_else_is() -> None:
    connection = opened(heartbeat_s=10)
    connection.sent(100.0)
    connection.receive(b"", 100.0)
    assert connection.tick(104.9)
    assert taken(connection) == []
    assert connection.tick(105.0)
    assert isinstance(only(connection), Heartbeat)
    assert connection.tick(106.0)
    assert taken(connection) == []


def test_a_client_that_is_not_heard_of_is_let_go() -> None:
    connection = opened(heartbeat_s=10)
    connection.receive(to_bytes(0, Heartbeat()), 100.0)
    assert connection.tick(120.0)
    assert not connection.tick(120.1)


def test_without_heartbeats_nobody_is_let_go() -> None:
    connection = opened(heartbeat_s=0)
    assert connection.tick(1e9)
    assert taken(connection) == []


def test_capabilities_are_what_the_client_has_said() -> None:
    connection = opened()
    assert connection.has_capability("consumer_cancel_notify")
    assert not connection.has_capability("basic.nack")
    odd: Any = {"capabilities": "none"}
    connection.client_properties = odd
    assert not connection.has_capability("consumer_cancel_notify")
