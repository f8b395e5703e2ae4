"""A connection's wishes carried out on the broker, and what the broker wants sent. Does no I/O.

    bytes  ─▶ Connection ─▶ events ─▶ Session ─▶ broker
    bytes  ◀─ outgoing   ◀──────────  sinks   ◀─ broker

Events are taken one after the other. Taking them stops

- while an answer waits for the disk: so answers come in the order of the questions, and whoever asks without
  waiting can't make the broker keep more and more answers;
- while a log-in is checked;
- while the broker has no room for what is published (`blocked`);
- while the client does not take what it was sent.

Deliveries stop, too, once more than `OUTGOING_BYTES_MAX` wait to be written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from pamqp import commands

from headrace.config import KIB
from headrace.errors import QueueRefused
from headrace.queue.amqp.channel import Publish
from headrace.queue.amqp.connection import State
from headrace.queue.amqp.events import Ack, ChannelClosed, ChannelOpened, LoginAsked, OpenAsked
from headrace.queue.amqp.frames import (
    Deliveries,
    body_frames,
    confirm_frame,
    get_ok_frame,
    header_frame,
    refusal_frame,
    return_frame,
)
from headrace.queue.amqp.operations import operate

if TYPE_CHECKING:
    from headrace.queue.amqp.connection import Connection
    from headrace.queue.amqp.events import Event
    from headrace.queue.amqp.methods import Method
    from headrace.queue.interface import BrokerMethods, ChannelMethods, ConnectionMethods, Fetched
    from headrace.queue.message import Message

OUTGOING_BYTES_MAX: Final = 512 * KIB
"""How much may wait to be written before no more is delivered."""
DELIVERY_OVERHEAD_BYTES: Final = 100
"""About what a delivery has besides its properties and its body."""


class Edge(Protocol):
    """Who has the socket."""

    def log_in(self, asked: LoginAsked) -> None:
        """Check who the client is, and call `logged_in` or `refuse_login`."""
        ...

    def wake(self) -> None:
        """There is something to be sent, or to go on with: see to it soon."""
        ...


class Session:
    """Belongs to the event loop's thread."""

    def __init__(self, broker: BrokerMethods, wire: Connection, edge: Edge) -> None:
        self.wire = wire
        self.user = ""
        self.client = ""
        """Where the client is, for the audit."""
        self.virtual_host = ""
        self.is_blocked = False
        """Whether the broker has no room for what the client publishes."""
        self._broker = broker
        self._edge = edge
        self._connection: ConnectionMethods | None = None
        self._channels: dict[int, ChannelMethods] = {}
        self._waiting_count = 0
        """How many answers wait for the disk."""
        self._outgoing_bytes = 0
        self._is_paused = False

    @property
    def channel_count(self) -> int:
        """How many channels are open."""
        return len(self._channels)

    def pump(self) -> None:
        """Do what has come, as far as it may be done."""
        wire = self.wire
        while not (self._waiting_count or self.is_blocked or self._is_paused):
            found = wire.next_event()
            if found is None:
                break
            number, event = found
            try:
                if isinstance(event, Publish):
                    self._channels[number].basic_publish(
                        event.exchange,
                        event.routing_key,
                        event.properties,
                        event.body,
                        mandatory=event.is_mandatory,
                    )
                else:
                    self._handle(number, event)
            except QueueRefused as refusal:
                self._refuse(number, refusal)
        if wire.state is State.CLOSING or wire.state is State.CLOSED:
            self.close()

    def close(self) -> None:
        """Let go of all that the connection has in the broker. May be called twice."""
        self._channels.clear()
        if self._connection is not None:
            connection, self._connection = self._connection, None
            connection.close()

    def take_outgoing(self) -> bytes:
        """All that is to be sent now."""
        self._broker.flush()
        outgoing, self.wire.outgoing = self.wire.outgoing, []
        self._outgoing_bytes = 0
        return outgoing[0] if len(outgoing) == 1 else b"".join(outgoing)

    def pause(self) -> None:
        """The client does not take what it was sent: deliver nothing, do nothing more for it."""
        if not self._is_paused:
            self._is_paused = True
            if self._connection is not None:
                self._connection.pause()

    def resume(self) -> bool:
        """The client has caught up; False if nothing had been stopped."""
        if not self._is_paused:
            return False
        self._is_paused = False
        if self._connection is not None:
            self._connection.resume()
        return True

    def logged_in(self, user: str) -> None:
        """The client is who it says it is."""
        self.user = user
        self.wire.login_succeeded()

    # What the broker says of the connection.

    def blocked(self, reason: str) -> None:
        """Take nothing more: no room is left for what is published."""
        self.is_blocked = True
        if self.wire.has_capability("connection.blocked"):
            self.wire.send_on_connection(commands.Connection.Blocked, reason)
        self._edge.wake()

    def unblocked(self) -> None:
        """Go on."""
        self.is_blocked = False
        if self.wire.has_capability("connection.blocked"):
            self.wire.send_on_connection(commands.Connection.Unblocked)
        self._edge.wake()

    # What operations need.

    def reply(self, number: int, kind: type[Method], *arguments: Any) -> None:
        """Answer at once."""
        self.wire.send(number, kind, *arguments)

    def reply_when_durable(self, number: int, kind: type[Method], *arguments: Any) -> None:
        """Answer once what was done would survive a crash; take nothing more until then."""

        def answer() -> None:
            self._waiting_count -= 1
            self.wire.send(number, kind, *arguments)
            self._edge.wake()

        self._waiting_count += 1
        try:
            self._broker.when_durable(answer)
        except QueueRefused:
            self._waiting_count -= 1
            raise

    def get(self, number: int, channel: ChannelMethods, queue: str, *, no_ack: bool) -> None:
        """Fetch one message; take nothing more until it has been sent."""

        def answer(fetched: Fetched | None) -> None:
            self._waiting_count -= 1
            if fetched is None:
                self.wire.send(number, commands.Basic.GetEmpty, "")
            else:
                self._send_fetched(number, fetched)
            self._edge.wake()

        self._waiting_count += 1
        try:
            channel.basic_get(queue, answer, no_ack=no_ack)
        except QueueRefused:
            self._waiting_count -= 1
            raise

    def send_content(self, number: int, method_frame: bytes, message: Message) -> None:
        """Send a method that has content."""
        body = message.body
        assert body is not None  # The broker has it there until we return.
        outgoing = self.wire.outgoing
        outgoing += (method_frame, header_frame(number, message))
        outgoing += body_frames(number, body, self.wire.frame_bytes_max)
        self.note_outgoing(message)

    def note_outgoing(self, message: Message) -> None:
        """Count what waits to be written, and deliver no more when it is much."""
        before_bytes = self._outgoing_bytes
        after_bytes = before_bytes + message.body_bytes + len(message.properties) + DELIVERY_OVERHEAD_BYTES
        self._outgoing_bytes = after_bytes
        if after_bytes > OUTGOING_BYTES_MAX:
            self.pause()
        if not before_bytes:
            # Of what comes after the first, nobody need be told before that has been taken.
            self._edge.wake()

    def wake(self) -> None:
        """There is something to be sent."""
        self._edge.wake()

    def _send_fetched(self, number: int, fetched: Fetched) -> None:
        message = fetched.message
        if number in self._channels:
            method = get_ok_frame(
                number, fetched.delivery_tag, fetched.redelivered, message, fetched.message_count
            )
            self.send_content(number, method, message)

    def _handle(self, number: int, event: Event) -> None:
        if isinstance(event, Ack):
            self._channels[number].basic_ack(event.delivery_tag, multiple=event.is_multiple)
        elif isinstance(event, LoginAsked):
            self._edge.log_in(event)
        elif isinstance(event, OpenAsked):
            self._open(event)
        elif isinstance(event, ChannelOpened):
            assert self._connection is not None  # The wire opens channels on open connections only.
            self._channels[number] = self._connection.open_channel(ChannelOutput(self, number))
        elif isinstance(event, ChannelClosed):
            self._close_channel(number)
        else:
            operate(self, number, self._channels[number], event)

    def _open(self, asked: OpenAsked) -> None:
        self._connection = self._broker.open_connection(asked.virtual_host, self.user, self)
        self.virtual_host = asked.virtual_host
        self.wire.open_succeeded()

    def _refuse(self, number: int, refusal: QueueRefused) -> None:
        if self.wire.fail(number, refusal) is not None:
            self._close_channel(number)

    def _close_channel(self, number: int) -> None:
        channel = self._channels.pop(number, None)
        if channel is not None:
            channel.close()


