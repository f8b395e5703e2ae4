"""What the wire and the broker's logic have to do with each other. Nothing here does I/O.

    QueueBroker.open_connection(vhost, user, sink) -> Connection
    Connection.open_channel(sink)                  -> Channel
    Channel.basic_publish(...), basic_ack(...), ... one method for each method of AMQP

Calls go down, and what comes of them later comes up through sinks: deliveries, returns, confirms, consumers
that are cancelled, and connections that are blocked. All of it happens on one thread, the event loop's.

Rules for whoever calls:
- A method that can't be done raises `QueueRefused` with AMQP's reply code and text; `closes_connection`
  says whether the connection ends or only the channel. Nothing has been changed then. The caller closes the
  channel by `Channel.close()` or the connection by `Connection.close()`; what was not acknowledged goes back
  to its queue.
- A sink must not call the broker from within its methods, but for `Connection.pause()`. It takes what it
  needs of a message at once: the body may leave memory when the method returns.
- Deliveries to a new consumer begin after `basic_consume` has returned, so that consume-ok goes first.
  Returns of unroutable messages and refusals come before `basic_publish` returns; confirms come later, when
  the message is on disk (`confirmed`), in the order of their tags.
- Methods that change what is durable (declare, bind, unbind, delete, purge, tx_commit) have taken effect when
  they return, and would survive a crash only once `QueueBroker.when_durable(reply)` calls back. It calls at
  once where nothing has to be waited for. Replies that must stay in order all go through it.
- Before bytes are written to a socket, `QueueBroker.flush()` hands what was done to the log, once for
  everything that was read together. So a killed process never forgets an acknowledgement that was followed by
  an answer. The broker calls it itself, too, when the event loop has done what it has at hand.
- Queue names and routing keys are str; bytes that are not UTF-8 are decoded with "surrogateescape".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from headrace.queue.message import Message

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Arguments = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueDeclared:
    """What queue.declare-ok says."""

    name: str
    message_count: int
    consumer_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """What basic.get-ok says, with the message. `message.body` is there."""

    delivery_tag: int
    redelivered: bool
    message: Message
    message_count: int
    """How many more are ready."""


class ChannelSink(Protocol):
    """Where a channel's client hears of what happens."""

    def deliver(self, consumer_tag: str, delivery_tag: int, redelivered: bool, message: Message) -> None:
        """basic.deliver. `message.body` is there until the method returns."""
        ...

    def returned(self, reply_code: int, reply_text: str, message: Message) -> None:
        """basic.return: a mandatory message that no queue took (312, NO_ROUTE)."""
        ...

    def confirmed(self, delivery_tag: int, multiple: bool) -> None:
        """basic.ack to a publisher: the message, or all up to it, are on disk or need not be."""
        ...

    def refused(self, delivery_tag: int, multiple: bool) -> None:
        """basic.nack to a publisher: a full queue did not take the message, or the disk failed."""
        ...

    def cancelled(self, consumer_tag: str) -> None:
        """basic.cancel to a consumer whose queue is gone. To be sent only if the client is capable of it."""
        ...


class ConnectionSink(Protocol):
    """Where a connection hears of what concerns all of it."""

    def blocked(self, reason: str) -> None:
        """connection.blocked: no more of what it publishes is to be read until `unblocked`."""
        ...

    def unblocked(self) -> None:
        """connection.unblocked."""
        ...


