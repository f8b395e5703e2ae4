"""What a channel's client makes and removes: exchanges, queues and bindings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import QueueRefused
from headrace.queue import declaring
from headrace.queue.exchange import Destination
from headrace.queue.interface import QueueDeclared
from headrace.queue.refusals import NOT_FOUND
from headrace.queue.topology import ExchangeMade, QueueMade

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.queue.connection import Connection
    from headrace.queue.work_queue import WorkQueue

    Arguments = Mapping[str, object]


class ChannelTopology:
    """The part of a channel that has to do with no message. Belongs to the event loop's thread."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._vhost = connection.vhost
        self._services = connection.vhost.services
        self._broker = connection.broker
        self._last_queue = ""
        """Which queue is meant where none is named."""

    # --- exchanges -----------------------------------------------------------------------------------------

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
        if passive:
            self._vhost.exchange(name)
            return
        wanted = ExchangeMade(
            vhost=self._vhost.name,
            name=name,
            kind=kind,
            durable=durable,
            auto_delete=auto_delete,
            internal=internal,
            arguments=dict(arguments or {}),
        )
        record = declaring.declare_exchange(self._vhost, wanted)
        if record is not None:
            self._vhost.change(record)

    def exchange_delete(self, name: str, *, if_unused: bool = False) -> None:
        """Delete an exchange with its bindings; one that is not there is no error."""
        record = declaring.delete_exchange(self._vhost, name, if_unused=if_unused)
        if record is not None:
            sources = [each.source for each in self._vhost.bindings_to(Destination("exchange", name))]
            self._vhost.change(record)
            self._vhost.delete_unbound(sources)

    def exchange_bind(
        self, destination: str, source: str, routing_key: str, arguments: Arguments | None = None
    ) -> None:
        """Let an exchange hand messages to another."""
        self._bind("exchange", destination, source, routing_key, arguments)

    def exchange_unbind(
        self, destination: str, source: str, routing_key: str, arguments: Arguments | None = None
    ) -> None:
        """Undo such a binding; one that is not there is no error."""
        self._unbind("exchange", destination, source, routing_key, arguments)

    # --- queues --------------------------------------------------------------------------------------------

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
        if passive:
            queue = self._queue(name)
        else:
            if name and name not in self._vhost.queues:
                declaring.check_new_queue_name(name)
            wanted = QueueMade(
                vhost=self._vhost.name,
                name=name or self._broker.new_name("amq.gen-"),
                queue_id=self._broker.next_queue_id,
                durable=durable,
                auto_delete=auto_delete,
                arguments=dict(arguments or {}),
                owner=self.connection if exclusive else None,
            )
            record = declaring.declare_queue(self._vhost, wanted, self.connection)
            if record is not None:
                self._broker.next_queue_id += 1
                self._vhost.change(record)
            queue = self._vhost.queues[wanted.name]
        queue.touch()
        self._last_queue = queue.name
        return QueueDeclared(
            name=queue.name, message_count=queue.count, consumer_count=len(queue.consumers.all)
        )

    def queue_bind(
        self, queue: str, exchange: str, routing_key: str, arguments: Arguments | None = None
    ) -> None:
        """Let an exchange hand messages to a queue."""
        if not queue and not routing_key:
            routing_key = self._name(queue)
        self._bind("queue", self._name(queue), exchange, routing_key, arguments)

    def queue_unbind(
        self, queue: str, exchange: str, routing_key: str, arguments: Arguments | None = None
    ) -> None:
        """Undo such a binding; one that is not there is no error."""
        self._unbind("queue", self._name(queue), exchange, routing_key, arguments)

    def queue_purge(self, queue: str) -> int:
        """Remove all messages that nobody holds; return how many."""
        count = self._queue(queue).purge()
        self._services.flush_soon()
        return count

    def queue_delete(self, queue: str, *, if_unused: bool = False, if_empty: bool = False) -> int:
        """Delete a queue; return how many messages were ready. One that is not there is no error."""
        found = self._vhost.queues.get(self._name(queue))
        if found is None:
            return 0
        declaring.check_access(self._vhost, found, self.connection)
        declaring.check_deletion(self._vhost, found, if_unused=if_unused, if_empty=if_empty)
        count = found.count
        self._vhost.delete_queue(found)
        return count

    # --- within --------------------------------------------------------------------------------------------

    def _bind(
        self, kind: str, destination: str, source: str, routing_key: str, arguments: Arguments | None
    ) -> None:
        binding = declaring.new_binding(kind, destination, source, routing_key, dict(arguments or {}))
        record = declaring.bind(self._vhost, binding, self.connection)
        if record is not None:
            self._vhost.change(record)

    def _unbind(
        self, kind: str, destination: str, source: str, routing_key: str, arguments: Arguments | None
    ) -> None:
        binding = declaring.new_binding(kind, destination, source, routing_key, dict(arguments or {}))
        record = declaring.unbind(self._vhost, binding, self.connection)
        if record is not None:
            self._vhost.change(record)
            self._vhost.delete_unbound([source])

    def _name(self, queue: str) -> str:
        name = queue or self._last_queue
        if not name:
            raise QueueRefused(NOT_FOUND, "NOT_FOUND - no previously declared queue")
        return name

    def _queue(self, name: str) -> WorkQueue:
        queue = self._vhost.queue(self._name(name))
        declaring.check_access(self._vhost, queue, self.connection)
        return queue
