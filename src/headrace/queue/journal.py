"""The journal: what has to survive of the queues, in one partition of the log.

    told -> flush: one batch, appended -> a sync, on a thread -> durable: those who wait are called

What is told between two flushes goes into one batch. A flush happens when the event loop has done what it has
at hand, or before an answer is written to a socket. One sync runs at a time; what is flushed meanwhile goes
into the next one. So the busier the broker, the more each fdatasync pays for.

Where a file can't be opened because too many are open, nothing was attempted and nothing has failed: it is
tried again after a pause, and those who wait go on waiting. What is told meanwhile is kept up to a limit.

Bodies are read back by the batch, a few of which are kept: messages that wait in a row lie in a row.
"""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from typing import TYPE_CHECKING, Final

from headrace.errors import StorageError, TooManyOpenFiles
from headrace.failpoints import hit
from headrace.log.batch import BatchHeader, sign
from headrace.queue.journal_format import (
    AT,
    CAME_BACK,
    COUNTED,
    DELIVERY_COUNT_MAX,
    HORIZON,
    POSITION,
    POSITION_BITS,
    PUBLISH,
    PURGED,
    PURGED_HEAD,
    SETTLED,
    TOPOLOGY,
    TOPOLOGY_HEAD,
    VALUE_POSITION_MAX,
    fill,
    location,
    read_published,
    split_values,
    write_published,
    write_record,
)
from headrace.queue.needed import Needed, counted_bytes
from headrace.queue.topology import write_topology

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from headrace.clock import Clock
    from headrace.log.partition import PartitionLog
    from headrace.queue.message import Entry, Message
    from headrace.queue.topology import TopologyRecord

logger: Final = logging.getLogger(__name__)

BATCH_BYTES_MAX: Final = 2**31 - 1
REFUSED_BYTES_MAX: Final = 12 * 1024 * 1024
"""What may wait while no file can be opened: as much as one batch can take."""
BATCHES_KEPT_MAX: Final = 4
BATCH_KEPT_BYTES_MAX: Final = 4 * 1024 * 1024


