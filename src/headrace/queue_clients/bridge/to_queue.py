"""From a topic to a queue: each record becomes a message, once where transactions of AMQP are atomic.

How far the topic was handed over is itself a message: the only one of a durable queue, the position queue.
Each batch is one transaction of AMQP, on one channel:

    publish the messages · publish the new position · acknowledge the old position · commit

The embedded server puts all of it on disk in one step or not at all. So the position and the messages
before it can't disagree, wherever a kill strikes: a bridge that comes back takes the position and reads on
from there. RabbitMQ does not promise that its transactions survive a crash as a whole: there, each record
becomes a message at least once. The message's id is the record's place, always the same, so that a worker
can tell.

Only one process of a name runs, because it declares a queue that is exclusive to its connection, the lock.
Another is refused, waits, and takes over when the first one's connection ends, and with it its open
transaction.

An empty position queue is new, or somebody has emptied it. Then the group's offsets at the broker, which
are written after each batch for whoever looks, say where to go on, at least once; without them it is the
start. Where there are two positions, what both say is true, and the further one counts for each partition.

A message that no queue takes comes back when the transaction is committed, and the position is behind it.
The bridge moves the position back to where it was, and stops with an error.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from pika.spec import BasicProperties

from headrace.errors import BridgeFailed, QueueServerRefused
from headrace.failpoints import hit
from headrace.queue_clients.bridge.position import Position
from headrace.queue_clients.bridge.progress import BridgeProgress
from headrace.queue_clients.bridge.records import PERSISTENT, TopicRecord, message_of
from headrace.queue_clients.bridge.topic_reader import TopicReader
from headrace.queue_clients.channel import NO_QUEUE, QueueChannel
from headrace.queue_clients.connection import QueueConnection
from headrace.queue_clients.running import keep_running

if TYPE_CHECKING:
    from headrace.config import ToQueueConfig

WAIT_S_MAX: Final = 0.5
"""How long nothing may come before somebody looks whether to stop."""


class ToQueue:
    """One bridge. Belongs to an event loop."""

    def __init__(self, config: ToQueueConfig, progress: BridgeProgress | None = None) -> None:
        self._config = config
        self._progress = progress or BridgeProgress()
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """End after the batch that is under way."""
        self._stopping.set()

    async def keep_running(self) -> None:
        """Run until stopped, also where a server is gone for a while."""
        name, progress = f"bridge {self._config.name}", self._progress
        await keep_running(name, self.run, self._stopping, lambda: progress.start_count)

    async def run(self) -> None:
        """Run until stopped, or until something fails."""
        reader = TopicReader(self._config)
        try:
            name = f"headrace bridge {self._config.name}"
            async with await QueueConnection.open(self._config.url, name=name) as connection:
                await self._prepare(connection)
                channel = await connection.channel()
                await channel.select_transaction()
                await self._hand_over_all(channel, reader)
        finally:
            await asyncio.to_thread(reader.close)

    async def _prepare(self, connection: QueueConnection) -> None:
        """Be the only one, and have all queues. One that is there may be as its owner wants it."""
        config = self._config
        channel = await connection.channel()
        await channel.declare_queue(f"{config.position_queue}.lock", durable=False, exclusive=True)
        await channel.declare_queue(config.position_queue)
        if config.exchange is not None:
            await channel.declare_exchange(config.exchange, passive=True)
            return
        try:
            await channel.declare_queue(config.queue, passive=True)
        except QueueServerRefused as error:
            if error.reply_code != NO_QUEUE:
                raise
            await (await connection.channel()).declare_queue(config.queue)

    async def _hand_over_all(self, channel: QueueChannel, reader: TopicReader) -> None:
        stored, tags = await self._stored_position(channel)
        position = await asyncio.to_thread(reader.begin, stored)
        # What is begun with is written down, so that a start at the end is one also after a crash.
        await self._move(channel, position, tags)
        self._progress.ready(f"topic {self._config.topic}", self._target)
        while not self._stopping.is_set():
            records = await asyncio.to_thread(reader.read, WAIT_S_MAX)
            if records:
                position = await self._hand_over(channel, records, position)
                await asyncio.to_thread(reader.show_position, position)
                self._progress.handed_over(written=len(records))

    async def _hand_over(
        self, channel: QueueChannel, records: list[TopicRecord], before: Position
    ) -> Position:
        config = self._config
        for record in records:
            message = message_of(record, config.queue if config.exchange is None else config.routing_key)
            channel.publish(
                message.body,
                properties=message.properties,
                exchange=config.exchange or "",
                routing_key=message.routing_key,
            )
        hit("bridge.queue.published")
        after = before.after(records)
        _, tags = await self._stored_position(channel)
        await self._move(channel, after, tags)
        hit("bridge.queue.committed")
        if channel.returned:
            reason = channel.returned.pop()
            _, tags = await self._stored_position(channel)
            await self._move(channel, before, tags)
            raise BridgeFailed(f"bridge {config.name} stops before {records[0].place}: {reason}")
        return after

    async def _move(self, channel: QueueChannel, position: Position, tags: list[int]) -> None:
        """Put a position in place of those with these tags, and commit that with what was published."""
        channel.publish(
            position.to_json(),
            properties=BasicProperties(delivery_mode=PERSISTENT, content_type="application/json"),
            routing_key=self._config.position_queue,
        )
        for tag in tags:
            channel.ack(tag)
        await channel.commit()

    async def _stored_position(self, channel: QueueChannel) -> tuple[Position | None, list[int]]:
        """What the position queue holds, and the tags to acknowledge it by."""
        queue, topic = self._config.position_queue, self._config.topic
        position: Position | None = None
        tags: list[int] = []
        while (delivery := await channel.get(queue)) is not None:
            tags.append(delivery.tag)
            found = Position.from_json(delivery.body, topic=topic, queue=queue)
            position = found if position is None else position.further(found)
        return position, tags

    @property
    def _target(self) -> str:
        config = self._config
        return f"queue {config.queue}" if config.exchange is None else f"exchange {config.exchange}"
