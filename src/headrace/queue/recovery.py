"""What a journal says is waiting, after a restart.

The journal is read once, from its start to its end. Messages become rows of four numbers, as a backlog packs
them, so that a million of them need little more memory than they will have; which of them are gone is noted
in bits. At the end, the rows that are left are put into their queues, in the order of their positions.

- A position may be written twice: by `publish`, and by `moved` when the journal's beginning was about to go.
  The later one counts.
- What was settled, and then written again, is there: only the order of the journal counts.
- A queue may be declared after messages of it: when the journal's beginning goes, what is declared is written
  again at its end. So messages are looked at by the id of their queue until everything has been read.
- What lies below a queue's horizon comes back as redelivered.
"""

from __future__ import annotations

from array import array
from struct import error as struct_error
from typing import TYPE_CHECKING, Final

from headrace.errors import CorruptBatch
from headrace.queue.backlog import (
    COUNT_MAX,
    COUNT_SHIFT,
    KEPT_SHIFT,
    PRIORITY_MAX,
    PRIORITY_SHIFT,
    REDELIVERED,
    SIZE_SHIFT,
    STORED,
    WORDS,
)
from headrace.queue.journal_format import (
    AT,
    CAME_BACK,
    COUNTED,
    HORIZON,
    MOVED,
    ONE_PLACE_HEAD,
    POSITION,
    POSITION_BITS,
    PUBLISH,
    PURGED,
    PURGED_HEAD,
    SETTLED,
    TOPOLOGY,
    TOPOLOGY_HEAD,
    location,
    read_published,
    split_values,
)
from headrace.queue.needed import CLASS_BYTES, SIZE_CLASS_MAX, size_class
from headrace.queue.topology import QueueGone, QueueMade, read_topology

if TYPE_CHECKING:
    from headrace.log.partition import PartitionLog
    from headrace.queue.broker import QueueBroker
    from headrace.queue.needed import Needed
    from headrace.queue.work_queue import WorkQueue

READ_BYTES: Final = 1024 * 1024
CHUNK_BITS: Final = 16
NOT_ONE: Final = (0,) * 13


class Positions:
    """A set of positions, in bits."""

    __slots__ = ("_chunks",)

    def __init__(self) -> None:
        self._chunks: dict[int, bytearray] = {}

    def add(self, position: int) -> None:
        """Put a position in."""
        chunk = self._chunks.get(position >> CHUNK_BITS)
        if chunk is None:
            chunk = self._chunks[position >> CHUNK_BITS] = bytearray(1 << (CHUNK_BITS - 3))
        low = position & ((1 << CHUNK_BITS) - 1)
        chunk[low >> 3] |= 1 << (low & 7)

    def discard(self, position: int) -> None:
        """Take a position out."""
        chunk = self._chunks.get(position >> CHUNK_BITS)
        if chunk is not None:
            low = position & ((1 << CHUNK_BITS) - 1)
            chunk[low >> 3] &= ~(1 << (low & 7))

    def __contains__(self, position: int) -> bool:
        chunk = self._chunks.get(position >> CHUNK_BITS)
        if chunk is None:
            return False
        low = position & ((1 << CHUNK_BITS) - 1)
        return bool(chunk[low >> 3] & 1 << (low & 7))


class RecoveredQueue:
    """What was found of the messages of one queue."""

    __slots__ = ("counts", "horizon", "next_position", "rows", "settled")

    def __init__(self) -> None:
        self.rows = array("q")
        self.settled = Positions()
        self.counts: dict[int, int] = {}
        self.horizon = 0
        self.next_position = 0

    def purge(self, below_position: int, kept: frozenset[int]) -> None:
        """Settle what is below a position, but for some."""
        for position in self.rows[1::WORDS]:
            if position < below_position and position not in kept:
                self.settled.add(position)

    def waiting(self) -> list[int]:
        """Where the rows of messages begin that are still there, in the order of their positions."""
        rows, seen = self.rows, Positions()
        kept = []
        for index in range(len(rows) - WORDS, -1, -WORDS):
            position = rows[index + 1]
            if position not in self.settled and position not in seen:
                seen.add(position)
                kept.append(index)
        kept.sort(key=lambda index: rows[index + 1])
        return kept