class ChannelOutput:
    """Where the broker says what is to be sent on a channel."""

    __slots__ = ("_deliveries", "_number", "_session", "_wire")

    def __init__(self, session: Session, number: int) -> None:
        self._session = session
        self._wire = session.wire
        self._number = number
        self._deliveries = Deliveries(number, session.wire.frame_bytes_max)

    def deliver(self, consumer_tag: str, delivery_tag: int, redelivered: bool, message: Message) -> None:
        """Send a message to a consumer."""
        body = message.body
        assert body is not None  # The broker has it there until we return.
        self._wire.outgoing += self._deliveries.pieces(consumer_tag, delivery_tag, redelivered, message, body)
        self._session.note_outgoing(message)

    def returned(self, reply_code: int, reply_text: str, message: Message) -> None:
        """Send a message back that no queue took."""
        method = return_frame(self._number, reply_code, reply_text, message)
        self._session.send_content(self._number, method, message)

    def confirmed(self, delivery_tag: int, multiple: bool) -> None:
        """Tell a publisher that its messages are safe."""
        self._wire.outgoing.append(confirm_frame(self._number, delivery_tag, multiple))
        self._session.wake()

    def refused(self, delivery_tag: int, multiple: bool) -> None:
        """Tell a publisher that its messages were not taken."""
        self._wire.outgoing.append(refusal_frame(self._number, delivery_tag, multiple))
        self._session.wake()

    def cancelled(self, consumer_tag: str) -> None:
        """Tell a consumer that its queue is gone, if it understands that."""
        if self._wire.has_capability("consumer_cancel_notify"):
            self._wire.send(self._number, commands.Basic.Cancel, consumer_tag, True)
            self._session.wake()
