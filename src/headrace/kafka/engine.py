"""The broker without sockets and threads: its parts, wired together, and the connections that use them.

Whatever takes time is asked of others: the event loop makes calls later, `start_sync` has partitions synced
elsewhere, and `submit` has topics changed there. So the same engine runs on a network with threads for the
disk (`server.py`), and in a simulation where time, disk, network and threads are all played.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, cast
from uuid import uuid4

from headrace.kafka.budget import Budgets
from headrace.kafka.checkpoints import CheckpointRequests
from headrace.kafka.client_connection import ClientConnection
from headrace.kafka.commit import GroupCommit, call_now
from headrace.kafka.fetch_sessions import FetchSessions
from headrace.kafka.groups_on_demand import GroupsOnDemand
from headrace.kafka.open_connections import OpenConnections
from headrace.kafka.producer_ids import ProducerIds
from headrace.kafka.producer_transactions import ProducerTransactions
from headrace.kafka.services import OFFSETS_TOPIC, Services
from headrace.kafka.share.on_demand import PositionsOnDemand
from headrace.kafka.topic_changes import TopicChanges
from headrace.kafka.transaction_log import TransactionLog
from headrace.kafka.transaction_markers import TransactionMarkers
from headrace.kafka.transactions.coordinator import TransactionLimits
from headrace.kafka.unsent_answers import UnsentAnswers
from headrace.kafka.watchers import Watchers

if TYPE_CHECKING:
    from collections.abc import Callable
    from ssl import SSLContext
    from uuid import UUID

    from headrace.clock import Clock
    from headrace.config import BrokerConfig
    from headrace.errors import StorageError
    from headrace.kafka.client_connection import EventLoop
    from headrace.kafka.commit import CallSoon, StartSync
    from headrace.kafka.consumer_groups import ConsumerGroups
    from headrace.kafka.security.logins import Logins
    from headrace.kafka.services import Timer
    from headrace.kafka.share.positions import SharePositions
    from headrace.kafka.topic_changes import Submit
    from headrace.log.partition import PartitionLog
    from headrace.log.store import LogStore

logger: Final = logging.getLogger(__name__)

SWEEP_INTERVAL_S: Final = 1.0


class Engine:
    """One broker at work. Belongs to the event loop's thread."""

    def __init__(  # noqa: PLR0913  # what others do for the engine are its arguments
        self,
        config: BrokerConfig,
        store: LogStore,
        clock: Clock,
        loop: EventLoop,
        *,
        start_sync: StartSync,
        submit: Submit,
        call_soon: CallSoon = call_now,
        logins: Logins | None = None,
        tls_context: SSLContext | None = None,
        new_id: Callable[[], UUID] = uuid4,
    ) -> None:
        """`start_sync` has partitions synced, and `synced` is called on the event loop's thread after it.

        `submit` has other work done that waits for the disk, one piece after the other. `call_soon` makes a
        call once the event loop has done what it has at hand. Without `logins`, nobody can log in, and need
        not; without `tls_context`, connections are plain text.
        """
        self.connections = OpenConnections(config, loop.time)
        self._tls_context = tls_context
        self._loop = loop
        self._sweeper: Timer | None = None
        self._has_failed = False
        watchers = Watchers()
        commit = GroupCommit(config.durability, start_sync, watchers.notify, self._on_failure, call_soon)
        on_demand = GroupsOnDemand(lambda: _new_groups(config, store, clock, loop, commit))
        if OFFSETS_TOPIC in store.topics or config.metrics_listen is not None:
            # The members' time runs from now on; and metrics ask on a thread of their own.
            on_demand.load()
        groups = cast("ConsumerGroups", on_demand)
        shares = PositionsOnDemand(store, lambda: _new_positions(self.services))
        producer_ids = ProducerIds(store, submit, commit.fail)
        self.services = Services(
            config=config,
            store=store,
            clock=clock,
            scheduler=loop,
            commit=commit,
            watchers=watchers,
            groups=groups,
            topics=TopicChanges(store, submit, commit.fail),
            producer_ids=producer_ids,
            transactions=ProducerTransactions(
                TransactionLimits(
                    timeout_ms_max=config.transaction_timeout_ms_max,
                    idle_ms_max=config.transactional_id_expiration_ms,
                ),
                clock,
                loop,
                log=TransactionLog(store, clock, commit),
                markers=TransactionMarkers(store, loop, commit, groups),
                producer_ids=producer_ids,
            ),
            logins=logins,
            fetch_sessions=FetchSessions(config.fetch_session_count_max, new_id=new_id),
            new_id=new_id,
            shares=cast("SharePositions", shares),
            unsent_answers=UnsentAnswers(config.unsent_bytes_max),
        )
        shares.load_what_was_written()
        self.budgets = Budgets(config.in_flight_bytes_max, frame_bytes_max=config.frame_bytes_max)
        store.make_checkpoints(CheckpointRequests(store, submit, commit.fail).ask)

    def start(self) -> None:
        """Begin with what is done from time to time."""
        self.services.producer_ids.reserve_ahead()
        self.services.transactions.start()
        self.services.groups.start_sweeping()
        self._sweep()

    def stop(self) -> None:
        """Take no more connections, and stop all timers."""
        self.connections.is_closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        self.services.groups.close()
        self.services.shares.close()
        self.services.transactions.close()

    def new_connection(self) -> ClientConnection:
        """What serves a client that has connected."""
        return ClientConnection(self.services, self.budgets, self.connections, self._loop, self._tls_context)

    def unready(self) -> str | None:
        """Why no writes are taken, if none are."""
        if self.connections.is_closed:
            return "the broker is stopping"
        failed = self.services.store.failed
        return None if failed is None else str(failed)

    def synced(self, logs: tuple[PartitionLog, ...], error: StorageError | None) -> None:
        """Note that a sync which was asked for has come to its end."""
        self.services.commit.synced(logs, error)

    def _on_failure(self, error: StorageError) -> None:
        if not self._has_failed:
            self._has_failed = True
            logger.critical("THE BROKER TAKES NO MORE WRITES. %s", error)

    def _sweep(self) -> None:
        for connection in self.connections:
            connection.close_if_late(self._loop.time())
        self._sweeper = self._loop.call_later(SWEEP_INTERVAL_S, self._sweep)


def _new_groups(
    config: BrokerConfig, store: LogStore, clock: Clock, loop: EventLoop, commit: GroupCommit
) -> ConsumerGroups:
    from headrace.kafka.consumer_groups import ConsumerGroups  # noqa: PLC0415  # see groups_on_demand.py

    return ConsumerGroups(config, store, clock, loop, commit)


def _new_positions(services: Services) -> SharePositions:
    from headrace.kafka.share.positions import SharePositions  # noqa: PLC0415  # see share/on_demand.py

    return SharePositions(services)
