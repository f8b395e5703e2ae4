"""Share groups' positions at work: what became of which record, the locks, and the topic that keeps it.

What members say is applied when it is appended, so that the next request builds on it, and answered when it
is durable: what was acknowledged stays so, whatever crashes. What is merely given out is not written: after a
restart it is available again, and so is what a lock had been lost for a moment ago.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from headrace.errors import HeadraceError
from headrace.failpoints import hit
from headrace.kafka.answer import Pending
from headrace.kafka.group_timers import GroupTimers
from headrace.kafka.share.deliveries import Deliveries, Patience
from headrace.kafka.share.records import ShareKey, Stored
from headrace.kafka.share.sessions import ShareSessions
from headrace.kafka.share.state_log import ShareStateLog

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from uuid import UUID

    from headrace.kafka.services import Services
    from headrace.kafka.share.sessions import ShareSession
    from headrace.log.partition import PartitionLog

    Callback = Callable[[], None]

logger: Final = logging.getLogger(__name__)

Response = TypeVar("Response")
EPOCH_MAX: Final = 2**31 - 1
"""Snapshots are counted up to here, then from 0 again."""
READ_COMMITTED: Final = "read_committed"
WAKES_AFTER_END_S: Final = 0.25
"""How long after the end of a session those who wait are told of what its member had."""
RETRY_MS: Final = 1_000
"""When a change that could not be written is tried again."""


@dataclass(slots=True, eq=False)
class Waiting:
    """Those who wait for a partition, in the order in which they came."""

    on_records: Callback
    """What is called when the log can be read further."""
    callbacks: dict[Callback, None] = field(default_factory=dict)
    log: PartitionLog | None = None


class SharePositions:
    """Belongs to the event loop's thread."""

    def __init__(self, services: Services) -> None:
        self.sessions = ShareSessions(services.config.share_session_count_max)
        self._store = services.store
        self._clock = services.clock
        self._scheduler = services.scheduler
        self._commit = services.commit
        self._watchers = services.watchers
        self._settings_of = services.groups.settings_of
        self._counters = services.counters
        self._log = ShareStateLog(services.store, services.clock, services.commit)
        self._timers = GroupTimers[ShareKey](services.scheduler, self.now_ms, self._ring)
        self._stored: dict[ShareKey, Stored] = {}
        """All positions, as they are now, with what belongs to them on disk."""
        self._by_group: defaultdict[str, dict[ShareKey, None]] = defaultdict(dict)
        self._waiting: dict[ShareKey, Waiting] = {}
        self._is_closed = False
        self._unsettled_offset = 0
        """Below which offset all must be durable before anybody is answered."""
        self._recover()

    def now_ms(self) -> int:
        """The time by which locks live. It never jumps."""
        return int(self._clock.monotonic_s() * 1000)

    def get(self, key: ShareKey) -> Deliveries | None:
        """What is known of a partition in a group."""
        stored = self._stored.get(key)
        return None if stored is None else stored.deliveries

    def of_group(self, group_id: str) -> Mapping[ShareKey, Deliveries]:
        """What is known of a group's partitions."""
        keys = self._by_group.get(group_id, {})
        return {key: deliveries for key in keys if (deliveries := self.get(key)) is not None}

    def take(self, changes: Mapping[ShareKey, Deliveries]) -> None:
        """Note what was given out, which is not written down."""
        self._apply([Stored(key, deliveries, *self._written(key)) for key, deliveries in changes.items()])

    def skip(self, changes: Mapping[ShareKey, Deliveries]) -> None:
        """Note what nobody is to see: there is nothing in it to tell those of who wait."""
        for key, deliveries in changes.items():
            self._set(Stored(key, deliveries, *self._written(key)))

    def write(
        self, changes: Mapping[ShareKey, Deliveries | None], *, wakes_after_s: float | None = None
    ) -> None:
        """Write changes down, and apply them; one to None ends a position.

        Raises what the log raises when it can't append; then nothing has changed. Whoever is answered has to
        wait until they are durable: see `answer`.
        """
        if not changes:
            return
        stored = []
        for key, deliveries in changes.items():
            epoch, created_at_ms = self._written(key)
            next_epoch = (epoch + 1) & EPOCH_MAX
            stored.append(Stored(key, deliveries, next_epoch, created_at_ms or self._clock.now_ms()))
        self._unsettled_offset = self._log.append(stored)
        self._apply(stored, wakes_after_s)

    def when_durable(self, then: Callable[[HeadraceError | None], None]) -> None:
        """Call back once all that has been written is durable."""

        def on_durable(error: HeadraceError | None) -> None:
            hit("kafka.share.durable")
            then(error)

        self._log.when_durable(self._unsettled_offset, on_durable)

    def answer(self, respond: Callable[[HeadraceError | None], Response]) -> Pending[Response]:
        """The response, once all that it may rest on is durable; to the error, if that will never be."""
        pending: Pending[Response] = Pending()
        self.when_durable(lambda error: pending.resolve(respond(error)))
        return pending

    def watch(self, keys: Iterable[ShareKey], callback: Callback) -> None:
        """Call back whenever a partition may have something to give out, until unwatched.

        Those who wait for a partition are called in the order in which they came, as long as there is
        anything: one record is no reason to have hundreds of members look.
        """
        for key in keys:
            waiting = self._waiting.get(key)
            if waiting is None:
                waiting = self._waiting[key] = Waiting(partial(self._notify, key))
                if (log := self._partition(key)) is not None:
                    self._watchers.watch([log], waiting.on_records)
                    waiting.log = log
            waiting.callbacks[callback] = None

    def unwatch(self, keys: Iterable[ShareKey], callback: Callback) -> None:
        """Stop calling back."""
        for key in keys:
            waiting = self._waiting.get(key)
            if waiting is None:
                continue
            waiting.callbacks.pop(callback, None)
            if not waiting.callbacks:
                del self._waiting[key]
                if waiting.log is not None:
                    self._watchers.unwatch([waiting.log], waiting.on_records)

    def readable_below(self, key: ShareKey, log: PartitionLog) -> int:
        """The offset below which a group may read a partition."""
        high_watermark = self._commit.high_watermark(log)
        if self._settings_of(key.group_id).share_isolation_level != READ_COMMITTED:
            return high_watermark
        return log.last_stable_offset(high_watermark)

    # Ends

    def end_session(self, session: ShareSession) -> None:
        """End a member's session: what it has goes to others."""
        self._end_sessions([session])

    def connection_lost(self, connection: str) -> None:
        """End the sessions of a connection that is no more."""
        self._end_sessions(self.sessions.of_connection(connection))

    def topics_deleted(self, topic_ids: Collection[UUID]) -> None:
        """Forget positions in topics that are no more. Raises what the log raises when it can't append."""
        self.write({key: None for key in self._stored if key.topic_id in topic_ids})

    def group_deleted(self, group_id: str) -> None:
        """Forget a group's positions. Raises what the log raises when it can't append."""
        self.write(dict.fromkeys(tuple(self._by_group.get(group_id, ()))))

    def close(self) -> None:
        """Stop all timers, and give nothing out any more: those whose connections end now have not failed."""
        self._is_closed = True
        self._timers.close()

    # Inside

    def _end_sessions(self, sessions: Sequence[ShareSession]) -> None:
        """End all of them; others are told a moment later of what their members had.

        Members of one process end together. Those that wait must not be given what the first one had, only
        to end the next moment: each time would count as a try.
        """
        changes: dict[ShareKey, Deliveries] = {}
        for session in sessions:
            self.sessions.close(session)
            group_id, member_id = session.key
            if self._is_closed:
                continue
            for key, before in self.of_group(group_id).items():
                deliveries = changes.get(key, before)
                if any(run.member_id == member_id for run in deliveries.runs):
                    changes[key] = deliveries.give_back(member_id, self._patience(group_id))
        try:
            self.write(changes, wakes_after_s=WAKES_AFTER_END_S)
        except HeadraceError as error:
            # They come back when their locks end.
            logger.warning("records of members of share groups that have gone stay locked: %s", error)

    def _partition(self, key: ShareKey) -> PartitionLog | None:
        topic = self._store.topics_by_id.get(key.topic_id)
        if topic is None or not 0 <= key.partition < len(topic.partitions):
            return None
        return topic.partitions[key.partition]

    def _patience(self, group_id: str) -> Patience:
        return Patience(delivery_count_max=self._settings_of(group_id).share_delivery_count_limit)

    def _written(self, key: ShareKey) -> tuple[int, int]:
        stored = self._stored.get(key)
        return (0, 0) if stored is None else (stored.snapshot_epoch, stored.created_at_ms)

    def _apply(self, changes: Sequence[Stored], wakes_after_s: float | None = None) -> None:
        """Apply all, and only then tell those who wait: what they do rests on all of it."""
        waking = [each.key for each in changes if _may_have_more(self.get(each.key), each.deliveries)]
        for each in changes:
            self._set(each)
        for key in waking:
            if wakes_after_s is None:
                self._notify(key)
            elif key in self._waiting:
                self._scheduler.call_later(wakes_after_s, partial(self._notify, key))

    def _set(self, stored: Stored) -> None:
        key, after = stored.key, stored.deliveries
        if after is None:
            self._stored.pop(key, None)
            self._by_group[key.group_id].pop(key, None)
            if not self._by_group[key.group_id]:
                del self._by_group[key.group_id]
        else:
            self._note_given_up(key, self.get(key), after)
            self._stored[key] = stored
            self._by_group[key.group_id][key] = None
        self._timers.set(key, None if after is None else after.next_deadline_ms)

    def _note_given_up(self, key: ShareKey, before: Deliveries | None, after: Deliveries) -> None:
        count = after.given_up_count - (0 if before is None else before.given_up_count)
        if count <= 0:
            return
        self._counters.share_given_up += count
        topic = self._store.topics_by_id.get(key.topic_id)
        logger.warning(
            "the share group %s gives up %d records of %s-%d: they were delivered as often as they may be",
            key.group_id,
            count,
            key.topic_id if topic is None else topic.name,
            key.partition,
        )

    def _notify(self, key: ShareKey) -> None:
        """Call those who wait for a partition, one after the other, as long as it has anything."""
        waiting = self._waiting.get(key)
        for callback in () if waiting is None else tuple(waiting.callbacks):
            if self._is_closed or not self._has_any(key):
                return
            try:
                callback()
            except Exception:
                logger.exception("a share fetch that waited failed in an unexpected way")

    def _has_any(self, key: ShareKey) -> bool:
        """Whether a partition may have something to give out; one that is no more has to be told."""
        deliveries, log = self.get(key), self._partition(key)
        if deliveries is None or log is None:
            return True
        if not deliveries.has_room(self._settings_of(key.group_id).share_partition_max_record_locks):
            return False
        return deliveries.next_offset < self.readable_below(key, log)

    def _ring(self, key: ShareKey) -> None:
        """Take back what has been locked for too long."""
        deliveries = self.get(key)
        if deliveries is None:
            return
        after = deliveries.expire(self.now_ms(), self._patience(key.group_id))
        if after == deliveries:
            self._timers.set(key, deliveries.next_deadline_ms)
            return
        try:
            self.write({key: after})
        except HeadraceError as error:
            if self._store.failed is not None:
                return  # The broker takes no more writes, and has said so.
            logger.warning("records of the share group %s stay locked for now: %s", key.group_id, error)
            self._timers.set(key, self.now_ms() + RETRY_MS)

    def _recover(self) -> None:
        for stored in self._log.read():
            if stored.deliveries is None:
                self._stored.pop(stored.key, None)
            else:
                self._stored[stored.key] = stored
        for key, stored in self._stored.items():
            self._by_group[key.group_id][key] = None
            self._stored[key] = self._within_log(stored)
        try:
            # A crash may have come between the end of a topic and the records that forget positions in it.
            self.topics_deleted({key.topic_id for key in self._stored} - self._store.topics_by_id.keys())
        except HeadraceError as error:
            logger.warning("positions of share groups in deleted topics are not forgotten yet: %s", error)

    def _within_log(self, stored: Stored) -> Stored:
        """The position, if the log still reaches as far: with durability `os` a power cut may have cut it."""
        log, deliveries = self._partition(stored.key), stored.deliveries
        if log is None or deliveries is None:
            return stored
        within = deliveries.retreat(log.end_offset)
        if within is not deliveries:
            logger.warning(
                "the share group %s goes back to offset %d of partition %d of %s, where the log ends",
                stored.key.group_id,
                within.end_offset,
                stored.key.partition,
                log.directory.name,
            )
        return stored._replace(deliveries=within)


def _may_have_more(before: Deliveries | None, after: Deliveries | None) -> bool:
    """Whether those who wait for records should look again: also where none will ever come."""
    if after is None or before is None:
        return after is None
    return after.start_offset > before.start_offset or after.available_count > before.available_count
