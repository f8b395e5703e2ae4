"""A channel: the methods of AMQP, what its client holds, and what its publisher waits for.

Delivery tags are dense: each delivery has the next one. So `multiple` walks the numbers from the lowest that
may still be held, and each number is walked over once.

    plain        publishes and acknowledgements take effect at once
    confirming   the same, and each publish is confirmed when it is on disk
    in tx        they wait for tx_commit, which does all of them in one step
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.errors import QueueRefused
from headrace.queue.channel_topology import ChannelTopology
from headrace.queue.confirming import Confirms
from headrace.queue.consumer import Consumer
from headrace.queue.interface import Fetched
from headrace.queue.listing import LISTING, listing
from headrace.queue.message import Entry, Message
from headrace.queue.properties import facts_of
from headrace.queue.refusals import (
    NO_ROUTE,
    access_refused,
    content_too_large,
    not_allowed,
    not_implemented,
    precondition_failed,
    resource_error,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from headrace.queue.connection import Connection
    from headrace.queue.exchange import Exchange
    from headrace.queue.interface import ChannelSink
    from headrace.queue.work_queue import WorkQueue

    Arguments = Mapping[str, object]

TX_BYTES_MAX: Final = 4 * 1024 * 1024
"""No message may be published after so many bytes. So the last one may be as large as any, and a commit is
still one step on disk: in the journal, a message must begin within the first 16 MiB of its step."""
TX_COUNT_MAX: Final = 20_000
NO_PROPERTIES: Final = b"\x00\x00"


class Channel(ChannelTopology):
    """Belongs to the event loop's thread."""

    def __init__(self, connection: Connection, sink: ChannelSink) -> None:
        super().__init__(connection)
        self.sink = sink
        self.prefetch_count = 0
        """Of all consumers together; 0 for no limit."""
        self.unacked_count = 0
        """What the consumers hold; what was fetched does not count."""
        self.unacked: dict[int, Entry] = {}
        self.last_tag = 0
        self.is_halted = False
        """Whether the client has stopped the flow."""
        self.is_closed = False
        self._lowest_tag = 1
        self._consumers: dict[str, Consumer] = {}
        self._consumer_prefetch_count = 0
        self._confirms: Confirms | None = None
        self._is_in_tx = False
        self._tx_bytes = 0
        self._tx_publishes: list[tuple[Message, bool]] = []
        self._tx_settlements: list[tuple[int, Entry, str]] = []
        self._last_published: tuple[str, str, bytes, int] | None = None
        """What the message before said, and how often the virtual host had changed, that `_facts` and
        `_queues` are of."""
        self._facts = facts_of(NO_PROPERTIES)
        self._queues: tuple[WorkQueue, ...] = ()

    # --- consuming -----------------------------------------------------------------------------------------

    def basic_qos(self, prefetch_count: int, *, prefetch_size: int = 0, is_global: bool = False) -> None:
        """Limit what may be unacknowledged: by each consumer to come, or by all of the channel's together."""
        if prefetch_size:
            raise not_implemented(f"prefetch_size!=0 ({prefetch_size})")
        if is_global:
            self.prefetch_count = prefetch_count
            self.wake_queues()
        else:
            self._consumer_prefetch_count = prefetch_count

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
        found = self._queue(queue)
        tag = consumer_tag or self._broker.new_name("amq.ctag-")
        self._check_consumer(found, tag, exclusive=exclusive)
        consumer = Consumer(
            found,
            self,
            tag,
            no_ack=no_ack,
            is_exclusive=exclusive,
            priority=_priority(arguments or {}),
            prefetch_count=self._consumer_prefetch_count,
        )
        self._consumers[tag] = consumer
        self._broker.consumer_count += 1
        found.add_consumer(consumer)
        return tag

    def basic_cancel(self, consumer_tag: str) -> None:
        """Stop a consumer. What it holds stays with the channel. An unknown tag is no error."""
        consumer = self._consumers.get(consumer_tag)
        if consumer is not None:
            self._remove(consumer)
            queue = consumer.queue
            queue.remove_consumer(consumer)
            if queue.auto_delete and not queue.consumers.all:
                self._vhost.delete_queue(queue)

    def basic_get(
        self, queue: str, answer: Callable[[Fetched | None], None], *, no_ack: bool = False
    ) -> None:
        """Fetch one message, or None; at once, or when it is noted that the message went out."""
        if queue == LISTING:
            answer(listing(self._broker.queue_infos(), self._vhost.name))
            return
        found = self._queue(queue)
        if _exclusive_consumer(found) is not None:
            raise _in_exclusive_use(found.name, self._vhost.name)
        found.fetch(lambda entry: self._fetched(found, entry, answer, no_ack=no_ack))

    def basic_ack(self, delivery_tag: int, *, multiple: bool = False) -> None:
        """Acknowledge; tag 0 with `multiple` means all."""
        if not multiple and not self._is_in_tx:
            entry = self.unacked.pop(delivery_tag, None)
            if entry is None:
                raise _unknown_tag(delivery_tag)
            entry.queue.ack(entry)
            self._freed(entry)
            self._services.flush_soon()
            return
        if self._is_in_tx:
            self._settle(delivery_tag, multiple=multiple, how="ack")
        else:
            self._ack_all(delivery_tag)

    def basic_nack(self, delivery_tag: int, *, multiple: bool = False, requeue: bool = True) -> None:
        """Give back to the queue, or drop, which dead-letters where the queue says where to."""
        self._settle(delivery_tag, multiple=multiple, how="requeue" if requeue else "reject")

    def basic_reject(self, delivery_tag: int, *, requeue: bool = True) -> None:
        """The same for one."""
        self._settle(delivery_tag, multiple=False, how="requeue" if requeue else "reject")

    def basic_recover(self, *, requeue: bool = True) -> None:
        """Give back everything that the channel holds."""
        if not requeue:
            raise not_implemented("requeue=false")
        self._give_back_all()

    # --- publishing ----------------------------------------------------------------------------------------

    def basic_publish(
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
        if immediate or len(body) > self._services.limits.message_bytes_max:
            raise self._refusal(exchange, body, immediate=immediate)
        told = (exchange, routing_key, properties, self._vhost.change_count)
        if told != self._last_published:
            self._look_at(*told)
            self._last_published = told
        facts = self._facts
        message = Message(exchange, routing_key, properties, body)
        message.is_persistent = facts.is_persistent
        message.priority = facts.priority
        message.expiration_ms = facts.expiration_ms
        if not self.connection.has_published:
            self.connection.publishes()
        if self._is_in_tx:
            self._add_to_tx(message, mandatory=mandatory)
        else:
            self._publish(message, self._queues, mandatory=mandatory)
        self._services.flush_soon()

    def confirm_select(self) -> None:
        """From now on, each publish is numbered from 1 and confirmed."""
        if self._is_in_tx:
            raise precondition_failed("cannot switch from tx to confirm mode")
        if self._confirms is None:
            self._confirms = Confirms(self.sink)

    def tx_select(self) -> None:
        """From now on, publishes and acknowledgements wait for `tx_commit`."""
        if self._confirms is not None:
            raise precondition_failed("cannot switch from confirm to tx mode")
        self._is_in_tx = True

    def tx_commit(self) -> None:
        """Do all of what waits, in one step on disk. Answer when durable."""
        self._check_in_tx()
        publishes, self._tx_publishes = self._tx_publishes, []
        settlements, self._tx_settlements = self._tx_settlements, []
        self._tx_bytes = 0
        self._services.is_atomic = True
        try:
            for message, mandatory in publishes:
                self._services.flush_soon()
                self._publish(message, self._route(message), mandatory=mandatory)
            for _, entry, how in settlements:
                self._do(entry, how)
        finally:
            self._services.is_atomic = False
        self._services.flush_soon()

    def tx_rollback(self) -> None:
        """Forget what waits."""
        self._check_in_tx()
        self._tx_publishes.clear()
        self._tx_bytes = 0
        for tag, entry, _ in self._tx_settlements:
            self.unacked[tag] = entry
            self._lowest_tag = min(self._lowest_tag, tag)
        self._tx_settlements.clear()

    # --- the channel itself --------------------------------------------------------------------------------

    def flow(self, *, active: bool) -> None:
        """channel.flow: deliver nothing to this channel's consumers while inactive."""
        self.is_halted = not active
        if active:
            self.wake_queues()

    def wake_queues(self) -> None:
        """Have the queues that the channel consumes from deliver what they can."""
        for consumer in self._consumers.values():
            self._services.wake(consumer.queue)

    def lose(self, consumer: Consumer) -> None:
        """Note that a consumer's queue is gone, and tell the client."""
        self._remove(consumer)
        self.sink.cancelled(consumer.tag)

    def close(self) -> None:
        """Cancel the consumers, and give back what is unacknowledged. May be called twice."""
        if self.is_closed:
            return
        self.is_closed = True
        self.is_halted = True
        self.connection.channels.pop(self, None)
        if self._confirms is not None:
            self._confirms.close()
        if self._is_in_tx:
            self.tx_rollback()
        # What it held goes back before another consumer gets what comes after it.
        self._give_back_all()
        for tag in tuple(self._consumers):
            self.basic_cancel(tag)
        self._services.flush_soon()

    # --- within --------------------------------------------------------------------------------------------

    def _check_consumer(self, queue: WorkQueue, tag: str, *, exclusive: bool) -> None:
        if tag in self._consumers:
            raise not_allowed(f"attempt to reuse consumer tag '{tag}'")
        if _exclusive_consumer(queue) is not None or (exclusive and queue.consumers.all):
            raise _in_exclusive_use(queue.name, self._vhost.name)
        count_max = self._services.limits.consumer_count_max
        if self._broker.consumer_count >= count_max:
            raise resource_error(f"there are {count_max} consumers already, and no more are allowed")

    def _open_exchange(self, name: str) -> Exchange:
        """The exchange of a name, to which clients may publish. Raises QueueRefused."""
        exchange = self._vhost.exchange(name)
        if exchange.internal:
            raise access_refused(
                f"cannot publish to internal exchange '{name}' in vhost '{self._vhost.name}'"
            )
        return exchange

    def _refusal(self, exchange: str, body: bytes, *, immediate: bool) -> QueueRefused:
        if immediate:
            return not_implemented("immediate=true")
        self._open_exchange(exchange)
        return content_too_large(
            f"message size {len(body)} is larger than configured max size "
            f"{self._services.limits.message_bytes_max}"
        )

    def _look_at(self, exchange: str, routing_key: str, properties: bytes, _: int) -> None:
        """Check where a message is to go and what is said of it, and remember both for the next one."""
        found = self._open_exchange(exchange)
        facts = facts_of(properties)
        if facts.user_id is not None and facts.user_id != self.connection.user:
            raise precondition_failed(
                f"user_id property set to '{facts.user_id}' but authenticated user was "
                f"'{self.connection.user}'"
            )
        self._facts, self._queues = facts, self._vhost.route(found, routing_key, properties)

    def _route(self, message: Message) -> tuple[WorkQueue, ...]:
        """Where a message goes that was published some time ago."""
        exchange = self._vhost.exchanges.get(message.exchange)
        if exchange is None:
            return ()
        return self._vhost.route(exchange, message.routing_key, message.properties)

    def _publish(self, message: Message, queues: tuple[WorkQueue, ...], *, mandatory: bool) -> None:
        vhost = self._vhost
        now_ms = self._services.now_ms()
        confirms = self._confirms
        if not queues:
            vhost.unroutable_count += 1
            if mandatory:
                self.sink.returned(NO_ROUTE, "NO_ROUTE", message)
            if confirms is not None:
                confirms.published(self._broker, is_stored=False)
            return
        accepting = queues
        for queue in queues:
            if queue.may_refuse and queue.refuses:
                accepting = self._accepting(queues, message, now_ms)
                break
        is_stored = vhost.enqueue(accepting, message, now_ms) if accepting else False
        if confirms is not None:
            if accepting is queues:
                confirms.published(self._broker, is_stored=is_stored)
            else:
                confirms.refused()

    def _accepting(self, queues: Iterable[WorkQueue], message: Message, now_ms: int) -> tuple[WorkQueue, ...]:
        """The queues that have room; those that have none may dead-letter the message instead."""
        accepting = []
        for queue in queues:
            if not queue.refuses:
                accepting.append(queue)
                continue
            queue.turn_away(message, now_ms)
        return tuple(accepting)

    def _settle(self, delivery_tag: int, *, multiple: bool, how: str) -> None:
        for tag, entry in self._held(delivery_tag, multiple=multiple):
            if self._is_in_tx:
                self._tx_settlements.append((tag, entry, how))
            else:
                self._do(entry, how)
        self._services.flush_soon()

    def _ack_all(self, delivery_tag: int) -> None:
        """Acknowledge all up to a tag; what that makes room for is delivered once they are gone."""
        queues: dict[WorkQueue, None] = {}
        for _, entry in self._held(delivery_tag, multiple=True):
            queue, consumer = entry.queue, entry.consumer
            queue.ack(entry)
            queues[queue] = None
            if consumer is not None:
                entry.consumer = None
                consumer.unacked_count -= 1
                self.unacked_count -= 1
        for queue in queues:
            if queue.count:
                self._services.deliver(queue)
        if self.prefetch_count:
            self.wake_queues()
        self._services.flush_soon()

    def _held(self, delivery_tag: int, *, multiple: bool) -> list[tuple[int, Entry]]:
        """Take what is meant out of what the channel holds. Raises QueueRefused (406)."""
        if not multiple:
            entry = self.unacked.pop(delivery_tag, None)
            if entry is None:
                raise _unknown_tag(delivery_tag)
            return [(delivery_tag, entry)]
        last = delivery_tag or self.last_tag
        if last > self.last_tag or (delivery_tag and delivery_tag < self._lowest_tag):
            raise _unknown_tag(delivery_tag)
        tags = range(self._lowest_tag, last + 1)
        held = [(tag, entry) for tag in tags if (entry := self.unacked.pop(tag, None)) is not None]
        self._lowest_tag = max(self._lowest_tag, last + 1)
        if not held and delivery_tag:
            raise _unknown_tag(delivery_tag)
        return held

    def _do(self, entry: Entry, how: str) -> None:
        if how == "ack":
            entry.queue.ack(entry)
        elif how == "reject":
            entry.queue.reject(entry)
        else:
            consumer = entry.consumer
            entry.queue.take_back(entry, is_delayed=True)
            entry.consumer = consumer
        self._freed(entry)

    def _freed(self, entry: Entry) -> None:
        """Let the consumer have more, now that it holds one less."""
        consumer = entry.consumer
        if consumer is None:
            return
        entry.consumer = None
        consumer.unacked_count -= 1
        self.unacked_count -= 1
        if consumer.queue.count:
            self._services.deliver(consumer.queue)
        if self.prefetch_count:
            self.wake_queues()

    def _give_back_all(self) -> None:
        held, self.unacked = self.unacked, {}
        self._lowest_tag = self.last_tag + 1
        # The newest first: each then goes to the front of its queue.
        for tag in sorted(held, reverse=True):
            entry = held[tag]
            if entry.consumer is not None:
                entry.consumer.unacked_count -= 1
                self.unacked_count -= 1
            entry.queue.take_back(entry, is_delayed=False)
        self._services.flush_soon()

    def _fetched(
        self,
        queue: WorkQueue,
        entry: Entry | None,
        answer: Callable[[Fetched | None], None],
        *,
        no_ack: bool,
    ) -> None:
        if entry is None:
            answer(None)
            return
        if self.is_closed:
            queue.take_back(entry, is_delayed=False)
            return
        self.last_tag += 1
        tag = self.last_tag
        fetched = Fetched(
            delivery_tag=tag,
            redelivered=entry.redelivered,
            message=queue.told(entry),
            message_count=queue.count,
        )
        if no_ack:
            queue.ack(entry)
        else:
            self.unacked[tag] = entry
        self._services.flush_soon()
        answer(fetched)
        if not no_ack:
            queue.let_go_of_body(entry)

    def _add_to_tx(self, message: Message, *, mandatory: bool) -> None:
        if self._tx_bytes > TX_BYTES_MAX or len(self._tx_publishes) >= TX_COUNT_MAX:
            raise precondition_failed(
                f"a transaction may publish {TX_COUNT_MAX} messages, and none after {TX_BYTES_MAX} bytes"
            )
        self._tx_bytes += message.body_bytes + len(message.properties)
        self._tx_publishes.append((message, mandatory))

    def _check_in_tx(self) -> None:
        if not self._is_in_tx:
            raise precondition_failed("channel is not transactional")

    def _remove(self, consumer: Consumer) -> None:
        if self._consumers.pop(consumer.tag, None) is not None:
            self._broker.consumer_count -= 1


def _priority(arguments: Arguments) -> int:
    priority = arguments.get("x-priority", 0)
    if isinstance(priority, bool) or not isinstance(priority, int):
        raise precondition_failed(f"invalid arg 'x-priority': {priority!r} is no whole number")
    return priority


def _exclusive_consumer(queue: WorkQueue) -> Consumer | None:
    return next((each for each in queue.consumers.all if each.is_exclusive), None)


def _in_exclusive_use(queue: str, vhost: str) -> QueueRefused:
    return access_refused(f"queue '{queue}' in vhost '{vhost}' in exclusive use")


def _unknown_tag(delivery_tag: int) -> QueueRefused:
    return precondition_failed(f"unknown delivery tag {delivery_tag}")
