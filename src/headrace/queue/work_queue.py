"""One queue: what is ready, who holds what, and who gets what next.

    ready -> unacked -> gone            acknowledged, or delivered without need for it
               |------> ready           given back: at its old place, as redelivered
               |------> delayed -> ready  given back to a queue with a retry delay
               |------> gone            rejected, or given back too often: dead-lettered
    ready -> gone                       expired, or pushed out by newer ones: dead-lettered

The state is changed at once, and the journal told what has to survive: here, for the sake of speed, there
are no records that are applied, and recovery has code of its own (recovery.py). A test compares the two.

**The horizon.** A message that was delivered and comes back after a crash must be flagged as redelivered. To
write down each delivery, and to wait for the disk before each, would cost more than all the rest. So the
queue writes ahead up to which position it may have delivered, its horizon, and delivers nothing stored that
is beyond what is durable of that. The step doubles with each time, and the next one is written when half of
the last is used: a queue of a thousand deliveries has had ten horizons written, most of them while it went
on. After a crash, some messages below the horizon are flagged that were never delivered, at most twice as
many as had been. After an orderly stop, none are.
"""

from __future__ import annotations

from collections import Counter
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

from headrace.failpoints import hit
from headrace.queue.backlog import CHUNK_COUNT_MAX, Backlog, packed_places
from headrace.queue.consumer import Consumers
from headrace.queue.fields import write_value
from headrace.queue.journaling import EVERYTHING
from headrace.queue.message import NOWHERE, Entry, Message
from headrace.queue.properties import with_headers

if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable, Iterable, Iterator

    from headrace.queue.arguments import QueueArguments
    from headrace.queue.connection import Connection
    from headrace.queue.consumer import Consumer
    from headrace.queue.dead_letters import Loss, Reason
    from headrace.queue.services import Services

    Bury = Callable[[Entry, Reason], None]

DELIVERIES_AT_ONCE_MAX: Final = 256
"""After so many, others get their turn."""
HORIZON_STEP_MAX: Final = 8192
FREED_AT_ONCE_MAX: Final = 4096
"""How many messages of a queue that was purged are counted as free before others get their turn."""


class QueueCounts:
    """What has happened in a queue since the broker started."""

    __slots__ = (
        "acked",
        "dead_lettered",
        "dead_letters_dropped",
        "delivered",
        "dropped",
        "expired",
        "published",
        "redelivered",
    )

    def __init__(self) -> None:
        self.published = 0
        self.delivered = 0
        self.redelivered = 0
        self.acked = 0
        self.expired = 0
        self.dropped = 0
        """Pushed out by newer ones, or refused for want of room."""
        self.dead_lettered = 0
        """Died, and came to another queue."""
        self.dead_letters_dropped: Counter[Loss] = Counter()
        """Died, and are nowhere."""


