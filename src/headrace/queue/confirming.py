"""What a publisher waits for.

Publishes are numbered from 1. Those of one flush are confirmed together, when it is durable, and in their
order: one that needs no disk waits for those before it. A publish that a full queue did not take is refused
at once, and is left out of what is confirmed later.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.queue.broker import QueueBroker
    from headrace.queue.interface import ChannelSink


class Confirms:
    """The publishes of one channel that is in confirm mode."""

    __slots__ = ("_confirmed", "_is_noted", "_marks", "_needs_disk", "_published", "_refused", "_sink")

    def __init__(self, sink: ChannelSink) -> None:
        self._sink: ChannelSink | None = sink
        self._published = 0
        self._confirmed = 0
        self._refused: set[int] = set()
        self._needs_disk = False
        self._is_noted = False
        self._marks: deque[tuple[int, int]] = deque()

    def published(self, broker: QueueBroker, *, is_stored: bool) -> None:
        """Number a publish that is to be confirmed."""
        self._published += 1
        if is_stored:
            self._needs_disk = True
        if not self._is_noted:
            self._is_noted = True
            broker.unconfirmed.append(self)

    def refused(self) -> None:
        """Number a publish that was not taken, and say so."""
        self._published += 1
        self._refused.add(self._published)
        if self._sink is not None:
            self._sink.refused(self._published, False)

    def flushed(self, token: int) -> bool:
        """Note that all publishes so far are in the journal; return whether they wait for the disk."""
        self._is_noted = False
        if self._needs_disk or self._marks:
            self._needs_disk = False
            self._marks.append((token, self._published))
            return True
        self._confirm(self._published)
        return False

    def durable(self, token: int) -> bool:
        """Confirm what is durable; return whether more is waited for."""
        last = 0
        while self._marks and self._marks[0][0] <= token:
            _, last = self._marks.popleft()
        if last:
            self._confirm(last)
        return bool(self._marks)

    def failed(self) -> None:
        """Refuse everything that waits: whether it is on disk is not known."""
        self._marks.clear()
        if self._sink is not None and self._published > self._confirmed:
            self._sink.refused(self._published, True)
        self._confirmed = self._published

    def close(self) -> None:
        """Tell nobody any more."""
        self._sink = None
        self._marks.clear()

    def _confirm(self, last: int) -> None:
        sink, first = self._sink, self._confirmed + 1
        self._confirmed = max(self._confirmed, last)
        if sink is None or last < first:
            return
        refused = {tag for tag in self._refused if tag <= last} if self._refused else None
        if not refused:
            sink.confirmed(last, last > first)
            return
        self._refused -= refused
        for tag in range(first, last + 1):
            if tag not in refused:
                sink.confirmed(tag, False)
