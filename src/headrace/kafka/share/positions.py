"""Share groups' positions at work: what became of which record, the locks, and the topic that keeps it.

What members say is applied when it is appended, so that the next request builds on it, and answered when it
is durable: what was acknowledged stays so, whatever crashes. What is merely given out is not written: after a
restart it is available again, and so is what a lock had been lost for a moment ago. Positions are read back
when they are first needed.
"""

from __future__ import annotations

import logging
from collections import defaultdict
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

    from headrace.clock import Clock
    from headrace.kafka.commit import GroupCommit
    from headrace.kafka.groups.settings import GroupSettings
    from headrace.kafka.metrics.counters import Counters
    from headrace.kafka.services import Scheduler
    from headrace.kafka.share.sessions import ShareSession
    from headrace.log.store import LogStore

    Callback = Callable[[], None]

logger: Final = logging.getLogger(__name__)

Response = TypeVar("Response")
EPOCH_MAX: Final = 2**31 - 1
"""Snapshots are counted up to here, then from 0 again."""
RETRY_MS: Final = 1_000
"""When a change that could not be written is tried again."""


class SharePositions:
    """Belongs to the event loop's thread."""

    def __init__(
        self,
        store: LogStore,
        clock: Clock,
        scheduler: Scheduler,
        commit: GroupCommit,
        *,
        settings_of: Callable[[str], GroupSettings],
        counters: Counters,
        session_count_max: int,
    ) -> None:
        self.sessions = ShareSessions(session_count_max)
        self._store = store
        self._clock = clock
        self._settings_of = settings_of
        self._counters = counters
        self._log = ShareStateLog(store, clock, commit)
        self._timers = GroupTimers[ShareKey](scheduler, self.now_ms, self._ring)
        self._stored: dict[ShareKey, Stored] = {}
        """All positions, as they are now, with what belongs to them on disk."""
        self._by_group: defaultdict[str, dict[ShareKey, None]] = defaultdict(dict)
        self._waiting: dict[ShareKey, dict[Callback, None]] = {}
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

    def write(self, changes: Mapping[ShareKey, Deliveries | None]) -> None:
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
        self._apply(stored)

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
        """Call back whenever records of a partition have come back, until unwatched."""
        for key in keys:
            self._waiting.setdefault(key, {})[callback] = None

    def unwatch(self, keys: Iterable[ShareKey], callback: Callback) -> None:
        """Stop calling back."""
        for key in keys:
            callbacks = self._waiting.get(key, {})
            callbacks.pop(callback, None)
            if not callbacks:
                self._waiting.pop(key, None)

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
        """Stop all timers."""
        self._timers.close()

    # Inside

    def _end_sessions(self, sessions: Sequence[ShareSession]) -> None:
        """End all of them, and only then let others have what their members had."""
        changes: dict[ShareKey, Deliveries] = {}
        for session in sessions:
            self.sessions.close(session)
            group_id, member_id = session.key
            for key, before in self.of_group(group_id).items():
                deliveries = changes.get(key, before)
                if any(run.member_id == member_id for run in deliveries.runs):
                    changes[key] = deliveries.give_back(member_id, self._patience(group_id))
        try:
            self.write(changes)
        except HeadraceError as error:
            # They come back when their locks end.
            logger.warning("records of members of share groups that have gone stay locked: %s", error)

    def _patience(self, group_id: str) -> Patience:
        return Patience(delivery_count_max=self._settings_of(group_id).share_delivery_count_limit)

    def _written(self, key: ShareKey) -> tuple[int, int]:
        stored = self._stored.get(key)
        return (0, 0) if stored is None else (stored.snapshot_epoch, stored.created_at_ms)

    def _apply(self, changes: Sequence[Stored]) -> None:
        """Apply all, and only then tell those who wait: what they do rests on all of it."""
        waking = [each.key for each in changes if _may_have_more(self.get(each.key), each.deliveries)]
        for each in changes:
            self._set(each)
        for key in waking:
            self._notify(key)

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
        for callback in tuple(self._waiting.get(key, ())):
            try:
                callback()
            except Exception:
                logger.exception("a share fetch that waited failed in an unexpected way")

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
        for key in self._stored:
            self._by_group[key.group_id][key] = None
        # A crash may have come between the end of a topic and the records that forget positions in it.
        self.topics_deleted({key.topic_id for key in self._stored} - self._store.topics_by_id.keys())


def _may_have_more(before: Deliveries | None, after: Deliveries | None) -> bool:
    """Whether those who wait for records should look again: also where none will ever come."""
    if after is None or before is None:
        return after is None
    return after.next_offset < before.next_offset or after.start_offset > before.start_offset
