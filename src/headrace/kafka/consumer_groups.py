"""Consumer groups at work: the coordinator's logic, its timers, and the topic that keeps what it knows.

An offset counts as committed once its record is durable, in the order of the log: first append, then wait,
then apply, then answer. The check that the committer is a living member of the present generation and the
append happen in one step, so nothing ever goes to disk for a generation that has ended.

What a group has become holds at once for all that it is asked next, so that two members are never told of the
same partition. But nobody is answered before all that the answer may rest on is durable: a crash takes back
nothing that a member has heard of.

Offsets end with their topic, or a new topic of the same name would start at them. The records that forget
them cover commits that are still on their way to the disk, and whatever a crash has left of a topic that is
gone is forgotten at the next start.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kio.schema.errors import ErrorCode

from headrace.errors import HeadraceError, StorageError
from headrace.failpoints import hit
from headrace.kafka.answer import Pending
from headrace.kafka.group_timers import GroupTimers
from headrace.kafka.groups.consumer.heartbeat import ConsumerGroupLimits
from headrace.kafka.groups.coordinator import (
    GroupChanged,
    GroupCoordinator,
    GroupGone,
    GroupLimits,
    Outcome,
)
from headrace.kafka.groups.expiry import abandoned_groups, expired_offsets
from headrace.kafka.groups.loading import GroupLoader, Resumption
from headrace.kafka.groups.offsets import (
    OffsetCommitted,
    OffsetForgotten,
    OffsetPending,
    OffsetsSettled,
    encode_offset_record,
)
from headrace.kafka.groups.persistence import records_of_change
from headrace.kafka.groups.share.heartbeat import ShareGroupLimits
from headrace.kafka.offsets_log import OffsetsLog
from headrace.kafka.settings_of_groups import SettingsOfGroups
from headrace.kafka.subscribable_topics import SubscribableTopics

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from headrace.clock import Clock
    from headrace.config import BrokerConfig
    from headrace.kafka.commit import GroupCommit
    from headrace.kafka.groups.offsets import OffsetRecord
    from headrace.kafka.groups.settings import GroupSettings
    from headrace.kafka.services import Scheduler, Timer
    from headrace.log.store import LogStore

    OnDurable = Callable[[HeadraceError | None], None]
    WrittenRecord = OffsetCommitted | OffsetForgotten | OffsetPending | OffsetsSettled

logger: Final = logging.getLogger(__name__)

Response = TypeVar("Response")
MINUTE_MS: Final = 60_000
RETRY_MS: Final = 1_000
"""When a change that could not be written is tried again."""


class ConsumerGroups:
    """Belongs to the event loop's thread."""

    def __init__(
        self,
        config: BrokerConfig,
        store: LogStore,
        clock: Clock,
        scheduler: Scheduler,
        commit: GroupCommit,
    ) -> None:
        self.coordinator = GroupCoordinator(
            GroupLimits(
                session_timeout_ms_min=config.session_timeout_ms_min,
                session_timeout_ms_max=config.session_timeout_ms_max,
                initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
                member_count_max=config.group_member_count_max,
            )
        )
        self._settings = SettingsOfGroups(config, store)
        self.topics = SubscribableTopics(store)
        self._config = config
        self._store = store
        self._clock = clock
        self._started_at = (clock.now_ms(), clock.monotonic_s())
        self._scheduler = scheduler
        self._sweeper: Timer | None = None
        self._timers = GroupTimers(scheduler, self.now_ms, self._ring)
        self._log = OffsetsLog(store, commit, size_bytes_max=config.frame_bytes_max)
        self._unapplied: deque[Sequence[WrittenRecord]] = deque()
        self._pending_on_their_way: Counter[tuple[str, str, int]] = Counter()
        """By group, topic and partition, the offsets of transactions that are not durable yet."""
        self._unsettled: dict[str, int] = {}
        """Groups of which something was written that is not durable yet, and the offset after it."""
        self._has_failed = False
        self._emptied_at_ms: dict[str, int] = {}
        self._recover()
        self._forget_lost_topics()

    def now_ms(self) -> int:
        """The time by which groups live. It never jumps."""
        return int(self._clock.monotonic_s() * 1000)

    def wall_ms(self) -> int:
        """The time that is written down."""
        return self._clock.now_ms()

    def settings_of(self, group_id: str) -> GroupSettings:
        """What holds for a group, whether there is such a group or not."""
        return self._settings.of(group_id)

    def consumer_limits_of(self, group_id: str) -> ConsumerGroupLimits:
        """What members of a group by the new protocol are held to."""
        settings = self.settings_of(group_id)
        return ConsumerGroupLimits(
            session_timeout_ms=settings.consumer_session_timeout_ms,
            heartbeat_interval_ms=settings.consumer_heartbeat_interval_ms,
            member_count_max=self._config.group_member_count_max,
        )

    def share_limits_of(self, group_id: str) -> ShareGroupLimits:
        """What members of a share group are held to."""
        settings = self.settings_of(group_id)
        return ShareGroupLimits(
            session_timeout_ms=settings.share_session_timeout_ms,
            heartbeat_interval_ms=settings.share_heartbeat_interval_ms,
            member_count_max=self._config.group_member_count_max,
        )

    def start_sweeping(self) -> None:
        """Look for offsets and groups that have outlived their use, now and then from now on."""
        delay_s = self._config.offsets_check_interval_ms / 1000
        self._sweeper = self._scheduler.call_later(delay_s, self._sweep)

    def close(self) -> None:
        """Stop all timers."""
        self._timers.close()
        if self._sweeper is not None:
            self._sweeper.cancel()

    # Membership

    def carry_out(self, outcome: Outcome) -> None:
        """Write down and apply changes of membership, set the timers, and answer whoever waited for them.

        Raises what the log raises when it can't append; then nothing has changed.
        """
        changes = [record for record in outcome.records if isinstance(record, GroupChanged | GroupGone)]
        self._write_changes(changes)
        for record in changes:
            self.coordinator.apply(record)
            self._set_timer(_group_id(record))
            self._note_emptiness(_group_id(record))
        for reply in outcome.replies:
            pending: Pending[Any] = reply.token  # type: ignore[assignment]  # our tokens are the pending answers
            # A request and its replies are about one group, and nobody is replied to unless it has changed.
            self._when_settled(_group_id(changes[0]), reply.response, pending.resolve)

    def answer(self, group_id: str, response: Response) -> Response | Pending[Response]:
        """The response, once everything that it may rest on is durable."""
        if group_id not in self._unsettled and not self._has_failed:
            return response
        pending: Pending[Response] = Pending()
        self._when_settled(group_id, response, pending.resolve)
        return pending

    # Offsets

    def write(self, records: Sequence[OffsetRecord], on_durable: OnDurable) -> None:
        """Keep records of offsets, apply them once they are durable, then call back.

        What has been written of any group before is durable by then, too. Raises what the log raises when it
        can't append.
        """
        if not records:
            self._when_all_settled(on_durable)
            return
        encoded = [encode_offset_record(record) for record in records]
        self._apply_when_durable(self._log.append(encoded, self.wall_ms()), records, on_durable)

    def write_pending(
        self,
        producer_id: int,
        producer_epoch: int,
        offsets: Sequence[OffsetCommitted],
        on_durable: OnDurable,
    ) -> None:
        """Keep offsets that count once the producer's transaction does, then call back.

        Raises what the log raises when it can't append, and InvalidProducerEpoch for a producer that has been
        fenced.
        """
        if not offsets:
            on_durable(None)
            return
        encoded = [encode_offset_record(offset) for offset in offsets]
        end_offset = self._log.append_pending(producer_id, producer_epoch, encoded, self.wall_ms())
        pending = [OffsetPending(producer_id=producer_id, committed=offset) for offset in offsets]
        self._apply_when_durable(end_offset, pending, on_durable)

    def end_transaction(
        self, producer_id: int, producer_epoch: int, *, commits: bool, on_durable: OnDurable
    ) -> None:
        """Write the marker that ends a producer's transaction, let its offsets count or not, then call back.

        Raises what the log raises when it can't append.
        """
        end_offset = self._log.append_marker(producer_id, producer_epoch, commits=commits)
        settled = OffsetsSettled(producer_id=producer_id, commits=commits)
        self._apply_when_durable(end_offset, [settled], on_durable)

    def is_stable(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether no transaction that has not ended yet may change the offset of a partition.

        What is not durable yet counts: its committer may have lost the partition to another member since, and
        that one would begin too early.
        """
        key = (group_id, topic, partition)
        return not self.coordinator.pending.is_pending(*key) and key not in self._pending_on_their_way

    def unstable_partitions(self, group_id: str) -> set[tuple[str, int]]:
        """The partitions of which a group has no stable offset."""
        on_their_way = (
            (topic, partition) for group, topic, partition in self._pending_on_their_way if group == group_id
        )
        return {*self.coordinator.pending.partitions_of(group_id), *on_their_way}

    def topics_deleted(self, topics: Collection[str], on_durable: OnDurable) -> None:
        """Forget the offsets of deleted topics, those that are not durable yet included, then call back.

        Raises what the log raises when it can't append.
        """
        applied = (record for topic in topics for record in self.coordinator.handle_topic_deleted(topic))
        on_their_way = (
            OffsetForgotten(group_id=record.group_id, topic=record.topic, partition=record.partition)
            for records in self._unapplied
            for record in map(_committed, records)
            if record is not None and record.topic in topics
        )
        self.write(tuple(dict.fromkeys((*applied, *on_their_way))), on_durable)

    # What is durable

    def _write_changes(self, changes: Sequence[GroupChanged | GroupGone]) -> None:
        """Append what is to be kept of the changes."""
        # What is kept is told by the clock that does not jump; what is appended must have the log's time.
        now_ms = self._steady_wall_ms()
        records_by_group = {
            _group_id(change): records_of_change(
                self.coordinator.group(_group_id(change)),
                change.group if isinstance(change, GroupChanged) else None,
                now_ms,
            )
            for change in changes
        }
        records = [record for each in records_by_group.values() for record in each]
        if not records:
            return
        end_offset = self._log.append(records, self.wall_ms())
        changed = [group_id for group_id, each in records_by_group.items() if each]
        self._unsettled.update(dict.fromkeys(changed, end_offset))
        self._log.when_durable(end_offset, lambda error: self._settled(changed, end_offset, error))

    def _settled(self, group_ids: Iterable[str], end_offset: int, error: HeadraceError | None) -> None:
        self._has_failed = self._has_failed or error is not None
        for group_id in group_ids:
            if self._unsettled.get(group_id) == end_offset:
                del self._unsettled[group_id]

    def _when_settled(self, group_id: str, response: Any, answer: Callable[[Any], None]) -> None:
        """Answer once all that has been written of the group is durable; if it never will be, say so."""

        def answer_after(error: HeadraceError | None) -> None:
            refused = ErrorCode.coordinator_not_available
            answer(response if error is None else replace(response, error_code=refused))

        end_offset = self._unsettled.get(group_id)
        if self._has_failed:
            answer_after(StorageError("an earlier change of a group was not written"))
        elif end_offset is None:
            answer_after(None)
        else:
            self._log.when_durable(end_offset, answer_after)

    def _when_all_settled(self, on_durable: OnDurable) -> None:
        if self._unsettled:
            self._log.when_durable(max(self._unsettled.values()), on_durable)
        else:
            on_durable(None)

    def _apply_when_durable(
        self, end_offset: int, records: Sequence[WrittenRecord], on_durable: OnDurable
    ) -> None:
        """Apply records that have been appended once they are durable, then call back."""

        def apply_then_call(error: HeadraceError | None) -> None:
            # Callers are called in the order in which they wrote.
            self._unapplied.popleft()
            self._note_pending(records, -1)
            if error is None:
                for record in records:
                    self.coordinator.apply(record)
            hit("kafka.offsets.durable")
            on_durable(error)

        self._unapplied.append(records)
        self._note_pending(records, 1)
        self._log.when_durable(end_offset, apply_then_call)

    def _note_pending(self, records: Sequence[WrittenRecord], change: int) -> None:
        on_their_way = self._pending_on_their_way
        for record in records:
            if isinstance(record, OffsetPending):
                offset = record.committed
                key = (offset.group_id, offset.topic, offset.partition)
                on_their_way[key] += change
                if not on_their_way[key]:
                    del on_their_way[key]

    # Start

    def _recover(self) -> None:
        """Let groups go on where they were: their members have a full session to say that they are there."""
        loader = GroupLoader()
        self._log.replay(self.coordinator, loader)
        resumption = Resumption(now_ms=self.now_ms(), settings_of=self.settings_of, topics=self.topics)
        self._emptied_at_ms = loader.emptied_at_ms()
        for group in loader.groups(resumption):
            self.coordinator.apply(GroupChanged(group))
            self._set_timer(group.group_id)

    def _forget_lost_topics(self) -> None:
        """A crash may have come between the end of a topic and the records that forget its offsets."""
        coordinator = self.coordinator
        committed = {topic for offsets in coordinator.offsets.values() for topic, _ in offsets}
        pending = {topic for _, topic, _ in coordinator.pending.all()}
        lost = (committed | pending).difference(self._store.topics)
        forgotten = [
            record for topic in sorted(lost) for record in self.coordinator.handle_topic_deleted(topic)
        ]
        self.write(forgotten, lambda _error: None)
        for record in forgotten:
            self.coordinator.apply(record)

    # Time

    def _set_timer(self, group_id: str) -> None:
        group = self.coordinator.group(group_id)
        self._timers.set(group_id, None if group is None else group.next_deadline_ms())

    def _ring(self, group_id: str) -> None:
        try:
            self.carry_out(self.coordinator.handle_time(group_id, self.now_ms()))
        except HeadraceError as error:
            if self._store.failed is not None:
                return  # The broker takes no more writes, and has said so; its groups stay as they are.
            logger.warning("the group %s stays as it is for now: %s", group_id, error)
            self._timers.set(group_id, self.now_ms() + RETRY_MS)
            return
        self._set_timer(group_id)

    def _note_emptiness(self, group_id: str) -> None:
        if self.coordinator.group(group_id) is not None and self.coordinator.is_empty(group_id):
            self._emptied_at_ms.setdefault(group_id, self._steady_wall_ms())
        else:
            self._emptied_at_ms.pop(group_id, None)

    def _steady_wall_ms(self) -> int:
        """The time on the wall by a clock that does not jump: nobody loses offsets when it is set wrong."""
        wall_ms, monotonic_s = self._started_at
        return wall_ms + int((self._clock.monotonic_s() - monotonic_s) * 1000)

    def _sweep(self) -> None:
        """Forget offsets and groups that have outlived their use."""
        on_their_way = (record for records in self._unapplied for record in map(_committed, records))
        busy = {record.group_id for record in on_their_way if record is not None}
        before_ms = self._steady_wall_ms() - self._config.offsets_retention_minutes * MINUTE_MS
        expired = expired_offsets(self.coordinator, self._emptied_at_ms, before_ms)
        gone = [GroupGone(group_id) for group_id in abandoned_groups(self.coordinator, busy)]
        try:
            self.write([record for record in expired if record.group_id not in busy], lambda _error: None)
            self.carry_out(Outcome(tuple(gone)))
        except HeadraceError as error:
            if self._store.failed is not None:
                return  # The broker takes no more writes, and has said so: there is nothing to sweep.
            logger.warning("offsets that nobody needs any more could not be forgotten: %s", error)
        self.start_sweeping()


def _committed(record: WrittenRecord) -> OffsetCommitted | None:
    """The offset that a record commits, now or later."""
    if isinstance(record, OffsetPending):
        return record.committed
    return record if isinstance(record, OffsetCommitted) else None


def _group_id(change: GroupChanged | GroupGone) -> str:
    return change.group.group_id if isinstance(change, GroupChanged) else change.group_id