class ChannelMethods(Protocol):
    """The methods of AMQP on a channel. `Channel` in channel.py has them.

    An empty queue name stands for the queue that was last declared on the channel.
    """

    def exchange_declare(
        self,
        name: str,
        kind: str,
        *,
        passive: bool = False,
        durable: bool = False,
        auto_delete: bool = False,
        internal: bool = False,
        arguments: Arguments | None = None,
    ) -> None:
        """Make an exchange, or check that it is as described; passive only checks that it is there."""
        ...

    def exchange_delete(self, name: str, *, if_unused: bool = False) -> None:
        """Delete an exchange with its bindings; one that is not there is no error."""
        ...

    def exchange_bind(
        self, destination: str, source: str, routing_key: str, arguments: Arguments | None = None
    ) -> None:
        """Let an exchange hand messages to another."""
        ...

    def exchange_unbind(
        self, destination: str, source: str, routing_key: str, arguments: Arguments | None = None
    ) -> None:
        """Undo such a binding; one that is not there is no error."""
        ...

    def queue_declare(
        self,
        name: str,
        *,
        passive: bool = False,
        durable: bool = False,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: Arguments | None = None,
    ) -> QueueDeclared:
        """Make a queue, or check that it is as described; the empty name asks for one of the broker's."""
        ...

    def queue_bind(
        self, queue: str, exchange: str, routing_key: str, arguments: Arguments | None = None
    ) -> None:
        """Let an exchange hand messages to a queue."""
        ...

    def queue_unbind(
        self, queue: str, exchange: str, routing_key: str, arguments: Arguments | None = None
    ) -> None:
        """Undo such a binding; one that is not there is no error."""
        ...

    def queue_purge(self, queue: str) -> int:
        """Remove all messages that nobody holds; return how many."""
        ...

    def queue_delete(self, queue: str, *, if_unused: bool = False, if_empty: bool = False) -> int:
        """Delete a queue; return how many messages were ready. One that is not there is no error."""
        ...

    def basic_qos(self, prefetch_count: int, *, prefetch_size: int = 0, is_global: bool = False) -> None:
        """Limit what may be unacknowledged: by each consumer to come, or by all (global)."""
        ...

    def basic_consume(
        self,
        queue: str,
        consumer_tag: str = "",
        *,
        no_ack: bool = False,
        exclusive: bool = False,
        arguments: Arguments | None = None,
    ) -> str:
        """Start a consumer and return its tag; the broker makes one up where none is given."""
        ...

    def basic_cancel(self, consumer_tag: str) -> None:
        """Stop a consumer. What it holds stays with the channel. An unknown tag is no error."""
        ...

    def basic_publish(  # These are AMQP's own arguments.
        self,
        exchange: str,
        routing_key: str,
        properties: bytes,
        body: bytes,
        *,
        mandatory: bool = False,
        immediate: bool = False,
    ) -> None:
        """Publish. `properties` are the flags and values of the content header, as they came."""
        ...

    def basic_get(
        self, queue: str, answer: Callable[[Fetched | None], None], *, no_ack: bool = False
    ) -> None:
        """Fetch one message, or None. The answer comes at once, or when the delivery is noted.

        The message's body is there until `answer` returns. Nothing else is answered on the channel before.
        """
        ...

    def basic_ack(self, delivery_tag: int, *, multiple: bool = False) -> None:
        """Acknowledge; tag 0 with `multiple` means all."""
        ...

    def basic_nack(self, delivery_tag: int, *, multiple: bool = False, requeue: bool = True) -> None:
        """Give back to the queue, or drop, which dead-letters where the queue says where to."""
        ...

    def basic_reject(self, delivery_tag: int, *, requeue: bool = True) -> None:
        """The same for one."""
        ...

    def basic_recover(self, *, requeue: bool = True) -> None:
        """Give back everything that the channel holds."""
        ...

    def confirm_select(self) -> None:
        """From now on, each publish is numbered from 1 and confirmed."""
        ...

    def tx_select(self) -> None:
        """From now on, publishes and acknowledgements wait for `tx_commit`."""
        ...

    def tx_commit(self) -> None:
        """Do all of what waits, in one step on disk. Answer when durable."""
        ...

    def tx_rollback(self) -> None:
        """Forget what waits."""
        ...

    def flow(self, *, active: bool) -> None:
        """channel.flow: deliver nothing to this channel's consumers while inactive."""
        ...

    def close(self) -> None:
        """Cancel the consumers, and give back what is unacknowledged. May be called twice."""
        ...


class ConnectionMethods(Protocol):
    """A client's connection. `Connection` in connection.py has these."""

    def open_channel(self, sink: ChannelSink) -> ChannelMethods:
        """A new channel; numbering them is the wire's business."""
        ...

    def pause(self) -> None:
        """Deliver nothing for now: the client does not take what it was sent. A sink may call this."""
        ...

    def resume(self) -> None:
        """Deliver again."""
        ...

    def close(self) -> None:
        """Close all channels, and delete the connection's exclusive queues. May be called twice."""
        ...


class BrokerMethods(Protocol):
    """The broker. `QueueBroker` in broker.py has these."""

    def open_connection(self, vhost: str, user: str, sink: ConnectionSink) -> ConnectionMethods:
        """A new connection; an unknown vhost is refused (530, closes the connection)."""
        ...

    def flush(self) -> None:
        """Hand what was done to the log. Call it before bytes are written to sockets."""
        ...

    def when_durable(self, callback: Callable[[], None]) -> None:
        """Call back once everything done so far would survive a loss of power; at once where it would.

        Callbacks come in the order in which they were asked for. After the disk has failed none comes, and
        each connection is to be closed (`failed` says why).
        """
        ...

    def set_alarm(self, source: str, *, is_on: bool) -> None:
        """Raise or clear an alarm: "memory" or "disk". Connections that publish are blocked meanwhile."""
        ...
