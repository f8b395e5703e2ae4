"""A virtual host: exchanges, queues and the bindings between them, and the way that messages take.

`apply` is the only way that exchanges, queues and bindings change, now and at recovery; what may be applied
is decided in declaring.py. Messages move by direct calls (see work_queue.py).

Routing keys are few and messages are many, so the queues that an exchange and a routing key lead to are
remembered until anything changes. Not where headers decide.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from headrace.failpoints import hit
from headrace.queue.arguments import QueueArguments
from headrace.queue.dead_letters import dead_letter, extra_routing_keys, is_cycle
from headrace.queue.exchange import Binding, Destination, Exchange
from headrace.queue.properties import facts_of, headers_of
from headrace.queue.refusals import not_found
from headrace.queue.topology import Bound, ExchangeGone, ExchangeMade, QueueGone, QueueMade, Unbound
from headrace.queue.work_queue import WorkQueue

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headrace.queue.dead_letters import Loss, Reason
    from headrace.queue.message import Entry, Message
    from headrace.queue.services import Services
    from headrace.queue.topology import TopologyRecord

PREDECLARED: Final = {
    "amq.direct": "direct",
    "amq.fanout": "fanout",
    "amq.topic": "topic",
    "amq.headers": "headers",
    "amq.match": "headers",
}
DEFAULT_EXCHANGE: Final = ""
ROUTES_MAX: Final = 16_384
"""How many routes are remembered."""


class VirtualHost:
    """Belongs to the event loop's thread."""

    def __init__(self, name: str, services: Services) -> None:
        self.name = name
        self.services = services
        self.exchanges: dict[str, Exchange] = {DEFAULT_EXCHANGE: Exchange("", "direct", durable=True)}
        for exchange, kind in PREDECLARED.items():
            self.exchanges[exchange] = Exchange(exchange, kind, durable=True)
        self.queues: dict[str, WorkQueue] = {}
        self.binding_count = 0
        self.change_count = 0
        """How often an exchange, a queue or a binding has come or gone."""
        self._bindings_to: dict[Destination, list[Binding]] = {}
        self._routes: dict[tuple[str, str], tuple[WorkQueue, ...]] = {}
        self._dying: deque[tuple[Entry, Reason]] = deque()
        self._is_burying = False
        self.unroutable_count = 0

    def exchange(self, name: str) -> Exchange:
        """The exchange of a name. Raises QueueRefused (404)."""
        found = self.exchanges.get(name)
        if found is None:
            raise not_found("exchange", name, self.name)
        return found

    def queue(self, name: str) -> WorkQueue:
        """The queue of a name. Raises QueueRefused (404)."""
        found = self.queues.get(name)
        if found is None:
            raise not_found("queue", name, self.name)
        return found

    def is_durable(self, binding: Binding) -> bool:
        """Whether both ends of a binding survive a restart."""
        source = self.exchanges.get(binding.source)
        if source is None or not source.durable:
            return False
        if binding.destination.kind == "queue":
            queue = self.queues.get(binding.destination.name)
            return queue is not None and queue.durable and queue.owner is None
        exchange = self.exchanges.get(binding.destination.name)
        return exchange is not None and exchange.durable

    def change(self, record: TopologyRecord) -> None:
        """Apply a record, and have it written where it has to survive."""
        if self._survives(record):
            self.services.journal.change(record)
            self.services.flush_soon()
        self.apply(record)

    def apply(self, record: TopologyRecord) -> None:
        """Make what a record says so. What is so already stays."""
        self._routes.clear()
        self.change_count += 1
        match record:
            case ExchangeMade():
                self._make_exchange(record)
            case ExchangeGone():
                self._remove_exchange(record.name)
            case QueueMade():
                self._make_queue(record)
            case QueueGone():
                self._remove_queue(record.name)
            case Bound():
                self._bind(record.binding)
            case Unbound():
                self._unbind(record.binding)

    def bindings_to(self, destination: Destination) -> tuple[Binding, ...]:
        """The bindings that lead to a queue or an exchange."""
        return tuple(self._bindings_to.get(destination, ()))

    def delete_queue(self, queue: WorkQueue) -> None:
        """Delete a queue, tell its consumers, and delete exchanges that go with their last binding."""
        if queue.is_deleted:
            return
        sources = {binding.source for binding in self.bindings_to(Destination("queue", queue.name))}
        self.change(QueueGone(vhost=self.name, name=queue.name, queue_id=queue.queue_id))
        self.delete_unbound(sources)

    def delete_unbound(self, sources: Iterable[str]) -> None:
        """Delete those of the exchanges that are to go with their last binding."""
        waiting = list(sources)
        while waiting:
            exchange = self.exchanges.get(waiting.pop())
            if exchange is not None and exchange.auto_delete and not exchange.bindings:
                waiting += [each.source for each in self.bindings_to(Destination("exchange", exchange.name))]
                self.change(ExchangeGone(vhost=self.name, name=exchange.name))

    def route(self, exchange: Exchange, routing_key: str, properties: bytes) -> tuple[WorkQueue, ...]:
        """The queues that a message goes to, each once."""
        queues = self._routes.get((exchange.name, routing_key))
        if queues is None:
            queues = self._find_route(exchange, routing_key, properties)
        headers = facts_of(properties).headers
        if headers and b"CC" in headers:
            keys = extra_routing_keys(headers_of(properties), ("CC", "BCC"))
            found = dict.fromkeys(queues)
            for key in keys:
                found |= dict.fromkeys(self._find_route(exchange, key, properties))
            return tuple(found)
        return queues

    def enqueue(self, queues: Sequence[WorkQueue], message: Message, now_ms: int) -> bool:
        """Put a message into queues; return whether it has to be durable before it is confirmed."""
        message.published_ms = now_ms
        if len(queues) == 1:
            # Nearly always, and so without lists.
            queue = queues[0]
            entry = queue.new_entry(message, now_ms)
            message.references = 1
            if entry.is_stored:
                self.services.journal.publish(message, (entry,))
            queue.accept(entry, now_ms)
            return entry.is_stored
        entries = [queue.new_entry(message, now_ms) for queue in queues]
        message.references = len(entries)
        is_stored = False
        for entry in entries:
            is_stored = is_stored or entry.is_stored
        if is_stored:
            self.services.journal.publish(message, entries)
        for entry in entries:
            entry.queue.accept(entry, now_ms)
        return is_stored

    def bury(self, entry: Entry, reason: Reason) -> None:
        """Send a message that died to its queue's dead-letter exchange.

        What that pushes out of other queues is buried after it, one by one: chains of queues may be long.
        """
        self._dying.append((entry, reason))
        if self._is_burying:
            return
        self._is_burying = True
        try:
            while self._dying:
                self._bury(*self._dying.popleft())
        except Exception as error:
            # It has left its queue, and is nowhere else yet.
            raise self.services.fail(error) from error
        finally:
            self._is_burying = False

    def _bury(self, entry: Entry, reason: Reason) -> None:
        """Write the copy first and let the original go after it, in one step on disk."""
        counts = entry.queue.counts
        loss = self._hand_on(entry, reason)
        if loss is None:
            counts.dead_lettered += 1
        else:
            counts.dead_letters_dropped[loss] += 1
        entry.queue.gone(entry)
        self.services.flush_soon()

    def _hand_on(self, entry: Entry, reason: Reason) -> Loss | None:
        """Put a copy of what died where its dead-letter exchange leads to; say why if no queue takes it."""
        exchange = self.exchanges.get(entry.queue.arguments.dead_letter_exchange or "")
        if exchange is None:
            return "no_exchange"
        message = entry.message
        if message.body is None:
            self.services.journal.load(message)
        now_ms = self.services.now_ms()
        copy = dead_letter(message, entry.queue, reason, now_ms)
        found = self.route(exchange, copy.routing_key, copy.properties)
        open_ones = [
            each for each in found if reason == "rejected" or not is_cycle(each.name, copy.properties)
        ]
        accepting = [each for each in open_ones if not each.refuses]
        self.enqueue(accepting, copy, now_ms)
        hit("queue.dead_letter")
        if accepting:
            return None
        return "full" if open_ones else "cycle" if found else "no_route"

    def _survives(self, record: TopologyRecord) -> bool:
        match record:
            case ExchangeMade():
                return record.durable
            case ExchangeGone():
                exchange = self.exchanges.get(record.name)
                return exchange is not None and exchange.durable
            case QueueMade():
                return record.durable and record.owner is None
            case QueueGone():
                queue = self.queues.get(record.name)
                return queue is not None and queue.durable and queue.owner is None
            case Bound() | Unbound():
                return self.is_durable(record.binding)

    def _make_exchange(self, record: ExchangeMade) -> None:
        if record.name not in self.exchanges:
            self.exchanges[record.name] = Exchange(
                record.name,
                record.kind,
                durable=record.durable,
                auto_delete=record.auto_delete,
                internal=record.internal,
                arguments=record.arguments,
            )

    def _remove_exchange(self, name: str) -> None:
        # First, and of one that is not there, too: see _remove_queue.
        self._remove_bindings_to(Destination("exchange", name))
        exchange = self.exchanges.pop(name, None)
        if exchange is not None:
            for binding in tuple(exchange.bindings.values()):
                self._forget_binding(exchange, binding)

    def _make_queue(self, record: QueueMade) -> None:
        if record.name in self.queues:
            return
        queue = WorkQueue(
            self.services,
            record.name,
            record.queue_id,
            bury=self.bury,
            on_unused=self.delete_queue,
            durable=record.durable,
            auto_delete=record.auto_delete,
            owner=record.owner,
            given=record.arguments,
            arguments=QueueArguments.parse(record.name, self.name, record.arguments),
        )
        self.queues[record.name] = queue
        self.services.queues[record.queue_id] = queue
        if record.owner is not None:
            record.owner.exclusive_queues[queue] = None

    def _remove_queue(self, name: str) -> None:
        # The journal may have forgotten that a queue was made, but not yet that it was bound and deleted.
        self._remove_bindings_to(Destination("queue", name))
        queue = self.queues.pop(name, None)
        if queue is None:
            return
        self.services.queues.pop(queue.queue_id, None)
        self.services.unschedule(queue)
        consumers = tuple(queue.consumers.all)
        queue.clear()
        if queue.owner is not None:
            queue.owner.exclusive_queues.pop(queue, None)
        for consumer in consumers:
            consumer.channel.lose(consumer)

    def _bind(self, binding: Binding) -> None:
        exchange = self.exchanges.get(binding.source)
        if exchange is not None and exchange.bind(binding):
            self.binding_count += 1
            bindings = self._bindings_to.setdefault(binding.destination, [])
            bindings.append(binding)

    def _unbind(self, binding: Binding) -> None:
        exchange = self.exchanges.get(binding.source)
        if exchange is not None and binding.key in exchange.bindings:
            self._forget_binding(exchange, binding)

    def _forget_binding(self, exchange: Exchange, binding: Binding) -> None:
        if exchange.unbind(binding):
            self.binding_count -= 1
            bindings = self._bindings_to.get(binding.destination, [])
            key = binding.key
            kept = [each for each in bindings if each.source != exchange.name or each.key != key]
            if kept:
                self._bindings_to[binding.destination] = kept
            else:
                self._bindings_to.pop(binding.destination, None)

    def _remove_bindings_to(self, destination: Destination) -> None:
        for binding in self.bindings_to(destination):
            self._unbind(binding)

    def _find_route(self, exchange: Exchange, routing_key: str, properties: bytes) -> tuple[WorkQueue, ...]:
        found: dict[WorkQueue, None] = {}
        visited = {exchange.name}
        waiting = [exchange]
        depends_on_headers = False
        while waiting:
            current = waiting.pop()
            depends_on_headers = depends_on_headers or current.depends_on_headers
            for destination in self._matches(current, routing_key, properties):
                if destination.kind == "queue":
                    queue = self.queues.get(destination.name)
                    if queue is not None:
                        found[queue] = None
                elif destination.name not in visited and destination.name in self.exchanges:
                    visited.add(destination.name)
                    waiting.append(self.exchanges[destination.name])
        queues = tuple(found)
        if not depends_on_headers:
            if len(self._routes) >= ROUTES_MAX:
                self._routes.clear()
            self._routes[exchange.name, routing_key] = queues
        return queues

    def _matches(self, exchange: Exchange, routing_key: str, properties: bytes) -> list[Destination]:
        """Where one exchange sends a message; to its alternate exchange if nowhere else."""
        if exchange.name == DEFAULT_EXCHANGE:
            return [Destination("queue", routing_key)] if routing_key in self.queues else []
        found = list(exchange.match(routing_key, lambda: headers_of(properties)))
        if not found and exchange.alternate is not None:
            return [Destination("exchange", exchange.alternate)]
        return found
