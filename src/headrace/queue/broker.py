"""The broker of work queues: virtual hosts, connections, alarms, and what is done when the disk is done."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

from headrace.queue.connection import Connection
from headrace.queue.journaling import NoJournal
from headrace.queue.memory import Memory
from headrace.queue.metrics import QueueInfo, queue_info
from headrace.queue.refusals import failed, not_allowed
from headrace.queue.services import Services
from headrace.queue.virtual_host import VirtualHost

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.clock import Clock
    from headrace.queue.confirming import Confirms
    from headrace.queue.interface import ConnectionSink
    from headrace.queue.journaling import Journal
    from headrace.queue.limits import QueueLimits
    from headrace.queue.services import Loop


class QueueBroker:
    """Belongs to the event loop's thread. Without a journal, everything is in memory."""

    def __init__(
        self,
        limits: QueueLimits,
        clock: Clock,
        loop: Loop,
        *,
        journal: Journal | None = None,
        new_id: Callable[[], str] = lambda: uuid4().hex,
    ) -> None:
        self.journal: Journal = journal or NoJournal()
        self.memory = Memory(limits, lambda is_on: self.set_alarm("memory", is_on=is_on))
        self.services = Services(limits, clock, loop, self.journal, self.memory)
        self.services.flush = self.flush
        self.vhosts = {name: VirtualHost(name, self.services) for name in limits.vhosts}
        self.connections: dict[Connection, None] = {}
        self.consumer_count = 0
        self.next_queue_id = 1
        self.unconfirmed: list[Confirms] = []
        """Those who have published since the last flush."""
        self._alarms: dict[str, None] = {}
        self._waiting: dict[Confirms, None] = {}
        self._new_id = new_id
        self.is_failed = False
        """Whether the disk has failed: nothing more is confirmed, and connections are to be closed."""

    @property
    def alarm(self) -> str | None:
        """Why publishers are blocked, if they are."""
        return f"low on {' & '.join(self._alarms)}" if self._alarms else None

    def open_connection(self, vhost: str, user: str, sink: ConnectionSink) -> Connection:
        """A new connection; an unknown vhost is refused (530), and all once the disk has failed (541)."""
        if self.is_failed:
            raise failed()
        found = self.vhosts.get(vhost)
        if found is None:
            raise not_allowed(f"vhost {vhost} not found")
        connection = Connection(self, found, user, sink)
        self.connections[connection] = None
        return connection

    def closed(self, connection: Connection) -> None:
        """Forget a connection."""
        self.connections.pop(connection, None)

    def new_name(self, prefix: str) -> str:
        """A name that nobody else has."""
        return prefix + self._new_id()

    def flush(self) -> None:
        """Hand what was done to the log. Call it before bytes are written to sockets."""
        journal = self.journal
        journal.flush()
        if self.unconfirmed:
            unconfirmed, self.unconfirmed = self.unconfirmed, []
            if self.is_failed:
                for each in unconfirmed:
                    each.failed()
                return
            token = journal.token
            waiting = [each for each in unconfirmed if each.flushed(token)]
            if waiting:
                self._waiting |= dict.fromkeys(waiting)
                journal.when_durable(token, lambda: self._confirm(waiting, token))

    def when_durable(self, callback: Callable[[], None]) -> None:
        """Call back once everything done so far would survive a loss of power; at once where it would.

        Raises QueueRefused (541) once the disk has failed.
        """
        self.flush()
        if self.is_failed:
            raise failed()
        self.journal.when_durable(self.journal.token, callback)

    def set_alarm(self, source: str, *, is_on: bool) -> None:
        """Raise or clear an alarm: "memory" or "disk". Connections that publish are blocked meanwhile."""
        if is_on:
            self._alarms[source] = None
        else:
            self._alarms.pop(source, None)
        for connection in tuple(self.connections):
            connection.block(self.alarm)

    def queue_infos(self) -> list[QueueInfo]:
        """All queues, as they are now."""
        now_ms = self.services.now_ms()
        return [
            queue_info(vhost.name, queue, now_ms)
            for vhost in self.vhosts.values()
            for queue in vhost.queues.values()
        ]

    def stop(self) -> None:
        """Close all connections, and stop all timers; what is durable stays as it is."""
        for connection in tuple(self.connections):
            connection.close()
        self.services.stop()
        self.flush()

    def fail(self) -> None:
        """Refuse what waits for the disk, which has failed, and move no message any more."""
        self.is_failed = True
        self.services.stop()
        for confirms in (*self._waiting, *self.unconfirmed):
            confirms.failed()
        self._waiting.clear()
        self.unconfirmed.clear()

    def _confirm(self, waiting: list[Confirms], token: int) -> None:
        for each in waiting:
            if not each.durable(token):
                self._waiting.pop(each, None)
