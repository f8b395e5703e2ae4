"""Markers: how a transaction whose outcome is decided ends in each of its partitions.

A partition that is gone, with its topic, needs none. A marker that could not be written is tried again as
long as the broker takes writes at all: the outcome stands, and must reach every partition.

The marker of a commit whose records are durable settles it as soon as it is written: the outcome is durable,
too, and a crash that takes the marker has the next start write it again. So committed readers need not wait
for a sync of it. An abort is not told before its marker is durable, nor are offsets of groups.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from headrace.errors import HeadraceError, InvalidProducerEpoch, PartitionClosed
from headrace.failpoints import hit
from headrace.kafka.services import OFFSETS_TOPIC
from headrace.kafka.transactions.state import TransactionState

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.kafka.commit import GroupCommit
    from headrace.kafka.consumer_groups import ConsumerGroups
    from headrace.kafka.services import Scheduler
    from headrace.kafka.transactions.state import TopicPartition, Transaction
    from headrace.log.partition import PartitionLog
    from headrace.log.store import LogStore

    Then = Callable[[HeadraceError | None], None]

logger: Final = logging.getLogger(__name__)

RETRY_S: Final = 0.1


class TransactionMarkers:
    """Belongs to the event loop's thread."""

    def __init__(
        self, store: LogStore, scheduler: Scheduler, commit: GroupCommit, groups: ConsumerGroups
    ) -> None:
        self._store = store
        self._scheduler = scheduler
        self._commit = commit
        self._groups = groups

    def write(self, transaction: Transaction, on_settled: Callable[[], None], then: Then) -> None:
        """Write the markers of a prepared transaction, and call back once all of them are durable.

        Where all are settled before that, `on_settled` is called as soon as they are.
        """
        commits = transaction.state is TransactionState.PREPARE_COMMIT
        remaining = unsettled = len(transaction.partitions)
        failure: HeadraceError | None = None

        def on_one_settled() -> None:
            nonlocal unsettled
            unsettled -= 1
            if unsettled == 0:
                on_settled()

        def on_end(error: HeadraceError | None) -> None:
            nonlocal remaining, failure
            remaining -= 1
            failure = failure or error
            if remaining == 0:
                then(failure)

        if not remaining:
            then(None)
        for partition in sorted(transaction.partitions):
            self.write_one(
                partition,
                transaction.producer_id,
                transaction.producer_epoch,
                commits=commits,
                on_settled=on_one_settled if commits else None,
                then=on_end,
            )

    def write_one(
        self,
        partition: TopicPartition,
        producer_id: int,
        producer_epoch: int,
        *,
        commits: bool,
        on_settled: Callable[[], None] | None = None,
        then: Then,
    ) -> None:
        """Write one marker, and call back once it is durable or not needed.

        Who can write the marker again after a crash, since its outcome is durable, may ask to be told first
        that it is settled: as soon as it is written, if all records before it are durable, and else never.
        """
        log = self._partition(partition)
        if log is None:
            then(None)
            return

        def on_end(error: HeadraceError | None) -> None:
            then(None if isinstance(error, PartitionClosed) else error)

        try:
            if partition[0] == OFFSETS_TOPIC:
                self._groups.end_transaction(producer_id, producer_epoch, commits=commits, on_durable=on_end)
                return
            is_settled = on_settled is not None and self._commit.is_durable(log, log.end_offset)
            appended = log.append_marker(producer_id, producer_epoch, commits=commits, is_settled=is_settled)
        except PartitionClosed:
            then(None)
        except InvalidProducerEpoch as error:
            logger.warning("a transaction has ended already in %s-%d: %s", *partition, error)
            then(None)
        except HeadraceError as error:
            if self._store.failed is not None:
                then(error)
                return
            logger.warning("the end of a transaction in %s-%d waits: %s", *partition, error)
            self._scheduler.call_later(
                RETRY_S,
                lambda: self.write_one(
                    partition, producer_id, producer_epoch, commits=commits, on_settled=on_settled, then=then
                ),
            )
        else:
            hit("kafka.transaction.marker")
            self._commit.appended(log)
            if on_settled is not None and is_settled:
                self._commit.settled(log)
                on_settled()
            self._commit.when_durable(log, appended.last_offset + 1, on_end)

    def _partition(self, partition: TopicPartition) -> PartitionLog | None:
        name, number = partition
        topic = self._store.topics.get(name)
        return topic.partitions[number] if topic is not None and number < len(topic.partitions) else None