class LogJournal:
    """Belongs to the event loop's thread. What waits for the disk is asked of others."""

    def __init__(
        self,
        log: PartitionLog,
        clock: Clock,
        start_sync: Callable[[], None],
        *,
        try_again: Callable[[Callable[[], None]], None],
        is_synchronous: bool = True,
        on_failure: Callable[[StorageError], None] = lambda _: None,
    ) -> None:
        """`start_sync` has the log synced elsewhere and `synced` called on this thread after that.

        `try_again` makes a call after a pause.
        """
        self._log = log
        self._clock = clock
        self._start_sync = start_sync
        self._is_synchronous = is_synchronous
        self._on_failure = on_failure
        self._parts: list[bytes] = []
        self.pending_bytes = 0
        self._has_publishes = False
        self._has_settlements = False
        self._to_forget: list[Message] = []
        self._after_flush: list[Callable[[], None]] = []
        self._waiters: deque[tuple[int, Callable[[], None]]] = deque()
        self._is_syncing = False
        self._try_again = try_again
        self._refused: TooManyOpenFiles | None = None
        """Why what was told has to wait, while it does."""
        self._next_offset = log.end_offset
        self._batches: OrderedDict[int, bytes] = OrderedDict()
        self.needed = Needed()
        self.failed: StorageError | None = None
        self.is_kept = True
        self.flush_count = 0
        self.written_bytes = 0
        """What was told and flushed since the start."""
        self.sync_count = 0

    @property
    def log(self) -> PartitionLog:
        """Where it all lies."""
        return self._log

    @property
    def token(self) -> int:
        """Stands for everything that was told so far."""
        return self._next_offset + 1 if self._parts else self._next_offset

    @property
    def durable_token(self) -> int:
        """Everything up to this would survive a loss of power."""
        return self._log.durable_offset if self._is_synchronous else self._next_offset

    def publish(self, message: Message, entries: Sequence[Entry]) -> None:
        """A message has come to queues."""
        front, body, size_bytes = write_published(PUBLISH, message, entries)
        offset, position, count = self._next_offset, self.pending_bytes, len(entries)
        if position > VALUE_POSITION_MAX:
            raise StorageError("too much was done in one step for the queues' journal; do less at once")
        message.location = offset << POSITION_BITS | position
        self._parts += (front, body)
        self.pending_bytes = position + size_bytes
        self._has_publishes = True
        kept_bytes = counted_bytes(size_bytes // count)
        for entry in entries:
            entry.kept_bytes = kept_bytes
        self.needed.added(offset, count, kept_bytes)

    def settle(self, entry: Entry) -> None:
        """A message has left a queue for good."""
        self.needed.removed(entry.message.location >> POSITION_BITS, entry.kept_bytes)
        if entry.is_stored:
            self._parts.append(AT.pack(SETTLED, entry.queue.queue_id, entry.position))
            self.pending_bytes += AT.size
            self._has_settlements = True

    def unneeded(self, location: int, kept_bytes: int) -> None:
        """A place for which so many bytes count is no longer needed by a queue."""
        self.needed.removed(location >> POSITION_BITS, kept_bytes)

    def came_back(self, entry: Entry) -> None:
        """A message has come back to its queue once more."""
        count = min(entry.delivery_count, DELIVERY_COUNT_MAX)
        self._tell(COUNTED.pack(CAME_BACK, entry.queue.queue_id, entry.position, count))

    def horizon(self, queue_id: int, position: int) -> None:
        """Messages of the queue below the position may have been delivered."""
        self.needed.declared(self._next_offset)
        self._tell(AT.pack(HORIZON, queue_id, position))

    def purged(self, queue_id: int, below_position: int, kept: Collection[int]) -> None:
        """All messages of the queue below a position have left it, but for some."""
        head = PURGED_HEAD.pack(PURGED, queue_id, below_position, len(kept))
        self._tell(head + b"".join(map(POSITION.pack, kept)))

    def change(self, record: TopologyRecord) -> None:
        """A durable exchange, queue or binding has come or gone."""
        self.needed.declared(self._next_offset)
        table = write_topology(record)
        self._tell(TOPOLOGY_HEAD.pack(TOPOLOGY, len(table)) + table)

    def move(self, operation: bytes, then: Callable[[int], None]) -> None:
        """Write a message again; `then` is called with its new location once it can be read there."""
        moved = location(self._next_offset, self.pending_bytes)
        self._tell(operation)
        self._after_flush.append(lambda: then(moved))

    def token_of(self, message: Message) -> int:
        """Stands for the message being in the journal."""
        return (message.location >> POSITION_BITS) + 1

    def load(self, message: Message) -> None:
        """Read a message whose body is not in memory. What can't be read, or has changed, is a failure."""
        offset = message.location >> POSITION_BITS
        try:
            value = self._value(offset)
            fill(message, value, read_published(value, message.location & VALUE_POSITION_MAX))
        except StorageError as error:
            self.fail(error)
            raise

    def load_time(self, message: Message) -> None:
        """Read when a message was published, and not its body. Without it if the journal has failed."""
        if self.failed is not None:
            return
        try:
            value = self._value(message.location >> POSITION_BITS)
            published = read_published(value, message.location & VALUE_POSITION_MAX)
        except TooManyOpenFiles:
            return
        except StorageError as error:
            self.fail(error)
        else:
            message.published_ms = published.published_ms

    def forget_later(self, message: Message) -> None:
        """Drop a message's body from memory as soon as it can be read back."""
        if message.location >> POSITION_BITS < self._next_offset:
            message.body = None
        else:
            self._to_forget.append(message)

    def flush(self) -> None:
        """Append what was told as one batch, and have it made durable."""
        if self.failed is not None:
            # It will never be written, and must not pile up.
            self._parts = []
            self.pending_bytes = 0
        if not self._parts:
            return
        if self._refused is not None:
            if self.pending_bytes > REFUSED_BYTES_MAX:
                self.fail(self._refused)
            return
        hit("queue.flush")
        try:
            self._log.append(self._batch(), size_bytes_max=BATCH_BYTES_MAX)
        except TooManyOpenFiles as error:
            logger.warning("what is told to the queues waits: %s", error)
            self._refused = error
            self._try_again(self._flush_again)
            return
        except StorageError as error:
            self.fail(error)
            return
        self.flush_count += 1
        self.written_bytes += self.pending_bytes
        self._next_offset = self._log.end_offset
        self._parts = []
        self.pending_bytes = 0
        if self._has_publishes:
            hit("queue.publish.before_sync")
        if self._has_settlements:
            hit("queue.ack.before_sync")
        self._has_publishes = self._has_settlements = False
        self._clear_up()
        self._sync_next()

    def when_durable(self, token: int, callback: Callable[[], None]) -> None:
        """Call back once everything up to the token would survive a loss of power; at once where it would."""
        if self.failed is not None:
            return
        if not self._waiters and self.durable_token >= token:
            callback()
        else:
            self._waiters.append((token, callback))

    def synced(self, error: StorageError | None) -> None:
        """Note that a sync which was asked for has come to its end."""
        if isinstance(error, TooManyOpenFiles):
            logger.warning("confirms of the queues wait: %s", error)
            self._try_again(self._start_sync)
            return
        self._is_syncing = False
        if error is not None:
            self.fail(error)
            return
        self.sync_count += 1
        self._release()
        self._sync_next()

    def fail(self, error: StorageError) -> None:
        """Take no more: what is waited for will not come."""
        if self.failed is None:
            self.failed = error
            self._waiters.clear()
            self._on_failure(error)

    def _flush_again(self) -> None:
        self._refused = None
        self.flush()

    def _tell(self, operation: bytes) -> None:
        self._parts.append(operation)
        self.pending_bytes += len(operation)

    def _clear_up(self) -> None:
        """Do what waited for what was told to be readable."""
        for message in self._to_forget:
            message.body = None
        self._to_forget.clear()
        after, self._after_flush = self._after_flush, []
        for callback in after:
            callback()

    def _sync_next(self) -> None:
        if not self._is_synchronous:
            self._release()
        elif not self._is_syncing and self._log.durable_offset < self._next_offset:
            self._is_syncing = True
            self._start_sync()

    def _release(self) -> None:
        durable = self.durable_token
        if self._waiters and self._waiters[0][0] <= durable:
            hit("queue.publish.before_confirm")
        while self._waiters and self._waiters[0][0] <= durable:
            _, callback = self._waiters.popleft()
            callback()

    def _batch(self) -> memoryview:
        now_ms = self._clock.now_ms()
        header = BatchHeader(
            base_offset=0,
            batch_length=0,
            partition_leader_epoch=0,
            magic=2,
            crc=0,
            attributes=0,
            last_offset_delta=0,
            base_timestamp_ms=now_ms,
            max_timestamp_ms=now_ms,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            record_count=1,
        )
        return sign(header, write_record(self._parts, self.pending_bytes)).data

    def _value(self, offset: int) -> bytes:
        """The value of a batch; of those that were read last, a few are kept."""
        if offset == self._next_offset:
            # It has been told and not flushed, which must wait until all of what is being done is told.
            self._parts = [b"".join(self._parts)]
            return self._parts[0]
        value = self._batches.get(offset)
        if value is None:
            ((_, value),) = split_values(self._log.read(offset, size_bytes_max=1), offset)
            if len(value) <= BATCH_KEPT_BYTES_MAX:
                self._batches[offset] = value
                if len(self._batches) > BATCHES_KEPT_MAX:
                    self._batches.popitem(last=False)
        else:
            self._batches.move_to_end(offset)
        return value
