"""One client's connection, without I/O: bytes in, events out, bytes to send.

    state         what may come                what it leads to
    GREETING      the protocol's name          START, or the name that we know and the end
    START         connection.start-ok          LOGIN: whoever serves the connection checks the password
    LOGIN         nothing is taken             TUNE, or the end
    TUNE          connection.tune-ok           OPENING
    OPENING       connection.open              OPEN, once whoever serves has found the virtual host
    OPEN          everything else
    CLOSING       connection.close(-ok) only   the end
    CLOSED        nothing

A channel is open, or closing: then it waits for channel.close-ok, and all else that comes on it is dropped,
for the client did not know yet. An error in what a channel does closes the channel or the connection, by its
code. `fail` is for whoever serves: the same rules hold for what the broker refuses.

What is to be sent gathers in `outgoing`. Time comes in with `receive`, `sent` and `tick`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from pamqp import commands

from headrace.config import KIB, MIB
from headrace.errors import QueueRefused
from headrace.queue.amqp.channel import Channel, Publish, read_target
from headrace.queue.amqp.events import (
    CHANNEL_CLOSED,
    CHANNEL_OPENED,
    Ack,
    ChannelClosed,
    Event,
    LoginAsked,
    OpenAsked,
)
from headrace.queue.amqp.frames import (
    BODY,
    HEADER,
    HEARTBEAT,
    HEARTBEAT_FRAME,
    METHOD,
    PUBLISH_INDEX,
    FrameReader,
    frame,
)
from headrace.queue.amqp.methods import Method, read_method, write_method
from headrace.queue.amqp.refusals import (
    ACCESS_REFUSED,
    CHANNEL_ERROR,
    COMMAND_INVALID,
    CONNECTION_FORCED,
    FRAME_ERROR,
    NOT_ALLOWED,
    NOT_IMPLEMENTED,
    RESOURCE_ERROR,
    UNEXPECTED_FRAME,
    short_text,
    violation,
)

if TYPE_CHECKING:
    from headrace.queue.amqp.channel import Target

GREETING: Final = b"AMQP\x00\x00\x09\x01"
HANDSHAKE_FRAME_BYTES_MAX: Final = 8 * KIB
"""The most before a client has proved who it is."""
FRAME_BYTES_MIN: Final = 4 * KIB
MECHANISMS: Final = ("PLAIN", "AMQPLAIN")
LOCALE: Final = b"en_US"
CLOSE_OK_FRAME: Final = frame(METHOD, 0, write_method(commands.Connection.CloseOk))
TARGET_COUNT_MAX: Final = 256
"""How many pairs of an exchange and a routing key are remembered by their bytes."""

_INDEX: Final = Struct(">I")
_ACK: Final = Struct(">IQB")
_ACK_INDEX: Final = 0x003C0050


class State(Enum):
    """Where a connection is in its life."""

    GREETING = auto()
    START = auto()
    LOGIN = auto()
    TUNE = auto()
    OPENING = auto()
    OPEN = auto()
    CLOSING = auto()
    CLOSED = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """What a client is offered, and may not go beyond."""

    frame_bytes_max: int = 128 * KIB
    channel_count_max: int = 2_047
    heartbeat_s: int = 60
    message_bytes_max: int = 16 * MIB
    content_bytes_max: int = 64 * MIB
    """Content that has come in part, over all channels."""


SERVER_CAPABILITIES: Final = {
    "publisher_confirms": True,
    "exchange_exchange_bindings": True,
    "basic.nack": True,
    "consumer_cancel_notify": True,
    "connection.blocked": True,
    "consumer_priorities": True,
    "authentication_failure_close": True,
    "per_consumer_qos": True,
    "direct_reply_to": False,
}


class Connection:
    """Belongs to the event loop's thread."""

    def __init__(self, limits: ConnectionLimits, now_s: float, server_properties: Mapping[str, Any]) -> None:
        self.limits = limits
        self.state = State.GREETING
        self.outgoing: list[bytes] = []
        """Bytes that are to be sent."""
        self.frame_bytes_max = HANDSHAKE_FRAME_BYTES_MAX
        self.heartbeat_s = 0
        self.client_properties: Mapping[str, Any] = {}
        self.channels: dict[int, Channel] = {}
        self.closing_code = 0
        """Why it was closed, if we did."""
        self.closing_text = ""
        self._server_properties = {**server_properties, "capabilities": SERVER_CAPABILITIES}
        self._reader = FrameReader(HANDSHAKE_FRAME_BYTES_MAX)
        self._channel_count_max = limits.channel_count_max
        self._content_bytes = 0
        self._received_s = self._sent_s = now_s
        self._mechanism = ""
        self._targets: dict[bytes, Target] = {}
        self._index = 0
        """Class and method id of the method that came last. Content belongs to basic.publish."""

    # What comes.

    def receive(self, data: bytes, now_s: float) -> None:
        """Take bytes. `next_event` tells what is in them."""
        self._received_s = now_s
        if self._reader.is_broken and data.endswith(CLOSE_OK_FRAME):
            # Where frames begin is not known any more, but a client's last word can be told by its end.
            self.state = State.CLOSED
        self._reader.receive(data)

    @property
    def buffered_bytes(self) -> int:
        """How many bytes have come that were not looked at yet."""
        return self._reader.buffered_bytes

    def next_event(self) -> tuple[int, Event | Publish] | None:
        """What comes next, and on which channel; None when nothing is there. Raises nothing.

        What the client does wrong is answered here, and `state` says if it was the end.
        """
        if self.state is State.OPEN:
            found = self._reader.take_message(self.limits.message_bytes_max)
            if found is not None:
                number, arguments, properties, body = found
                target = self._target(number, arguments)
                if target is not None:
                    self._index = PUBLISH_INDEX
                    return number, Publish(target, properties, body)
                self._reader.give_back()
        while self.state is not State.CLOSED and self.state is not State.LOGIN:
            try:
                if self.state is State.GREETING:
                    if not self._greet():
                        return None
                    continue
                taken = self._reader.take_frame()
                if taken is None:
                    return None
                event = self._on_frame(*taken)
                if event is not None:
                    return taken[1], event
            except QueueRefused as refusal:
                self.fail_connection(refusal)
        return None

    def _target(self, number: int, arguments: bytes) -> Target | None:
        """Where a message that has come whole is to go; None where its frames are to be taken one by one."""
        channel = self.channels.get(number)
        if channel is None or channel.is_closing or channel.publish is not None:
            return None
        target = self._targets.get(arguments)
        if target is not None:
            return target
        try:
            target = read_target(arguments)
        except QueueRefused:
            return None
        if len(self._targets) >= TARGET_COUNT_MAX:
            self._targets.clear()
        self._targets[arguments] = target
        return target

    def _greet(self) -> bool:
        name = self._reader.take(len(GREETING))
        if name is None:
            return False
        if name != GREETING:
            self.outgoing.append(GREETING)
            self.state = State.CLOSED
            return False
        self.state = State.START
        self._send(
            0,
            commands.Connection.Start,
            0,
            9,
            self._server_properties,
            " ".join(MECHANISMS).encode(),
            LOCALE,
        )
        return True

    def _on_frame(self, kind: int, number: int, payload: bytes) -> Event | Publish | None:
        self._index = int.from_bytes(payload[:4], "big") if kind == METHOD else PUBLISH_INDEX
        if kind == HEARTBEAT or number == 0:
            return self._on_connection_frame(kind, number, payload)
        if self.state is not State.OPEN:
            if self.state is State.CLOSING:
                return None
            raise violation(CHANNEL_ERROR, "a channel can't be used before the connection is open")
        channel = self.channels.get(number)
        if channel is None or channel.is_closing:
            return self._on_other_channel(kind, number, payload, channel)
        try:
            return self._on_channel_frame(kind, channel, payload)
        except QueueRefused as refusal:
            return self.fail(number, refusal)

    def _on_channel_frame(self, kind: int, channel: Channel, payload: bytes) -> Event | Publish | None:
        if kind == METHOD:
            return self._on_channel_method(channel, payload)
        if kind == HEADER:
            return channel.receive_header(payload, self.limits.message_bytes_max)
        assert kind == BODY
        publish = channel.receive_body(payload)
        self._note_content(channel)
        return publish

    def _on_channel_method(self, channel: Channel, payload: bytes) -> Event | Publish | None:
        if channel.publish is not None:
            raise violation(UNEXPECTED_FRAME, "a method came where the content of a message was to come")
        if self._index == PUBLISH_INDEX:
            channel.receive_publish(payload)
            return None
        if self._index == _ACK_INDEX and len(payload) == _ACK.size:
            _, delivery_tag, bits = _ACK.unpack(payload)
            return Ack(delivery_tag, is_multiple=bool(bits & 1))
        method = read_method(payload)
        if isinstance(method, commands.Channel.Close):
            self._forget_channel(channel)
            self._send(channel.number, commands.Channel.CloseOk)
            return CHANNEL_CLOSED
        if isinstance(method, commands.Channel.Open):
            raise violation(CHANNEL_ERROR, "second 'channel.open' seen")
        if isinstance(method, commands.Channel.Flow):
            if not method.active:
                raise violation(NOT_IMPLEMENTED, "active=false")
            self._send(channel.number, commands.Channel.FlowOk, True)
            return None
        if isinstance(method, commands.Channel.FlowOk):
            return None
        return method

    def _on_other_channel(
        self, kind: int, number: int, payload: bytes, channel: Channel | None
    ) -> Event | None:
        """A frame on a channel that is not there, or is closing."""
        if channel is not None:
            method = read_method(payload) if kind == METHOD else None
            if isinstance(method, commands.Channel.Close):
                # Both sides close: each is told that the other has heard.
                self._send(number, commands.Channel.CloseOk)
            elif isinstance(method, commands.Channel.CloseOk):
                self._forget_channel(channel)
            return None
        if kind != METHOD:
            raise violation(CHANNEL_ERROR, "expected 'channel.open'")
        method = read_method(payload)
        if isinstance(method, commands.Channel.CloseOk):
            return None
        if not isinstance(method, commands.Channel.Open):
            raise violation(CHANNEL_ERROR, "expected 'channel.open'")
        if len(self.channels) >= self._channel_count_max or number > self._channel_count_max:
            raise violation(
                NOT_ALLOWED,
                f"number of channels opened ({len(self.channels)}) has reached the negotiated channel_max "
                f"({self._channel_count_max})",
            )
        self.channels[number] = Channel(number)
        self._send(number, commands.Channel.OpenOk, b"")
        return CHANNEL_OPENED

    def _on_connection_frame(self, kind: int, number: int, payload: bytes) -> Event | None:
        if kind == METHOD:
            return self._on_connection_method(read_method(payload))
        if kind != HEARTBEAT:
            raise violation(UNEXPECTED_FRAME, "content can't come on channel 0")
        if number or payload:
            raise violation(FRAME_ERROR, "a heartbeat is empty and comes on channel 0")
        return None

    def _on_connection_method(self, method: Method) -> Event | None:
        if isinstance(method, commands.Connection.Close):
            self._send(0, commands.Connection.CloseOk)
        if isinstance(method, commands.Connection.Close | commands.Connection.CloseOk):
            self.state = State.CLOSED
            return None
        if self.state is State.CLOSING:
            return None
        if isinstance(method, commands.Connection.UpdateSecret) and self.state is State.OPEN:
            # Passwords don't expire while a connection lasts, so there is nothing to update.
            self._send(0, commands.Connection.UpdateSecretOk)
            return None
        return self._on_handshake(method)

    def _on_handshake(self, method: Method) -> Event | None:
        if isinstance(method, commands.Connection.StartOk) and self.state is State.START:
            return self._on_start_ok(method)
        if isinstance(method, commands.Connection.TuneOk) and self.state is State.TUNE:
            self._on_tune_ok(method)
            return None
        if isinstance(method, commands.Connection.Open) and self.state is State.OPENING:
            return OpenAsked(virtual_host=method.virtual_host)
        raise violation(COMMAND_INVALID, f"{method.name} can't come here")

    def _on_start_ok(self, method: commands.Connection.StartOk) -> LoginAsked:
        # The library's annotations call both a text; they are bytes as they came.
        response: Any = method.response
        self.client_properties = method.client_properties
        if method.mechanism not in MECHANISMS:
            raise violation(
                NOT_ALLOWED,
                f"there is no mechanism {method.mechanism[:40]!r} here: use {' or '.join(MECHANISMS)}",
            )
        self._mechanism = method.mechanism
        self.state = State.LOGIN
        return LoginAsked(mechanism=method.mechanism, response=response)

    def _on_tune_ok(self, method: commands.Connection.TuneOk) -> None:
        limits = self.limits
        self.frame_bytes_max = _negotiated(
            "frame_max", method.frame_max, FRAME_BYTES_MIN, limits.frame_bytes_max
        )
        self._channel_count_max = _negotiated("channel_max", method.channel_max, 1, limits.channel_count_max)
        self._reader.frame_bytes_max = self.frame_bytes_max
        self.heartbeat_s = method.heartbeat
        self.state = State.OPENING

    # What whoever serves the connection says.

    def login_succeeded(self) -> None:
        """The client is who it says it is."""
        self.state = State.TUNE
        limits = self.limits
        self._send(
            0,
            commands.Connection.Tune,
            limits.channel_count_max,
            limits.frame_bytes_max,
            limits.heartbeat_s,
        )

    def login_failed(self, text: str = "") -> None:
        """The client is not let in. It is told so only if it can understand that."""
        text = text or (
            f"Login was refused using authentication mechanism {self._mechanism}. "
            "For details see the broker logfile."
        )
        if self.has_capability("authentication_failure_close"):
            # Closed with a channel error's code, and no method is at fault: so RabbitMQ does.
            self._index = 0
            self.fail_connection(violation(ACCESS_REFUSED, text))
        else:
            self.state = State.CLOSED

    def open_succeeded(self) -> None:
        """The virtual host is there."""
        self.state = State.OPEN
        self._send(0, commands.Connection.OpenOk, "")

    def has_capability(self, name: str) -> bool:
        """Whether the client has said that it understands something."""
        capabilities = self.client_properties.get("capabilities")
        return isinstance(capabilities, dict) and capabilities.get(name) is True

    def fail(self, number: int, refusal: QueueRefused) -> ChannelClosed | None:
        """Close a channel, or the connection, as the refusal has it; say whether it was the channel.

        The method that came last is told to be at fault.
        """
        channel = self.channels.get(number)
        if refusal.closes_connection or channel is None:
            self.fail_connection(refusal)
            return None
        if channel.is_closing:
            return None
        channel.is_closing = True
        self._content_bytes -= channel.content_bytes
        channel.drop_content()
        self._send(number, commands.Channel.Close, *self._reason(refusal))
        return CHANNEL_CLOSED

    def fail_connection(self, refusal: QueueRefused) -> None:
        """Close the connection; the client is to say that it has heard."""
        if self.state in {State.CLOSING, State.CLOSED}:
            # A client that breaks the protocol while it is being closed is not waited for.
            self.state = State.CLOSED
            return
        self.closing_code, self.closing_text = refusal.reply_code, refusal.reply_text
        if self.state is State.START:
            # Nothing is explained to those who have not said who they are.
            self.state = State.CLOSED
            return
        self.state = State.CLOSING
        self._content_bytes = 0
        for channel in self.channels.values():
            channel.drop_content()
        self._send(0, commands.Connection.Close, *self._reason(refusal))

    def shut_down(self) -> None:
        """The broker stops."""
        if self.state is State.OPEN:
            text = "broker forced connection closure with reason 'shutdown'"
            self.fail_connection(violation(CONNECTION_FORCED, text))
        elif self.state is not State.CLOSING:
            self.state = State.CLOSED

    def send(self, number: int, kind: type[Method], *arguments: Any) -> None:
        """Send a method on a channel, unless the channel is closing."""
        channel = self.channels.get(number)
        if self.state is State.OPEN and channel is not None and not channel.is_closing:
            self._send(number, kind, *arguments)

    def send_on_connection(self, kind: type[Method], *arguments: Any) -> None:
        """Send a method that is of no channel."""
        if self.state is State.OPEN:
            self._send(0, kind, *arguments)

    # Time.

    def sent(self, now_s: float) -> None:
        """Something has been sent."""
        self._sent_s = now_s

    def tick(self, now_s: float) -> bool:
        """Send a heartbeat if one is due; False if the client has not been heard of for too long."""
        if self.heartbeat_s and self.state in {State.OPENING, State.OPEN, State.CLOSING}:
            if now_s - self._received_s > 2 * self.heartbeat_s:
                return False
            if now_s - self._sent_s >= self.heartbeat_s / 2:
                self.outgoing.append(HEARTBEAT_FRAME)
                self._sent_s = now_s
        return True

    def _note_content(self, channel: Channel) -> None:
        """Count content that has come in part."""
        self._content_bytes += channel.take_growth()
        if self._content_bytes > self.limits.content_bytes_max:
            raise violation(
                RESOURCE_ERROR,
                f"more than {self.limits.content_bytes_max} bytes of messages are on their way",
            )

    def _reason(self, refusal: QueueRefused) -> tuple[int, str, int, int]:
        return refusal.reply_code, short_text(refusal.reply_text), self._index >> 16, self._index & 0xFFFF

    def _forget_channel(self, channel: Channel) -> None:
        self._content_bytes -= channel.content_bytes
        del self.channels[channel.number]

    def _send(self, number: int, kind: type[Method], *arguments: Any) -> None:
        self.outgoing.append(frame(METHOD, number, write_method(kind, *arguments)))


def _negotiated(name: str, asked: int, least: int, most: int) -> int:
    """What both sides can live with. RabbitMQ refuses what is beyond its own offer, and so do we."""
    if asked and asked < least:
        raise violation(
            NOT_ALLOWED, f"negotiated {name} = {asked} is lower than the minimum allowed value ({least})"
        )
    if not asked or asked > most:
        no_limit = " (no limit)" if not asked else ""
        raise violation(
            NOT_ALLOWED,
            f"negotiated {name} = {asked}{no_limit} is higher than the maximum allowed value ({most})",
        )
    return asked
