"""From a queue to a topic: each message becomes a record, once.

    1  take messages from the queue, unacknowledged
    2  leave out those whose ids the journal remembers
    3  one Kafka transaction: the records, and their ids for the journal
    4  committed: acknowledge all of them, those that were left out as well

Killed before 3 is committed: the topic has nothing of it, the queue has all of it, which comes again.
Killed between 3 and 4: the topic has it, the queue gives it again, and the journal remembers it. So a message
with an id becomes one record wherever a kill strikes, of the bridge, of the queue server or of the broker.

What must be remembered is bounded by what may come again: the queue server sends no more than the prefetch
of messages that are not acknowledged, twice a batch. The journal remembers batches, at least as many as
that even if each has but one message.

Two messages with one id count as one: a publisher that tries again gives the same id. A message without an id
can't be recognised, and is handed over at least once; that is counted and said.

Another process that runs the same bridge fences this one at the broker before it reads the journal, so
that it knows all that this one has committed, and this one commits nothing more.

What the topic does not take for good (too large, no key for a compacted topic) goes to a queue of its own,
with the cause, before it is acknowledged.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from headrace.failpoints import hit
from headrace.logs import fields
from headrace.queue_clients.bridge.progress import BridgeProgress
from headrace.queue_clients.bridge.topic_writer import Outcome, TopicWriter
from headrace.queue_clients.channel import Consumer, QueueChannel
from headrace.queue_clients.connection import QueueConnection
from headrace.queue_clients.dead_letters import DeadLetters
from headrace.queue_clients.running import keep_running

if TYPE_CHECKING:
    from headrace.clock import Clock
    from headrace.config import ToTopicConfig
    from headrace.queue_clients.delivery import Delivery

WAIT_S_MAX: Final = 0.5
"""How long nothing may come before somebody looks whether to stop."""
REFUSED: Final = "bridge-refused"

_logger: Final = logging.getLogger(__name__)


class ToTopic:
    """One bridge. Belongs to an event loop."""

    def __init__(self, config: ToTopicConfig, clock: Clock, progress: BridgeProgress | None = None) -> None:
        self._config = config
        self._clock = clock
        self._progress = progress or BridgeProgress()
        self._stopping = asyncio.Event()
        self._said_without_id = False

    def stop(self) -> None:
        """End after the batch that is under way."""
        self._stopping.set()

    async def keep_running(self) -> None:
        """Run until stopped, also where a server is gone for a while."""
        name, progress = f"bridge {self._config.name}", self._progress
        await keep_running(name, self.run, self._stopping, lambda: progress.start_count)

    async def run(self) -> None:
        """Run until stopped, or until something fails."""
        writer = await asyncio.to_thread(TopicWriter, self._config)
        try:
            name = f"headrace bridge {self._config.name}"
            async with await QueueConnection.open(self._config.url, name=name) as connection:
                await self._hand_over_all(connection, writer)
        finally:
            await asyncio.to_thread(writer.close)

    async def _hand_over_all(self, connection: QueueConnection, writer: TopicWriter) -> None:
        config = self._config
        channel = await connection.channel()
        await self._prepare(channel)
        publishing = await connection.channel(confirms=True)
        await publishing.declare_queue(config.refused_queue)
        refused = DeadLetters(publishing, config.refused_queue, origin=config.queue)
        await channel.set_prefetch(2 * config.batch_count_max)
        consumer = await channel.consume(config.queue)
        self._progress.ready(f"queue {config.queue}", f"topic {config.topic}")
        while not self._stopping.is_set():
            batch = await self._next_batch(consumer)
            if not batch:
                continue
            outcome = await asyncio.to_thread(writer.hand_over, batch)
            hit("bridge.topic.committed")
            for delivery, cause in outcome.refused:
                await refused.add(delivery, reason=REFUSED, cause=cause, now_ms=self._clock.now_ms())
            channel.ack(batch[-1].tag, multiple=True)
            hit("bridge.topic.acknowledged")
            self._told(outcome)

    async def _prepare(self, channel: QueueChannel) -> None:
        """Have the queue; one that was named alone must be there, as its owner wants it."""
        config = self._config
        if config.exchange is None:
            await channel.declare_queue(config.queue, passive=True)
            return
        await channel.declare_exchange(config.exchange, passive=True)
        await channel.declare_queue(config.queue)
        for key in config.binding_keys:
            await channel.bind(config.queue, config.exchange, key)

    async def _next_batch(self, consumer: Consumer) -> list[Delivery]:
        """What is there, without waiting for more. While one batch is written, the next one gathers."""
        first = await consumer.next(WAIT_S_MAX)
        if first is None:
            return []
        batch = [first]
        while len(batch) < self._config.batch_count_max and (more := consumer.next_now()) is not None:
            batch.append(more)
        return batch

    def _told(self, outcome: Outcome) -> None:
        self._progress.handed_over(
            written=outcome.written, recognised=outcome.recognised, refused=len(outcome.refused)
        )
        name = self._config.name
        if outcome.without_id and not self._said_without_id:
            self._said_without_id = True
            _logger.warning(
                "bridge %s gets messages without a message id: each becomes a record at least once, and "
                "after a crash perhaps twice",
                name,
                extra=fields(bridge=name),
            )
        for delivery, cause in outcome.refused:
            _logger.warning(
                "bridge %s: topic %s does not take message %s, which is now in queue %s: %s",
                *(name, self._config.topic, delivery.message_id, self._config.refused_queue, cause),
                extra=fields(bridge=name),
            )
