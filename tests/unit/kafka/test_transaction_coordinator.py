"""The coordinator's decisions, one by one and over thousands of random interleavings."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from headrace.kafka.transactions.coordinator import TransactionCoordinator, TransactionLimits
from headrace.kafka.transactions.decision import NOBODY, Decision
from headrace.kafka.transactions.records import (
    TransactionChanged,
    TransactionRecord,
    decode_transaction_record,
    encode_transaction_record,
)
from headrace.kafka.transactions.state import (
    EPOCH_MAX,
    TV1,
    TV2,
    ProducerIdentity,
    Transaction,
    TransactionState,
)

PARTITION = ("orders", 0)


class Bench:
    """One transactional id; what is decided is applied at once."""

    def __init__(self) -> None:
        self.coordinator = TransactionCoordinator(TransactionLimits(timeout_ms_max=1_000, idle_ms_max=5_000))
        self.now_ms = 1_000
        self.next_producer_id = 10

    @property
    def transaction(self) -> Transaction:
        return self.coordinator.transactions["id"]

    @property
    def state(self) -> str:
        return self.transaction.state.value

    def apply(self, decision: Decision) -> Decision:
        for record in decision.records:
            self.coordinator.apply(record)
        return decision

    def init(self, expected: ProducerIdentity | None = None, timeout_ms: int = 500) -> Decision:
        self.next_producer_id += 1
        return self.apply(
            self.coordinator.handle_init(
                "id",
                timeout_ms=timeout_ms,
                expected=expected,
                new_producer_id=self.next_producer_id,
                now_ms=self.now_ms,
            )
        )

    def add(self, producer: ProducerIdentity, version: int = TV2, *partitions: tuple[str, int]) -> Decision:
        return self.apply(
            self.coordinator.handle_add(
                "id", producer, partitions or (PARTITION,), client_version=version, now_ms=self.now_ms
            )
        )

    def end(self, producer: ProducerIdentity, version: int, *, commits: bool = True) -> Decision:
        self.next_producer_id += 1
        return self.apply(
            self.coordinator.handle_end(
                "id",
                producer,
                commits=commits,
                client_version=version,
                new_producer_id=self.next_producer_id,
                now_ms=self.now_ms,
            )
        )

    def complete(self) -> None:
        self.apply(self.coordinator.handle_complete("id", self.now_ms))

    def committed(self, version: int) -> ProducerIdentity:
        """A producer that has committed a transaction: who it was while it did."""
        producer = self.init().producer
        self.add(producer, version)
        self.end(producer, version)
        self.complete()
        return producer

    def set(self, **changes: Any) -> None:
        self.coordinator.apply(TransactionChanged(replace(self.transaction, **changes)))


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_each_producer_gets_the_next_epoch_of_one_id(bench: Bench) -> None:
    first = bench.init()
    assert (first.error_code, first.producer.epoch) == (ErrorCode.none, 0)
    assert bench.init().producer == ProducerIdentity(first.producer.producer_id, 1)


@pytest.mark.parametrize("timeout_ms", [-1, 0, 1_001])
def test_a_timeout_that_is_not_allowed_is_refused(bench: Bench, timeout_ms: int) -> None:
    assert bench.init(timeout_ms=timeout_ms).error_code is ErrorCode.invalid_transaction_timeout


def test_a_producer_that_did_not_hear_its_epoch_is_told_it_again(bench: Bench) -> None:
    first = bench.init().producer
    second = bench.init(expected=first)
    assert second.producer.epoch == 1
    assert bench.init(expected=first).producer == second.producer
    assert bench.init().producer.epoch == 2
    assert bench.init(expected=first).error_code is ErrorCode.producer_fenced
    assert bench.init(expected=second.producer).error_code is ErrorCode.producer_fenced


def test_a_new_producer_has_to_wait_until_what_was_open_is_aborted(bench: Bench) -> None:
    zombie = bench.init().producer
    bench.add(zombie)
    assert bench.init().error_code is ErrorCode.concurrent_transactions
    assert bench.state == "PrepareAbort"
    assert bench.init().error_code is ErrorCode.concurrent_transactions
    bench.complete()
    successor = bench.init()
    assert (successor.error_code, successor.producer.epoch) == (ErrorCode.none, 2)
    assert bench.add(zombie).error_code is ErrorCode.producer_fenced
    for version in (TV1, TV2):
        assert bench.end(zombie, version).error_code is ErrorCode.producer_fenced


def test_partitions_are_added_once_and_start_the_time(bench: Bench) -> None:
    producer = bench.init().producer
    assert len(bench.add(producer).records) == 1
    bench.now_ms += 100
    assert bench.add(producer).records == ()
    assert len(bench.add(producer, TV2, PARTITION, ("orders", 1)).records) == 1
    assert bench.transaction.partitions == {PARTITION, ("orders", 1)}
    assert bench.transaction.started_at_ms == 1_000


def test_only_the_present_producer_adds_partitions(bench: Bench) -> None:
    producer = bench.init().producer
    other = ProducerIdentity(producer.producer_id + 1, producer.epoch)
    newer = ProducerIdentity(producer.producer_id, producer.epoch + 1)
    assert bench.add(other).error_code is ErrorCode.invalid_producer_id_mapping
    assert bench.add(newer).error_code is ErrorCode.producer_fenced
    coordinator = bench.coordinator
    assert coordinator.check_partition("id", producer, PARTITION) is ErrorCode.transaction_abortable
    bench.add(producer)
    assert coordinator.check_partition("id", producer, PARTITION) is ErrorCode.none
    assert coordinator.check_partition("id", newer, PARTITION) is ErrorCode.producer_fenced
    assert coordinator.check_partition("no", producer, PARTITION) is ErrorCode.invalid_producer_id_mapping
    bench.end(producer, TV1)
    assert coordinator.check_partition("id", producer, PARTITION) is ErrorCode.concurrent_transactions


def test_the_first_version_of_the_protocol_keeps_the_epoch(bench: Bench) -> None:
    producer = bench.committed(TV1)
    assert (bench.state, bench.transaction.identity) == ("CompleteCommit", producer)
    bench.add(producer, TV1)
    bench.end(producer, TV1, commits=False)
    assert bench.state == "PrepareAbort"
    assert bench.end(producer, TV1, commits=False).error_code is ErrorCode.concurrent_transactions
    assert bench.end(producer, TV1, commits=True).error_code is ErrorCode.invalid_txn_state


def test_the_second_version_of_the_protocol_raises_the_epoch(bench: Bench) -> None:
    producer = bench.init().producer
    bench.add(producer)
    ended = bench.end(producer, TV2)
    assert (ended.error_code, ended.producer.epoch) == (ErrorCode.none, producer.epoch + 1)
    assert bench.end(producer, TV2).error_code is ErrorCode.concurrent_transactions
    assert bench.end(ended.producer, TV2).error_code is ErrorCode.producer_fenced
    bench.complete()
    assert bench.transaction.identity == ended.producer
    assert bench.add(producer).error_code is ErrorCode.producer_fenced


DONE, INVALID, FENCED, ENDS = "done", "invalid", "fenced", "ends"


@pytest.mark.parametrize(
    ("state", "version", "is_retry", "on_commit", "on_abort"),
    [
        ("Empty", TV1, False, INVALID, INVALID),
        ("CompleteCommit", TV1, False, DONE, INVALID),
        ("CompleteAbort", TV1, False, INVALID, DONE),
        ("Empty", TV2, True, FENCED, FENCED),
        ("CompleteCommit", TV2, True, DONE, INVALID),
        ("CompleteAbort", TV2, True, INVALID, DONE),
        ("Empty", TV2, False, INVALID, ENDS),
        ("CompleteCommit", TV2, False, INVALID, ENDS),
        ("CompleteAbort", TV2, False, INVALID, ENDS),
    ],
)
def test_what_an_end_does_where_no_transaction_is_open(
    bench: Bench, state: str, version: int, is_retry: bool, on_commit: str, on_abort: str
) -> None:
    for commits, expected in ((True, on_commit), (False, on_abort)):
        bench.init()
        bench.set(state=TransactionState(state), client_version=version, producer_epoch=7)
        before = bench.transaction
        decision = bench.end(
            ProducerIdentity(before.producer_id, 6 if is_retry else 7), version, commits=commits
        )
        outcome = {
            (ErrorCode.none, 0): DONE,
            (ErrorCode.none, 1): ENDS,
            (ErrorCode.invalid_txn_state, 0): INVALID,
            (ErrorCode.producer_fenced, 0): FENCED,
        }[decision.error_code, len(decision.records)]
        assert outcome == expected
        if outcome == ENDS:
            bench.complete()
            assert (bench.state, bench.transaction.producer_epoch) == ("CompleteAbort", 8)


def test_a_late_end_does_not_touch_the_next_transaction(bench: Bench) -> None:
    first = bench.committed(TV2)
    second = bench.transaction.identity
    bench.add(second)
    for commits in (True, False):
        assert bench.end(first, TV2, commits=commits).error_code is ErrorCode.producer_fenced
    assert bench.state == "Ongoing"


def test_a_zombie_of_the_second_version_is_not_told_that_another_ones_commit_was_its_own(
    bench: Bench,
) -> None:
    zombie = bench.init().producer
    bench.committed(TV1)
    assert bench.transaction.producer_epoch == zombie.epoch + 1
    assert bench.end(zombie, TV2).error_code is ErrorCode.producer_fenced


def test_a_time_out_aborts_and_fences(bench: Bench) -> None:
    producer = bench.init().producer
    assert bench.coordinator.handle_abort("id", new_producer_id=None, now_ms=0).records == ()
    bench.add(producer)
    bench.apply(bench.coordinator.handle_abort("id", new_producer_id=None, now_ms=0))
    assert (bench.state, bench.transaction.producer_epoch) == ("PrepareAbort", producer.epoch + 1)
    bench.complete()
    assert bench.end(producer, TV1).error_code is ErrorCode.producer_fenced
    assert bench.end(producer, TV2, commits=True).error_code is ErrorCode.invalid_txn_state
    assert bench.end(producer, TV2, commits=False).producer == bench.transaction.identity


def test_a_producer_goes_on_under_a_new_id_when_its_epochs_are_used_up(bench: Bench) -> None:
    bench.init()
    bench.set(producer_epoch=EPOCH_MAX - 1)
    producer = bench.transaction.identity
    bench.add(producer)
    ended = bench.end(producer, TV2)
    assert ended.producer.epoch == 0
    assert ended.producer.producer_id != producer.producer_id
    assert bench.transaction.identity == ProducerIdentity(producer.producer_id, EPOCH_MAX)
    bench.complete()
    assert bench.transaction.identity == ended.producer
    assert bench.end(producer, TV2).producer == ended.producer
    assert bench.end(producer, TV2, commits=False).error_code is ErrorCode.invalid_txn_state
    assert bench.init(expected=producer).producer == ended.producer


@pytest.mark.parametrize("is_open", [False, True])
def test_a_new_producer_gets_a_new_id_when_the_epochs_are_used_up(bench: Bench, is_open: bool) -> None:
    bench.init()
    bench.set(producer_epoch=EPOCH_MAX - 1)
    old = bench.transaction.identity
    if is_open:
        bench.add(old)
        bench.init()
        bench.complete()
    successor = bench.init().producer
    assert successor.producer_id != old.producer_id
    assert bench.add(old).error_code is ErrorCode.invalid_producer_id_mapping


def test_without_a_new_id_at_hand_the_client_is_told_to_ask_again(bench: Bench) -> None:
    coordinator = bench.coordinator
    fields: dict[str, Any] = {"timeout_ms": 1, "expected": None, "new_producer_id": None, "now_ms": 0}
    assert coordinator.handle_init("id", **fields).error_code is ErrorCode.concurrent_transactions
    bench.init()
    bench.set(producer_epoch=EPOCH_MAX - 1)
    bench.add(bench.transaction.identity)
    assert coordinator.handle_init("id", **fields).error_code is ErrorCode.concurrent_transactions
    aborted = coordinator.handle_abort("id", new_producer_id=None, now_ms=0)
    assert (aborted.error_code, aborted.records) == (ErrorCode.concurrent_transactions, ())


def test_an_id_that_nobody_uses_is_forgotten_unless_a_transaction_is_open(bench: Bench) -> None:
    producer = bench.init().producer
    assert bench.coordinator.handle_idle(5_999) == ()
    (forgotten,) = bench.coordinator.handle_idle(6_000)
    bench.add(producer)
    assert bench.coordinator.handle_idle(6_000) == ()
    bench.coordinator.apply(forgotten)
    assert bench.add(producer).error_code is ErrorCode.invalid_producer_id_mapping


# Random interleavings. The reference is a list of what clients did and were told, and partitions that are
# lists: it knows nothing of states, only that what one transaction wrote must end as one.


@dataclass
class Attempt:
    """One transaction of one client, as the client sees it."""

    producer: ProducerIdentity
    version: int
    wrote: set[str] = field(default_factory=set)
    decision: bool | None = None
    """Whether the client has asked to commit or to abort: it asks for nothing else after that."""
    outcome: bool | None = None
    """Whether the client was told that it has committed or aborted."""


@dataclass
class Entry:
    """What lies in a partition: a record of an attempt, or a marker."""

    producer: ProducerIdentity
    attempt: Attempt | None
    commits: bool = False


class World:
    """Clients, a state log that may lose its end in a crash, and partitions that refuse older epochs."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.coordinator = TransactionCoordinator()
        self.log: list[TransactionRecord] = []
        self.durable_count = 0
        self.waiting: list[tuple[int, Any]] = []
        self.partitions: dict[str, list[Entry]] = {"a": [], "b": []}
        self.attempts: list[Attempt] = []
        self.clients: list[ProducerIdentity | None] = [None, None]
        self.current: list[Attempt | None] = [None, None]
        self.late: list[Any] = []
        self.next_producer_id = 0
        self.to_mark: list[str] | None = None

    # The broker, in the simplest way that keeps its rules.

    def write(self, decision: Decision, then: Any = None) -> None:
        for record in decision.records:
            self.log.append(record)
            self.coordinator.apply(record)
        if then is not None:
            self.waiting.append((len(self.log), lambda: then(decision)))

    def sync(self) -> None:
        self.durable_count = len(self.log)
        due, self.waiting = self.waiting, []
        for _, then in due:
            then()

    def mark_one(self) -> None:
        """Write one marker of the outcome that is decided and durable; after the last one, complete."""
        transaction = self.coordinator.transactions.get("id")
        if transaction is None or not transaction.state.is_prepared or self.durable_count < len(self.log):
            return
        if self.to_mark is None:
            self.to_mark = sorted(topic for topic, _ in transaction.partitions)
        if self.to_mark:
            commits = transaction.state is TransactionState.PREPARE_COMMIT
            self.partitions[self.to_mark.pop(0)].append(Entry(transaction.identity, None, commits))
        else:
            self.to_mark = None
            self.write(self.coordinator.handle_complete("id", 0))

    def crash(self) -> None:
        kept = self.chance.randint(self.durable_count, len(self.log))
        self.log = self.log[:kept]
        self.durable_count = kept
        self.waiting, self.to_mark = [], None
        self.coordinator = TransactionCoordinator()
        for record in self.log:
            read_back = decode_transaction_record(*encode_transaction_record(record))
            assert read_back is not None
            self.coordinator.apply(read_back)

    def append(self, attempt: Attempt, topic: str) -> None:
        producer = attempt.producer
        if self.coordinator.check_partition("id", producer, (topic, 0)) is not ErrorCode.none:
            return
        epochs = [
            each.producer.epoch
            for each in self.partitions[topic]
            if each.producer.producer_id == producer.producer_id
        ]
        if producer.epoch >= max(epochs, default=0):
            self.partitions[topic].append(Entry(producer, attempt))
            attempt.wrote.add(topic)

    # The clients.

    def init(self, number: int) -> None:
        self.next_producer_id += 1

        def told(decision: Decision) -> None:
            if decision.error_code is ErrorCode.none:
                self.clients[number], self.current[number] = decision.producer, None

        decision = self.coordinator.handle_init(
            "id", timeout_ms=1, expected=None, new_producer_id=self.next_producer_id, now_ms=0
        )
        self.write(decision, told)

    def produce(self, number: int) -> None:
        producer = self.clients[number]
        if producer is None:
            self.init(number)
            return
        attempt = self.current[number]
        if attempt is None:
            attempt = self.current[number] = Attempt(producer, self.chance.choice([TV1, TV2]))
            self.attempts.append(attempt)
        if attempt.decision is not None:
            return
        topic = self.chance.choice("ab")
        self.produce_late(attempt, topic)
        if self.chance.random() < 0.2:
            self.late.append(lambda: self.produce_late(attempt, topic))

    def produce_late(self, attempt: Attempt, topic: str) -> None:
        if attempt.decision is not None and attempt.version == TV1:
            # A producer of the first version waits for its answers before it ends a transaction.
            return
        decision = self.coordinator.handle_add(
            "id", attempt.producer, ((topic, 0),), client_version=attempt.version, now_ms=0
        )
        if decision.error_code is ErrorCode.none:
            self.write(decision, lambda _: self.append(attempt, topic))

    def end(self, number: int) -> None:
        attempt = self.current[number]
        if attempt is None:
            return
        if attempt.decision is None:
            attempt.decision = self.chance.random() < 0.6
        commits = attempt.decision
        self.end_late(number, attempt, commits)
        if attempt.version == TV2 and self.chance.random() < 0.3:
            self.late.append(lambda: self.end_late(number, attempt, commits))

    def end_late(self, number: int, attempt: Attempt, commits: bool) -> None:
        self.next_producer_id += 1

        def told(decision: Decision) -> None:
            if decision.error_code is not ErrorCode.none:
                is_over = decision.error_code is not ErrorCode.concurrent_transactions
                if is_over and self.current[number] is attempt:
                    self.current[number] = self.clients[number] = None
                return
            assert attempt.outcome in (None, commits)
            attempt.outcome = commits
            if self.current[number] is attempt:
                self.current[number] = None
                if decision.producer != NOBODY:
                    self.clients[number] = decision.producer

        decision = self.coordinator.handle_end(
            "id",
            attempt.producer,
            commits=commits,
            client_version=attempt.version,
            new_producer_id=self.next_producer_id,
            now_ms=0,
        )
        self.write(decision, told)

    def time_out(self) -> None:
        self.next_producer_id += 1
        self.write(self.coordinator.handle_abort("id", new_producer_id=self.next_producer_id, now_ms=0))

    def step(self) -> None:
        number = self.chance.randrange(2)
        actions: list[tuple[float, Any]] = [
            (0.4, lambda: self.init(number)),
            (6, lambda: self.produce(number)),
            (3, lambda: self.end(number)),
            (6, self.sync),
            (6, self.mark_one),
            (0.5, self.crash),
            (0.3, self.time_out),
            (1, lambda: self.late and self.late.pop(self.chance.randrange(len(self.late)))()),
        ]
        weights = [weight for weight, _ in actions]
        self.chance.choices([action for _, action in actions], weights)[0]()

    def finish(self) -> None:
        """Abort what is still open, and write all markers."""
        self.sync()
        self.time_out()
        for _ in range(10):
            self.sync()
            self.mark_one()

    def fate(self, attempt: Attempt, topic: str) -> bool | None:
        """How the records of an attempt ended in a partition: by the next marker of its producer."""
        entries = self.partitions[topic]
        first = next((i for i, each in enumerate(entries) if each.attempt is attempt), None)
        if first is None:
            return None
        markers = (
            each.commits
            for each in entries[first:]
            if each.attempt is None and each.producer.producer_id == attempt.producer.producer_id
        )
        return next(markers)


def test_every_transaction_ends_as_a_whole_and_as_its_producer_was_told() -> None:
    committed = 0
    for seed in range(800):
        world = World(seed)
        for _ in range(120):
            world.step()
        world.finish()
        for attempt in world.attempts:
            fates = {world.fate(attempt, topic) for topic in attempt.wrote}
            assert len(fates) <= 1, (seed, attempt)
            if attempt.outcome is not None and fates:
                assert fates == {attempt.outcome}, (seed, attempt)
            committed += attempt.outcome is True and bool(fates)
        assert not world.coordinator.transactions or world.coordinator.transactions["id"].state.is_idle
    assert committed > 300
