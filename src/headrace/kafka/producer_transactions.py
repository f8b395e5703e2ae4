"""Transactions at work: the coordinator's logic, its timers, its topic, and the markers in partitions.

    decide ─> append ─> apply ─> the record is durable ─> answer
                                        │
                                        └─ of an outcome: ─> markers ─> they are durable ─> COMPLETE ─> answer

Decisions are applied when they are appended, so that the next one builds on them, and answered when they are
durable: nobody ever hears of anything that a crash could take back. For the record that says COMPLETE nobody
waits: if a crash takes it, the next start writes the markers again, which changes nothing, and the producer
can't have begun its next transaction, whose first record comes after it in the same partition.

EndTxn is answered when the outcome can be read, where Kafka answers before it sends the markers. So what a
producer has committed can be read by whoever it tells. A commit can be read as soon as its markers are
written, if its records are durable, as its outcome is (see transaction_markers.py); else, and with an abort
or offsets of groups, once the markers are durable. A producer that goes on before they are is not told
CONCURRENT_TRANSACTIONS: its request waits for COMPLETE. Its next transaction must not be written before that:
it would replace the outcome, which a crash that takes a marker needs.

Time-outs go by a clock that does not jump; after a start, by the time at which a transaction began.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from headrace.errors import HeadraceError
from headrace.failpoints import hit
from headrace.kafka.transactions.coordinator import TransactionCoordinator, TransactionLimits
from headrace.kafka.transactions.records import TransactionForgotten
from headrace.kafka.transactions.state import TransactionState

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from headrace.clock import Clock
    from headrace.kafka.producer_ids import ProducerIds
    from headrace.kafka.services import Scheduler, Timer
    from headrace.kafka.transaction_log import TransactionLog
    from headrace.kafka.transaction_markers import TransactionMarkers
    from headrace.kafka.transactions.decision import Decision
    from headrace.kafka.transactions.records import TransactionRecord
    from headrace.kafka.transactions.state import ProducerIdentity, TopicPartition, Transaction

    Then = Callable[[Decision | HeadraceError], None]

logger: Final = logging.getLogger(__name__)

RETRY_S: Final = 0.1
IDLE_INTERVAL_S: Final = 3600.0
"""How often transactional ids are looked through for those that nobody uses any more."""


class ProducerTransactions:
    """Belongs to the event loop's thread."""

    def __init__(
        self,
        limits: TransactionLimits,
        clock: Clock,
        scheduler: Scheduler,
        *,
        log: TransactionLog,
        markers: TransactionMarkers,
        producer_ids: ProducerIds,
    ) -> None:
        self.coordinator = TransactionCoordinator(limits)
        self.markers = markers
        self._clock = clock
        self._scheduler = scheduler
        self._log = log
        self._producer_ids = producer_ids
        self._settled_at: dict[str, int] = {}
        """By transactional id, below which offset all must be durable before anything is answered."""
        self._waiting: dict[str, int] = {}
        """By transactional id, how many wait for that."""
        self._ending: dict[str, list[Callable[[HeadraceError | None], None]]] = {}
        """By transactional id, who waits for the end of a transaction whose outcome is decided."""
        self._held: dict[str, list[Callable[[], None]]] = {}
        """By transactional id that is told of its end before COMPLETE, what it has asked for since."""
        self._deadlines_s: dict[str, float] = {}
        self._timers: dict[str, tuple[float, Timer]] = {}
        self._idle_timer: Timer | None = None
        for record in log.read():
            self.coordinator.apply(record)

    def start(self) -> None:
        """Finish what a crash has left, and begin to watch the time."""
        for transaction in tuple(self.coordinator.prepared()):
            self._ending[transaction.transactional_id] = []
            self._write_markers(transaction.transactional_id, None)
        for transaction in tuple(self.coordinator.ongoing()):
            gone_ms = self._clock.now_ms() - transaction.started_at_ms
            self._set_deadline(
                transaction, min(max(transaction.timeout_ms - gone_ms, 0), transaction.timeout_ms)
            )
        self._forget_idle()

    def close(self) -> None:
        """Stop all timers."""
        for _, timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        if self._idle_timer is not None:
            self._idle_timer.cancel()

    def init(
        self, transactional_id: str, timeout_ms: int, expected: ProducerIdentity | None, then: Then
    ) -> None:
        """Give a producer an id and an epoch, after the end of what the one before it left open."""
        if transactional_id in self._held:
            self._hold(transactional_id, self.init, timeout_ms, expected, then)
            return

        def decide(new_producer_id: int | None) -> None:
            decision = self.coordinator.handle_init(
                transactional_id,
                timeout_ms=timeout_ms,
                expected=expected,
                new_producer_id=new_producer_id,
                now_ms=self._clock.now_ms(),
            )
            self._carry_out(transactional_id, decision, then)

        self._with_producer_id(transactional_id, decide, then)

    def add(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Collection[TopicPartition],
        client_version: int,
        then: Then,
    ) -> None:
        """Let a transaction have further partitions."""
        if transactional_id in self._held:
            self._hold(transactional_id, self.add, producer, partitions, client_version, then)
            return
        decision = self.coordinator.handle_add(
            transactional_id,
            producer,
            partitions,
            client_version=client_version,
            now_ms=self._clock.now_ms(),
        )

        def on_added(outcome: Decision | HeadraceError) -> None:
            hit("kafka.transaction.added")
            then(outcome)

        self._carry_out(transactional_id, decision, on_added)

    def end(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        *,
        commits: bool,
        client_version: int,
        then: Then,
    ) -> None:
        """Commit or abort, and call back when it can be seen in all partitions."""
        if transactional_id in self._held:
            end = partial(self.end, commits=commits, client_version=client_version, then=then)
            self._hold(transactional_id, end, producer)
            return

        def decide(new_producer_id: int | None) -> None:
            decision = self.coordinator.handle_end(
                transactional_id,
                producer,
                commits=commits,
                client_version=client_version,
                new_producer_id=new_producer_id,
                now_ms=self._clock.now_ms(),
            )
            self._carry_out(transactional_id, decision, then)

        self._with_producer_id(transactional_id, decide, then)

    def abort(self, transactional_id: str, then: Then) -> None:
        """End an ongoing transaction without its producer, which is fenced."""

        def decide(new_producer_id: int | None) -> None:
            decision = self.coordinator.handle_abort(
                transactional_id, new_producer_id=new_producer_id, now_ms=self._clock.now_ms()
            )
            self._carry_out(transactional_id, decision, then)

        self._with_producer_id(transactional_id, decide, then)

    def when_settled(self, transactional_id: str, then: Callable[[HeadraceError | None], None]) -> None:
        """Call back, in the order of the calls, once all that is known about the id is durable."""
        end_offset = self._settled_at.get(transactional_id, 0)
        waiting = self._waiting.get(transactional_id, 0)
        if not waiting and self._log.is_durable(end_offset):
            # Those who wait for others need not be waited for.
            then(None)
            return
        self._waiting[transactional_id] = waiting + 1

        def on_durable(error: HeadraceError | None) -> None:
            self._waiting[transactional_id] -= 1
            if not self._waiting[transactional_id]:
                del self._waiting[transactional_id]
            then(error)

        self._log.when_durable(end_offset, on_durable)

    def _with_producer_id(
        self, transactional_id: str, decide: Callable[[int | None], None], then: Then
    ) -> None:
        if not self.coordinator.needs_producer_id(transactional_id):
            decide(None)
            return

        def on_allocated(outcome: int | HeadraceError) -> None:
            if isinstance(outcome, HeadraceError):
                then(outcome)
            else:
                decide(outcome)

        self._producer_ids.allocate(on_allocated)

    def _carry_out(self, transactional_id: str, decision: Decision, then: Then) -> None:
        def on_end(error: HeadraceError | None) -> None:
            then(decision if error is None else error)

        try:
            self._write(decision.records)
            if decision.records and transactional_id in self._ending:
                self._ending[transactional_id].append(on_end)
            else:
                self.when_settled(transactional_id, on_end)
        except HeadraceError as error:
            then(error)

    def _write(self, records: Sequence[TransactionRecord]) -> None:
        if not records:
            return
        end_offset = self._log.append(records)
        for record in records:
            self.coordinator.apply(record)
            if isinstance(record, TransactionForgotten):
                self._settled_at.pop(record.transactional_id, None)
            else:
                self._follow(record.transaction, end_offset)

    def _follow(self, transaction: Transaction, end_offset: int) -> None:
        """Do what follows from a transaction's new state."""
        transactional_id, state = transaction.transactional_id, transaction.state
        if state not in {TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT}:
            self._settled_at[transactional_id] = end_offset
        if state is not TransactionState.ONGOING:
            self._deadlines_s.pop(transactional_id, None)
        elif transactional_id not in self._deadlines_s:
            self._set_deadline(transaction, transaction.timeout_ms)
        if state.is_prepared:
            self._ending[transactional_id] = []
            self._log.when_durable(end_offset, partial(self._write_markers, transactional_id))

    def _write_markers(self, transactional_id: str, error: HeadraceError | None) -> None:
        if error is None:
            hit("kafka.transaction.prepared")
            transaction = self.coordinator.transactions[transactional_id]
            self.markers.write(
                transaction,
                partial(self._tell_settled, transactional_id),
                partial(self._complete, transactional_id),
            )
        else:
            self._tell_ended(transactional_id, error)

    def _complete(self, transactional_id: str, error: HeadraceError | None) -> None:
        if error is None:
            hit("kafka.transaction.marked")
            decision = self.coordinator.handle_complete(transactional_id, self._clock.now_ms())
            try:
                self._write(decision.records)
            except HeadraceError as failure:
                if not self._log.has_failed:
                    again = partial(self._complete, transactional_id, None)
                    self._scheduler.call_later(RETRY_S, again)
                    return
                error = failure
        hit("kafka.transaction.completed")
        self._tell_ended(transactional_id, error)
        for held in self._held.pop(transactional_id, ()):
            held()

    def _hold(self, transactional_id: str, request: Callable[..., None], *arguments: object) -> None:
        """Make the request again once the transaction before it is complete."""
        self._held[transactional_id].append(partial(request, transactional_id, *arguments))

    def _tell_settled(self, transactional_id: str) -> None:
        self._held[transactional_id] = []
        self._tell_ended(transactional_id, None)

    def _tell_ended(self, transactional_id: str, error: HeadraceError | None) -> None:
        for waiter in self._ending.pop(transactional_id, ()):
            waiter(error)

    def _set_deadline(self, transaction: Transaction, after_ms: int) -> None:
        deadline_s = self._clock.monotonic_s() + after_ms / 1000
        self._deadlines_s[transaction.transactional_id] = deadline_s
        self._set_timer(transaction.transactional_id, deadline_s)

    def _set_timer(self, transactional_id: str, at_s: float) -> None:
        running = self._timers.get(transactional_id)
        # A timer that rings too early does no harm, and most transactions end long before it does.
        if running is not None and running[0] <= at_s:
            return
        if running is not None:
            running[1].cancel()
        delay_s = max(at_s - self._clock.monotonic_s(), 0)
        timer = self._scheduler.call_later(delay_s, partial(self._ring, transactional_id))
        self._timers[transactional_id] = (at_s, timer)

    def _ring(self, transactional_id: str) -> None:
        self._timers.pop(transactional_id, None)
        deadline_s = self._deadlines_s.get(transactional_id)
        if deadline_s is None:
            return
        if self._clock.monotonic_s() < deadline_s:
            self._set_timer(transactional_id, deadline_s)
            return
        transaction = self.coordinator.transactions[transactional_id]
        logger.warning(
            "the transaction of %r is aborted: it has taken longer than its %d ms; its producer %d is fenced",
            transactional_id,
            transaction.timeout_ms,
            transaction.producer_id,
        )
        self.abort(transactional_id, partial(self._on_aborted, transactional_id))

    def _on_aborted(self, transactional_id: str, outcome: Decision | HeadraceError) -> None:
        if isinstance(outcome, HeadraceError):
            logger.error("the transaction of %r could not be aborted: %s", transactional_id, outcome)
            if not self._log.has_failed and transactional_id in self._deadlines_s:
                self._set_timer(transactional_id, self._clock.monotonic_s() + RETRY_S)

    def _forget_idle(self) -> None:
        try:
            self._write(self.coordinator.handle_idle(self._clock.now_ms()))
        except HeadraceError as error:
            logger.warning("transactional ids that nobody uses could not be forgotten: %s", error)
        self._idle_timer = self._scheduler.call_later(IDLE_INTERVAL_S, self._forget_idle)