class Recovery:
    """Reads a journal into a broker that is empty."""

    def __init__(self, broker: QueueBroker, needed: Needed) -> None:
        self._broker = broker
        self._queues: dict[int, RecoveredQueue] = {}
        self._queue_id_max = 0
        self._needed = needed
        self.message_count = 0

    def run(self, log: PartitionLog) -> None:
        """Read everything. Raises CorruptBatch or StorageError."""
        offset, end_offset = log.start_offset, log.end_offset
        while offset < end_offset:
            for found, value in split_values(log.read(offset, size_bytes_max=READ_BYTES), offset):
                self._apply(found, value)
                offset = found + 1
        self._broker.next_queue_id = self._queue_id_max + 1
        for queue_id, queue in self._broker.services.queues.items():
            recovered = self._queues.pop(queue_id, None) or RecoveredQueue()
            self._fill(queue, recovered)
        self._queues.clear()

    def _apply(self, offset: int, value: bytes) -> None:
        position = 0
        try:
            while position < len(value):
                position = self._apply_one(offset, value, position)
        except (struct_error, IndexError) as error:
            raise CorruptBatch(f"the queues' journal can't be read at offset {offset}: {error}") from error

    def _apply_one(self, offset: int, value: bytes, position: int) -> int:
        """Apply the operation at a place in a batch's value; return where the next one begins."""
        kind = value[position]
        if kind == SETTLED:
            _, queue_id, at = AT.unpack_from(value, position)
            queue = self._queue(queue_id)
            queue.settled.add(at)
            queue.next_position = max(queue.next_position, at + 1)
            return position + AT.size
        if kind in {PUBLISH, MOVED}:
            return self._published(offset, value, position)
        if kind == HORIZON:
            _, queue_id, at = AT.unpack_from(value, position)
            self._queue(queue_id).horizon = at
            self._needed.declared(offset)
            return position + AT.size
        if kind == CAME_BACK:
            _, queue_id, at, count = COUNTED.unpack_from(value, position)
            self._queue(queue_id).counts[at] = count
            return position + COUNTED.size
        if kind == PURGED:
            return self._purged(value, position)
        if kind == TOPOLOGY:
            self._needed.declared(offset)
            return self._topology(value, position)
        raise CorruptBatch(f"the queues' journal has an unknown operation {kind} at offset {offset}")

    def _published(self, offset: int, value: bytes, position: int) -> int:
        # Nearly all messages are in one queue, and starting lives on this.
        fields = ONE_PLACE_HEAD.unpack_from(value, position) if value[position + 3] == 1 else NOT_ONE
        _, priority, places, exchange, key, properties, body, _, queue_id, at, expires_ms, count, stored = (
            fields
        )
        if places != 1:
            return self._published_to_many(offset, value, position)
        queue = self._queue(queue_id)
        if at >= queue.next_position:
            queue.next_position = at + 1
        else:
            queue.settled.discard(at)
        end: int = position + ONE_PLACE_HEAD.size + exchange + key + properties + body
        if stored:
            kept = size_class(end - position)
            word = body << SIZE_SHIFT | priority << PRIORITY_SHIFT | kept << KEPT_SHIFT | STORED
            queue.rows.extend(
                (
                    offset << POSITION_BITS | position,
                    at,
                    expires_ms,
                    word | min(count, COUNT_MAX) << COUNT_SHIFT,
                )
            )
        return end

    def _published_to_many(self, offset: int, value: bytes, position: int) -> int:
        published = read_published(value, position)
        stored_count = sum(place.is_stored for place in published.places) or 1
        word = (
            published.body_bytes << SIZE_SHIFT
            | min(published.priority, PRIORITY_MAX) << PRIORITY_SHIFT
            | size_class((published.end - position) // stored_count) << KEPT_SHIFT
            | STORED
        )
        for place in published.places:
            queue = self._queue(place.queue_id)
            queue.next_position = max(queue.next_position, place.position + 1)
            if place.is_stored:
                queue.settled.discard(place.position)
                count = min(place.delivery_count, COUNT_MAX)
                queue.rows.extend(
                    (
                        location(offset, position),
                        place.position,
                        place.expires_ms,
                        word | count << COUNT_SHIFT,
                    )
                )
        return published.end

    def _purged(self, value: bytes, position: int) -> int:
        count: int
        _, queue_id, below, count = PURGED_HEAD.unpack_from(value, position)
        at = position + PURGED_HEAD.size
        kept = frozenset(POSITION.unpack_from(value, at + index * POSITION.size)[0] for index in range(count))
        self._queue(queue_id).purge(below, kept)
        return at + count * POSITION.size

    def _topology(self, value: bytes, position: int) -> int:
        size_bytes: int
        _, size_bytes = TOPOLOGY_HEAD.unpack_from(value, position)
        at = position + TOPOLOGY_HEAD.size
        record = read_topology(value[at : at + size_bytes])
        if isinstance(record, QueueGone):
            self._queues.pop(record.queue_id, None)
        if isinstance(record, QueueGone | QueueMade):
            self._queue_id_max = max(self._queue_id_max, record.queue_id)
        vhost = self._broker.vhosts.get(record.vhost)
        if vhost is not None:
            vhost.apply(record)
        return at + size_bytes

    def _queue(self, queue_id: int) -> RecoveredQueue:
        queue = self._queues.get(queue_id)
        if queue is None:
            queue = self._queues[queue_id] = RecoveredQueue()
            self._queue_id_max = max(self._queue_id_max, queue_id)
        return queue

    def _fill(self, queue: WorkQueue, recovered: RecoveredQueue) -> None:
        rows = recovered.rows
        for index in recovered.waiting():
            at, position, expires_ms, word = rows[index : index + WORDS]
            returns = recovered.counts.get(position)
            if returns is not None:
                word = word & ~(COUNT_MAX << COUNT_SHIFT) | min(returns, COUNT_MAX) << COUNT_SHIFT
            if position < recovered.horizon or (word >> COUNT_SHIFT) & COUNT_MAX:
                word |= REDELIVERED
            level = queue.level_of((word >> PRIORITY_SHIFT) & PRIORITY_MAX)
            level.recovered(at, position, expires_ms, word)
            kept_bytes = CLASS_BYTES[(word >> KEPT_SHIFT) & SIZE_CLASS_MAX]
            self._needed.added(at >> POSITION_BITS, 1, kept_bytes)
            self.message_count += 1
        queue.recovered(
            next_position=max(recovered.next_position, recovered.horizon), horizon=recovered.horizon
        )
