"""A client's connection, as the logic sees it: channels, and the queues that are exclusive to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.queue.channel import Channel

if TYPE_CHECKING:
    from headrace.queue.broker import QueueBroker
    from headrace.queue.interface import ChannelSink, ConnectionSink
    from headrace.queue.virtual_host import VirtualHost
    from headrace.queue.work_queue import WorkQueue


class Connection:
    """Belongs to the event loop's thread."""

    def __init__(self, broker: QueueBroker, vhost: VirtualHost, user: str, sink: ConnectionSink) -> None:
        self.broker = broker
        self.vhost = vhost
        self.user = user
        self.channels: dict[Channel, None] = {}
        self.exclusive_queues: dict[WorkQueue, None] = {}
        self.is_paused = False
        """Whether the client takes nothing at the moment."""
        self.is_closed = False
        self.is_blocked = False
        self.has_published = False
        self._sink = sink

    def open_channel(self, sink: ChannelSink) -> Channel:
        """A new channel."""
        channel = Channel(self, sink)
        self.channels[channel] = None
        return channel

    def pause(self) -> None:
        """Deliver nothing for now."""
        self.is_paused = True

    def resume(self) -> None:
        """Deliver again."""
        if self.is_paused:
            self.is_paused = False
            for channel in self.channels:
                channel.wake_queues()

    def publishes(self) -> None:
        """Note that the connection publishes, which it must not go on with while there is an alarm."""
        self.has_published = True
        self.block(self.broker.alarm)

    def block(self, alarm: str | None) -> None:
        """Tell the client to stop publishing, or to go on."""
        if alarm is not None and self.has_published and not self.is_blocked:
            self.is_blocked = True
            self._sink.blocked(alarm)
        elif alarm is None and self.is_blocked:
            self.is_blocked = False
            self._sink.unblocked()

    def close(self) -> None:
        """Close all channels, and delete the queues that are exclusive to the connection."""
        if self.is_closed:
            return
        self.is_closed = True
        for channel in tuple(self.channels):
            channel.close()
        for queue in tuple(self.exclusive_queues):
            self.vhost.delete_queue(queue)
        self.broker.closed(self)