class WorkQueue:
    """One queue. Belongs to the event loop's thread."""

    def __init__(  # noqa: PLR0913  # What a declaration says.
        self,
        services: Services,
        name: str,
        queue_id: int,
        *,
        bury: Bury,
        on_unused: Callable[[WorkQueue], None],
        durable: bool,
        auto_delete: bool,
        owner: Connection | None,
        given: dict[str, object],
        arguments: QueueArguments,
    ) -> None:
        self._services = services
        self._journal = services.journal
        self._memory = services.memory
        self._bury = bury
        self._on_unused = on_unused
        self.name = name
        self.queue_id = queue_id
        self.durable = durable
        self.auto_delete = auto_delete
        self.owner = owner
        """The connection that it is exclusive to."""
        self.given = given
        """The arguments as they were declared."""
        self.arguments = arguments
        self.is_stored = durable and owner is None and services.journal.is_kept
        """Whether its persistent messages survive a restart."""
        self.is_deleted = False
        self._message_ttl_ms = arguments.message_ttl_ms
        self.next_position = 0
        head_count_max = services.limits.resident_count_max
        self.levels = [
            Backlog(self, head_count_max=head_count_max, is_roomy=services.memory.is_roomy)
            for _ in range(arguments.priority_max + 1)
        ]
        self.unacked: dict[int, Entry] = {}
        self._delayed: dict[int, Entry] = {}
        self._delayed_order: list[tuple[int, int]] = []
        self.consumers = Consumers(is_single_active=arguments.single_active_consumer)
        self.counts = QueueCounts()
        self.horizon = 0 if self.is_stored else EVERYTHING
        self.horizon_asked = self.horizon
        self._horizon_step = 1
        self._horizon_ahead = 0
        self._last_used_ms = services.now_ms()
        self._timer_due_ms = 0
        self.count = 0
        """How many are ready."""
        self._is_bounded = arguments.length_max is not None or arguments.length_bytes_max is not None
        self.may_refuse = self._is_bounded and arguments.overflow != "drop-head"
        """Whether publishers have to be told when the queue is full."""
        self._schedule()

    @property
    def body_bytes(self) -> int:
        """The bytes of all bodies that are ready."""
        return sum(level.body_bytes for level in self.levels)

    @property
    def delayed_count(self) -> int:
        """How many wait until they are ready again."""
        return len(self._delayed)

    def new_entry(self, message: Message, now_ms: int) -> Entry:
        """A place at the queue's end for a message."""
        position = self.next_position
        self.next_position = position + 1
        entry = Entry(self, message, position)
        ttl_ms, own_ms = self._message_ttl_ms, message.expiration_ms
        if ttl_ms is not None or own_ms is not None:
            entry.expires_ms = now_ms + min(each for each in (ttl_ms, own_ms) if each is not None)
        entry.is_stored = self.is_stored and message.is_persistent
        return entry

    @property
    def refuses(self) -> bool:
        """Whether the queue is full and its publishers are to hear of it."""
        if not self.may_refuse:
            return False
        length_max, bytes_max = self.arguments.length_max, self.arguments.length_bytes_max
        return (length_max is not None and self.count >= length_max) or (
            bytes_max is not None and self.body_bytes >= bytes_max
        )

    def accept(self, entry: Entry, now_ms: int) -> None:
        """Take a new entry: to a consumer at once, or to the end of what is ready."""
        self.counts.published += 1
        if not self.count and self.consumers.all and self._may_deliver(entry):
            consumer = self.consumers.next()
            if consumer is not None:
                self._deliver(entry, consumer)
                return
        self._append(entry)
        if self._is_bounded:
            self._push_out()
        if entry.expires_ms:
            if entry.expires_ms <= now_ms:
                self._expire(now_ms)
            self._schedule()

    def turn_away(self, message: Message, now_ms: int) -> None:
        """Note that a message was not taken, and dead-letter it where the queue does that."""
        self.counts.dropped += 1
        if self.arguments.overflow == "reject-publish-dlx":
            entry = self.new_entry(message, now_ms)
            entry.is_stored = False
            message.references += 1
            self._die(entry, "maxlen")

    def deliver_ready(self) -> None:
        """Deliver as long as there is something ready and somebody to take it."""
        if self.is_deleted or self._services.is_stopped:
            return
        consumers = self.consumers
        for _ in range(DELIVERIES_AT_ONCE_MAX):
            entry = self._first()
            if entry is None or not consumers.all or not self._may_deliver(entry):
                return
            consumer = consumers.next()
            if consumer is None:
                return
            if entry.message.body is None and not self._is_loaded(entry):
                return
            self._pop(entry)
            self._deliver(entry, consumer)
        self._services.wake(self)

    def fetch(self, answer: Callable[[Entry | None], None]) -> None:
        """Take the next one out for basic.get, once that may be done; the one who asked holds it then.

        One that can't be read stops the queues, which everybody is told of.
        """
        self._last_used_ms = self._services.now_ms()
        entry = None if self.is_deleted else self._first()
        if entry is None:
            answer(None)
        elif self._may_deliver(entry):
            if not self._is_loaded(entry):
                return
            self._pop(entry)
            self.counts.delivered += 1
            self.counts.redelivered += entry.redelivered
            self.unacked[entry.position] = entry
            answer(entry)
        else:
            self._journal.when_durable(self._journal.token, lambda: self.fetch(answer))

    def ack(self, entry: Entry) -> None:
        """Let an entry go that was delivered."""
        if self.unacked.pop(entry.position, None) is not None:
            self.counts.acked += 1
            self.gone(entry)

    def reject(self, entry: Entry) -> None:
        """Let an entry go that nobody wants."""
        if self.unacked.pop(entry.position, None) is not None:
            self._die(entry, "rejected")

    def take_back(self, entry: Entry, *, is_delayed: bool) -> None:
        """Make an entry ready again that was delivered: at once, or when its retry is due."""
        if self.unacked.pop(entry.position, None) is None or self.is_deleted:
            return
        entry.redelivered = True
        entry.consumer = None
        arguments = self.arguments
        if arguments.counts_deliveries:
            entry.delivery_count += 1
            if arguments.delivery_limit is not None and entry.delivery_count > arguments.delivery_limit:
                self._die(entry, "delivery_limit")
                return
            if entry.is_stored:
                self._journal.came_back(entry)
        delay_ms = arguments.retry_after_ms(entry.delivery_count) if is_delayed else 0
        if delay_ms:
            self._delayed[entry.position] = entry
            heappush(self._delayed_order, (self._services.now_ms() + delay_ms, entry.position))
        else:
            self._put_back(entry)
        self._schedule()

    def gone(self, entry: Entry) -> None:
        """Forget an entry for good."""
        if entry.is_resident:
            self._memory.release(entry)
        message = entry.message
        message.references -= 1
        if message.location != NOWHERE:
            self._journal.settle(entry)

    def purge(self) -> int:
        """Remove all that is ready; return how many."""
        count = self.count
        if self.is_stored:
            self._journal.purged(self.queue_id, self.next_position, (*self.unacked, *self._delayed))
        self._let_go_of_all(())
        return count

    def clear(self) -> None:
        """Forget everything: the queue has been deleted, and the journal knows."""
        self.is_deleted = True
        held = (*self.unacked.values(), *self._delayed.values())
        self.unacked.clear()
        self._delayed.clear()
        self.is_stored = False
        self._let_go_of_all(held)

    def add_consumer(self, consumer: Consumer) -> None:
        """Take a consumer; deliveries begin soon."""
        self.consumers.add(consumer)
        self._services.wake(self)

    def remove_consumer(self, consumer: Consumer) -> None:
        """Let a consumer go."""
        self.consumers.remove(consumer)
        self.touch()
        self._services.wake(self)

    def touch(self) -> None:
        """Note that somebody uses the queue."""
        self._last_used_ms = self._services.now_ms()
        self._schedule()

    def look_at_time(self, now_ms: int) -> None:
        """Do what is due: expire messages, make delayed ones ready, or go if nobody has used the queue."""
        if self.is_deleted:
            return
        self._timer_due_ms = 0
        if self.is_unused(now_ms):
            self._on_unused(self)
            return
        self._expire(now_ms)
        while self._delayed_order and self._delayed_order[0][0] <= now_ms:
            _, position = heappop(self._delayed_order)
            entry = self._delayed.pop(position, None)
            if entry is not None:
                self._put_back(entry)
        self._schedule()

    def is_unused(self, now_ms: int) -> bool:
        """Whether it is to be deleted because nobody has used it for as long as it was told to wait."""
        expires_ms = self.arguments.expires_ms
        return expires_ms is not None and not self.consumers.all and now_ms >= self._last_used_ms + expires_ms

    def place_of(self, position: int) -> tuple[int, int] | None:
        """Where the message of a position lies in the journal, and how often it came back.

        None if it is not here any more.
        """
        entry = self.unacked.get(position) or self._delayed.get(position)
        if entry is not None:
            return entry.message.location, entry.delivery_count
        places = (level.place_of(position) for level in self.levels)
        return next((place for place in places if place is not None), None)

    def relocate(self, position: int, location: int, kept_bytes: int) -> int | None:
        """Note where a message lies now, and what counts for it; return what did until now, None if gone."""
        entry = self.unacked.get(position) or self._delayed.get(position)
        if entry is not None:
            return entry.relocate(location, kept_bytes)
        for level in self.levels:
            before_bytes = level.relocate(position, location, kept_bytes)
            if before_bytes is not None:
                return before_bytes
        return None

    def exact_horizon(self) -> int:
        """A horizon that flags what was delivered and, but for priorities, nothing else."""
        redelivered = (level.last_redelivered() for level in self.levels)
        return max((*redelivered, *self.unacked, *self._delayed)) + 1

    def oldest_published_ms(self) -> int | None:
        """When the first message that is ready was published. May read a batch of the journal."""
        messages = [first.message for level in self.levels if (first := level.first())]
        for message in messages:
            if not message.published_ms:
                self._journal.load_time(message)
        return min((message.published_ms for message in messages if message.published_ms), default=None)

    def recovered(self, *, next_position: int, horizon: int) -> None:
        """Go on from what was found in the journal."""
        self.next_position = max(self.next_position, next_position)
        self.horizon = self.horizon_asked = horizon
        self.count = sum(level.count for level in self.levels)
        self._schedule()

    def level_of(self, priority: int) -> Backlog:
        """Where messages of a priority wait."""
        levels = self.levels
        return levels[0] if len(levels) == 1 else levels[min(priority, len(levels) - 1)]

    def _append(self, entry: Entry) -> None:
        message = entry.message
        level = self.level_of(message.priority)
        if message.location == NOWHERE and level.is_paging and self._journal.is_kept:
            if message.references > 1:
                # The other queues keep it in memory, and must not settle what was written for this one.
                message.references -= 1
                message = entry.message = message.copy()
            self._journal.publish(message, (entry,))
        self.count += 1
        if not level.append(entry):
            return
        if message.location != NOWHERE and self._memory.is_full:
            if message.references == 1:
                self._journal.forget_later(message)
        else:
            self._memory.hold(entry)

    def _put_back(self, entry: Entry) -> None:
        self.level_of(entry.message.priority).put_back(entry)
        self.count += 1
        if self._is_bounded:
            self._push_out()
        self._services.wake(self)

    def _first(self) -> Entry | None:
        """The next one that is alive."""
        levels = self.levels
        while self.count:
            if len(levels) == 1:
                entry = levels[0].first()
                assert entry is not None, f"queue {self.name} has lost count of what is ready"
            else:
                entry = next(first for level in reversed(levels) if (first := level.first()))
            if not entry.expires_ms or entry.expires_ms > self._services.now_ms():
                return entry
            self._pop(entry)
            self.counts.expired += 1
            self._die(entry, "expired")
        return None

    def _is_loaded(self, entry: Entry) -> bool:
        """Have the body in memory, before the entry leaves its place; False if that has failed."""
        if entry.message.body is None:
            try:
                self._journal.load(entry.message)
            except Exception as error:  # noqa: BLE001  # Whatever it was, the queues stop.
                self._services.fail(error)
                return False
        return True

    def _pop(self, entry: Entry) -> None:
        if len(self.levels) == 1:
            first = self.levels[0].pop_first()
            assert first is entry, f"the entry at {entry.position} is not the first of queue {self.name}"
            self.count -= 1
            return
        for level in reversed(self.levels):
            if level.count and level.first() is entry:
                level.pop_first()
                self.count -= 1
                return
        raise AssertionError(f"the entry at {entry.position} is not the first of queue {self.name}")

    def _expire(self, now_ms: int) -> None:
        for level in self.levels:
            while (entry := level.first()) is not None and 0 < entry.expires_ms <= now_ms:
                level.pop_first()
                self.count -= 1
                self.counts.expired += 1
                self._die(entry, "expired")

    def _push_out(self) -> None:
        """Drop the oldest of the lowest priority until no more are ready than may be."""
        length_max, bytes_max = self.arguments.length_max, self.arguments.length_bytes_max
        while self.count and (
            (length_max is not None and self.count > length_max)
            or (bytes_max is not None and self.body_bytes > bytes_max)
        ):
            entry = next(level for level in self.levels if level.count).pop_first()
            self.count -= 1
            self.counts.dropped += 1
            self._die(entry, "maxlen")

    def _die(self, entry: Entry, reason: Reason) -> None:
        if self.arguments.dead_letter_exchange is None:
            self.counts.dead_letters_dropped["not_configured"] += 1
            self.gone(entry)
        else:
            self._bury(entry, reason)

    def _may_deliver(self, entry: Entry) -> bool:
        """Whether a crash after the delivery would flag it; if not, see to it that this becomes so."""
        if not entry.is_stored or entry.redelivered:
            return True
        if entry.message.waits_for_disk and not self._is_on_disk(entry.message):
            return False
        position = entry.position
        horizon = self.horizon
        if position >= horizon - self._horizon_ahead and horizon == self.horizon_asked:
            self._ask_for_horizon(position)
        return position < horizon

    def _is_on_disk(self, message: Message) -> bool:
        token = self._journal.token_of(message)
        message.waits_for_disk = token > self._journal.durable_token
        if message.waits_for_disk:
            self._journal.when_durable(token, lambda: self._services.wake(self))
        return not message.waits_for_disk

    def _ask_for_horizon(self, position: int) -> None:
        step = self._horizon_step
        asked = self.horizon_asked = position + step
        self._horizon_ahead = step >> 1
        self._horizon_step = min(step * 2, HORIZON_STEP_MAX)
        self._journal.horizon(self.queue_id, asked)
        self._services.flush_soon()
        self._journal.when_durable(self._journal.token, lambda: self._reach(asked))

    def _reach(self, horizon: int) -> None:
        self.horizon = max(self.horizon, horizon)
        if self.count and self.consumers.all:
            self._services.wake(self)

    def _deliver(self, entry: Entry, consumer: Consumer) -> None:
        message = entry.message
        self.counts.delivered += 1
        if entry.redelivered:
            self.counts.redelivered += 1
        channel = consumer.channel
        tag = channel.last_tag = channel.last_tag + 1
        if consumer.no_ack:
            channel.sink.deliver(consumer.tag, tag, entry.redelivered, self.told(entry))
            self.counts.acked += 1
            self.gone(entry)
            return
        entry.consumer = consumer
        consumer.unacked_count += 1
        channel.unacked_count += 1
        channel.unacked[tag] = entry
        self.unacked[entry.position] = entry
        told = self.told(entry) if entry.delivery_count else message
        channel.sink.deliver(consumer.tag, tag, entry.redelivered, told)
        hit("queue.delivered")
        self.let_go_of_body(entry)

    def _let_go_of_all(self, held: Iterable[Entry]) -> None:
        """Forget all that is ready, and some that were held; the journal knows already.

        What that frees is counted in pieces. Others may have messages moved meanwhile that they share with
        these, so places are noted now.
        """
        entries = list(held)
        chunks: list[array[int]] = []
        for level in self.levels:
            head, tail = level.take_all()
            entries += head
            chunks += tail
        self.count = 0
        places = [(entry, entry.message.location) for entry in entries]
        self._services.do_in_pieces(self._free(places, chunks))

    def _free(self, places: list[tuple[Entry, int]], chunks: list[array[int]]) -> Iterator[None]:
        for number, (entry, location) in enumerate(places, 1):
            self._memory.release(entry)
            entry.message.references -= 1
            if location != NOWHERE:
                self._journal.unneeded(location, entry.kept_bytes)
            if not number % FREED_AT_ONCE_MAX:
                yield
        for number, chunk in enumerate(chunks, 1):
            for location, kept_bytes in packed_places(chunk):
                self._journal.unneeded(location, kept_bytes)
            if not number % (FREED_AT_ONCE_MAX // CHUNK_COUNT_MAX):
                yield

    def let_go_of_body(self, entry: Entry) -> None:
        """Keep the body of an entry that somebody holds in memory only if it is nowhere else."""
        message = entry.message
        if message.location == NOWHERE:
            self._memory.hold(entry)
        else:
            if entry.is_resident:
                self._memory.release(entry)
            if message.references == 1:
                self._journal.forget_later(message)

    def told(self, entry: Entry) -> Message:
        """The message as a consumer is told of it: with how often it came back, where that is counted."""
        message = entry.message
        if not entry.delivery_count or not self.arguments.counts_deliveries:
            return message
        count: dict[bytes, bytes | None] = {b"x-delivery-count": write_value(entry.delivery_count)}
        assert message.body is not None
        return Message(
            message.exchange, message.routing_key, with_headers(message.properties, count), message.body
        )

    def _schedule(self) -> None:
        """Have the time looked at when the next thing is due."""
        due = min(self._due_times(), default=0)
        if due and (not self._timer_due_ms or due < self._timer_due_ms):
            self._timer_due_ms = due
            self._services.schedule(self, due)

    def _due_times(self) -> Iterator[int]:
        for level in self.levels:
            first = level.first()
            if first is not None and first.expires_ms:
                yield first.expires_ms
        if self._delayed_order:
            yield self._delayed_order[0][0]
        if self.arguments.expires_ms is not None and not self.consumers.all:
            yield self._last_used_ms + self.arguments.expires_ms
