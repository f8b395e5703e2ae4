"""The anomaly checker: clean histories pass, and each anomaly that is planted in one is found and named."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from headrace.testing.anomalies import AnomalyKind, find_anomalies
from headrace.testing.history import (
    Assignment,
    Deletion,
    Drained,
    History,
    OffsetCommit,
    OffsetFetch,
    Operation,
    Outcome,
    Poll,
    Polled,
    ProducerInit,
    Send,
    TopicPartition,
    TransactionEnd,
)

OK, FAILED, UNKNOWN = Outcome.OK, Outcome.FAILED, Outcome.UNKNOWN
PARTITIONS = (TopicPartition("orders", 0), TopicPartition("orders", 1))
STEPS = 120


class IdealLog:
    """Clients of a log that does everything right, though some never hear of it."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.history = History()
        self.logs: dict[TopicPartition, list[tuple[Any, Any]]] = {each: [] for each in PARTITIONS}
        """By partition, a value, None for a marker, and its transaction."""
        self.ended: dict[Any, bool] = {}
        self.open: dict[str, str] = {}
        self.positions: dict[tuple[str, TopicPartition], int] = {}
        self.committed: int | None = None
        self.generation = 0
        self.count = 0
        for number in range(2):
            self.add(ProducerInit, process=f"txn-{number}", transactional_id=f"id-{number}")

    def run(self) -> tuple[Operation, ...]:
        actions = (self.send, self.send, self.send_in_transaction, self.end, self.poll, self.work_in_group)
        for _ in range(STEPS):
            self.random.choice(actions)()
        for process in tuple(self.open):
            self.end(process)
        for process, is_read_committed in (("last", False), ("last-committed", True)):
            for partition in PARTITIONS:
                self.read(process, partition, len(self.logs[partition]) + 1, is_read_committed)
            self.add(Drained, process=process, partitions=PARTITIONS, is_read_committed=is_read_committed)
        return self.history.operations

    def add(self, kind: Any, **fields: Any) -> None:
        invoked = fields.pop("invoked", None) or self.history.tick()
        self.history.add(kind(invoked=invoked, completed=self.history.tick(), **fields))

    def send(self, process: str = "plain", transaction: str | None = None) -> None:
        self.count += 1
        values = tuple(f"v{self.count}.{number}" for number in range(self.random.randint(1, 3)))
        partition = self.random.choice(PARTITIONS)
        outcome = OK if transaction else self.random.choice((OK, OK, FAILED, UNKNOWN))
        offset = len(self.logs[partition])
        if outcome is OK or (outcome is UNKNOWN and self.random.random() < 0.5):
            self.logs[partition] += [(value, transaction) for value in values]
        self.add(
            Send,
            process=process,
            outcome=outcome,
            partition=partition,
            values=values,
            offset=offset if outcome is OK else None,
            transaction=transaction,
        )

    def send_in_transaction(self) -> None:
        process = self.random.choice(("txn-0", "txn-1"))
        self.count += 1
        self.send(process, self.open.setdefault(process, f"transaction {self.count}"))

    def end(self, process: str | None = None) -> None:
        process = process or (self.random.choice(sorted(self.open)) if self.open else None)
        if process is None:
            return
        transaction = self.open.pop(process)
        commits = self.random.random() < 0.6
        outcome = self.random.choice((OK, OK, UNKNOWN))
        self.ended[transaction] = commits and (outcome is OK or self.random.random() < 0.5)
        for log in self.logs.values():
            if any(each[1] == transaction for each in log):
                log.append((None, transaction))
        self.add(
            TransactionEnd,
            process=process,
            outcome=outcome,
            transaction=transaction,
            transactional_id=process.replace("txn", "id"),
            commits=commits,
        )

    def poll(self) -> None:
        process = self.random.choice(("reader", "committed-reader"))
        partition = self.random.choice(PARTITIONS)
        self.read(process, partition, self.random.randint(1, 9), process == "committed-reader")

    def read(self, process: str, partition: TopicPartition, count: int, is_read_committed: bool) -> None:
        seeks: tuple[tuple[TopicPartition, int], ...] = ()
        if self.random.random() < 0.2:
            seeks = ((partition, self.random.randrange(len(self.logs[partition]) + 1)),)
        if process.startswith("last"):
            seeks = ((partition, 0),)
        position = self.positions.get((process, partition), 0) if not seeks else seeks[0][1]
        records = []
        for value, transaction in self.logs[partition][position : position + count]:
            if is_read_committed and transaction in self.open.values():
                break
            if value is not None and (not is_read_committed or self.ended.get(transaction, True)):
                records.append(Polled(partition, position, value))
            position += 1
        self.positions[process, partition] = position
        self.add(
            Poll,
            process=process,
            records=tuple(records),
            is_read_committed=is_read_committed,
            positions=seeks,
        )

    def work_in_group(self) -> None:
        member = f"member-{self.generation % 3}"
        if self.generation == 0 or self.random.random() < 0.3:
            self.generation += 1
            member = f"member-{self.generation % 3}"
            self.add(
                Assignment,
                process=member,
                group="g",
                generation=self.generation,
                partitions=PARTITIONS[:1],
            )
            fetched: Any = {"process": member, "group": "g", "partition": PARTITIONS[0]}
            self.add(OffsetFetch, **fetched, offset=self.committed)
        offset = (self.committed or 0) + self.random.randint(1, 4)
        outcome = self.random.choice((OK, OK, FAILED, UNKNOWN))
        if outcome is OK or (outcome is UNKNOWN and self.random.random() < 0.5):
            self.committed = offset
        self.add(
            OffsetCommit,
            process=member,
            outcome=outcome,
            group="g",
            partition=PARTITIONS[0],
            offset=offset,
            generation=self.generation,
        )


@pytest.mark.parametrize("seed", range(200))
def test_a_clean_history_passes(seed: int) -> None:
    assert find_anomalies(IdealLog(seed).run()) == []


def kinds(operations: Any, **options: Any) -> set[AnomalyKind]:
    return {anomaly.kind for anomaly in find_anomalies(operations, **options)}


def sends(operations: Any, random: Random, **fields: Any) -> Send:
    """A send of the history that fits."""
    fitting = [
        each
        for each in operations
        if isinstance(each, Send) and all(getattr(each, name) == value for name, value in fields.items())
    ]
    return random.choice(fitting)


def without(operations: Any, value: Any) -> list[Operation]:
    """The history in which nobody was given a value."""
    return [
        replace(each, records=tuple(record for record in each.records if record.value != value))
        if isinstance(each, Poll)
        else each
        for each in operations
    ]


def later(operations: Any) -> Any:
    """The time after all others."""
    last = max(each.completed for each in operations)
    return {"invoked": last + 1, "completed": last + 2}


def read_at_the_end(operations: Any, *records: Polled, **fields: Any) -> list[Operation]:
    poll: Any = {"process": "late-reader", "records": records, **later(operations), **fields}
    return [*operations, Poll(**poll)]


SEEDS = pytest.mark.parametrize("seed", range(10))


@SEEDS
def test_an_acknowledged_record_that_nobody_can_read_is_a_lost_write(seed: int) -> None:
    operations = IdealLog(seed).run()
    send = sends(operations, Random(seed), process="plain", outcome=OK)
    assert kinds(without(operations, send.values[0])) >= {AnomalyKind.LOST_WRITE}


def test_an_acknowledged_record_without_a_reader_is_unseen_but_lost_once_somebody_has_read_further() -> None:
    partition = PARTITIONS[0]
    first = send_of("a", offset=0, invoked=1)
    second = send_of("b", offset=1, invoked=3)
    assert kinds([first, second]) == {AnomalyKind.UNSEEN}
    poll = poll_of(Polled(partition, 1, "b"), invoked=5)
    assert kinds([first, second, poll]) == {AnomalyKind.LOST_WRITE}


@SEEDS
def test_a_record_that_was_read_and_is_gone_is_unseen_by_who_reads_everything(seed: int) -> None:
    operations = IdealLog(seed).run()
    send = sends(operations, Random(seed), process="plain", outcome=OK)
    read: Any = read_at_the_end(without(operations, send.values[0]))
    early = Polled(send.partition, send.offset or 0, send.values[0])
    read.insert(0, Poll(process="early-reader", invoked=0, completed=0, records=(early,)))
    assert kinds(read) >= {AnomalyKind.UNSEEN}


@SEEDS
def test_a_record_at_two_offsets_is_a_duplicate_unless_its_producer_is_not_idempotent(seed: int) -> None:
    operations = IdealLog(seed).run()
    send = sends(operations, Random(seed), outcome=OK, process="plain")
    again = Polled(send.partition, 10_000, send.values[0])
    assert kinds(read_at_the_end(operations, again)) == {AnomalyKind.DUPLICATE}
    plain = [replace(each, is_idempotent=False) if each is send else each for each in operations]
    assert kinds(read_at_the_end(plain, again)) == set()


@SEEDS
def test_two_values_at_one_offset_are_inconsistent(seed: int) -> None:
    operations = IdealLog(seed).run()
    send = sends(operations, Random(seed), outcome=OK)
    other = send_of("other", outcome=UNKNOWN, partition=send.partition, offset=None)
    read = read_at_the_end([other, *operations], Polled(send.partition, send.offset or 0, "other"))
    assert kinds(read) >= {AnomalyKind.INCONSISTENT_OFFSETS}


@SEEDS
def test_reading_what_was_refused_is_an_aborted_read(seed: int) -> None:
    operations = IdealLog(seed).run()
    send = sends(operations, Random(seed), outcome=FAILED)
    read = read_at_the_end(operations, Polled(send.partition, 10_000, send.values[0]))
    assert kinds(read) >= {AnomalyKind.ABORTED_READ}


@SEEDS
@pytest.mark.parametrize("ending", ["abort", "refused commit", "none"])
def test_reading_what_never_committed_is_an_aborted_read(seed: int, ending: str) -> None:
    operations = IdealLog(seed).run()
    send = sends(operations, Random(seed), outcome=OK, process="txn-0")
    ends: dict[str, Any] = {
        "abort": {"commits": False},
        "refused commit": {"commits": True, "outcome": FAILED},
    }
    changed = [
        replace(each, **ends[ending])
        if isinstance(each, TransactionEnd) and each.transaction == send.transaction
        else each
        for each in operations
        if ending in ends or not (isinstance(each, TransactionEnd) and each.transaction == send.transaction)
    ]
    record = Polled(send.partition, send.offset or 0, send.values[0])
    assert kinds(read_at_the_end(changed, record, is_read_committed=True)) >= {AnomalyKind.ABORTED_READ}


def test_who_reads_uncommitted_records_may_be_given_what_never_commits() -> None:
    reads = [poll_of(Polled(PARTITIONS[0], 0, "a"), Polled(PARTITIONS[1], 0, "b"), invoked=9)]
    assert kinds([*transaction(FAILED), *reads]) == set()


@SEEDS
def test_reading_what_is_not_committed_yet_is_a_precommitted_read(seed: int) -> None:
    operations = IdealLog(seed).run()
    random = Random(seed)
    commits = [each for each in operations if isinstance(each, TransactionEnd) and each.commits]
    commit = random.choice([each for each in commits if each.outcome is OK])
    send = sends(operations, random, transaction=commit.transaction)
    record = Polled(send.partition, send.offset or 0, send.values[0])
    early: Any = {"process": "early", "invoked": send.completed, "completed": commit.invoked - 1}
    read = [*operations, Poll(records=(record,), is_read_committed=True, **early)]
    assert kinds(read) == {AnomalyKind.PRECOMMITTED_READ}


def transaction(*outcomes: Outcome) -> list[Operation]:
    """One record in each of two partitions, and how the commit came out."""
    operations: list[Operation] = [
        send_of("a", transaction="t", invoked=1),
        send_of("b", transaction="t", partition=PARTITIONS[1], invoked=3),
    ]
    for number, outcome in enumerate(outcomes):
        end: Any = {"invoked": 5 + 2 * number, "completed": 6 + 2 * number, "outcome": outcome}
        operations.append(
            TransactionEnd(process="p", transaction="t", transactional_id="id", commits=True, **end)
        )
    return operations


@pytest.mark.parametrize("outcome", [OK, UNKNOWN])
def test_half_of_a_transaction_is_a_torn_transaction(outcome: Outcome) -> None:
    poll = poll_of(Polled(PARTITIONS[0], 0, "a"), is_read_committed=True, invoked=9)
    drained = Drained(
        process="reader", invoked=11, completed=12, partitions=PARTITIONS, is_read_committed=True
    )
    assert kinds([*transaction(outcome), poll, drained]) == {AnomalyKind.TORN_TRANSACTION}


def test_a_transaction_of_unknown_outcome_may_be_missing_as_a_whole() -> None:
    drained = Drained(
        process="reader", invoked=11, completed=12, partitions=PARTITIONS, is_read_committed=True
    )
    assert kinds([*transaction(UNKNOWN), drained]) == set()
    assert kinds([*transaction(OK), drained]) == {AnomalyKind.LOST_WRITE}


@SEEDS
def test_being_led_past_a_record_is_a_skipped_poll(seed: int) -> None:
    operations = IdealLog(seed).run()
    polls = [
        each
        for each in operations
        if isinstance(each, Poll) and len(each.records) > 2 and not each.process.startswith("last")
    ]
    poll = Random(seed).choice(polls)
    changed = [
        replace(each, records=(each.records[0], *each.records[2:])) if each is poll else each
        for each in operations
    ]
    assert kinds(changed) == {AnomalyKind.SKIPPED_POLL}


@SEEDS
def test_being_led_back_is_a_nonmonotonic_poll(seed: int) -> None:
    operations = IdealLog(seed).run()
    polls = [each for each in operations if isinstance(each, Poll) and len(each.records) > 1]
    poll = Random(seed).choice(polls)
    changed = [
        replace(each, records=(*each.records, each.records[0])) if each is poll else each
        for each in operations
    ]
    assert kinds(changed) == {AnomalyKind.NONMONOTONIC_POLL}


def test_a_later_record_at_a_lower_offset_is_a_nonmonotonic_send() -> None:
    first, second = send_of("a", offset=1, invoked=1), send_of("b", offset=0, invoked=2)
    read = poll_of(Polled(PARTITIONS[0], 0, "b"), Polled(PARTITIONS[0], 1, "a"), invoked=9)
    assert kinds([second, first, read]) == {AnomalyKind.NONMONOTONIC_SEND}
    plain = [replace(each, is_idempotent=False) for each in (first, second)]
    assert kinds([*plain, read]) == set()


def test_reading_what_nobody_sent_is_invented() -> None:
    assert kinds([poll_of(Polled(PARTITIONS[0], 0, "ghost"))]) == {AnomalyKind.INVENTED}


@SEEDS
def test_an_older_offset_than_the_committed_one_has_gone_back(seed: int) -> None:
    operations = IdealLog(seed).run()
    random = Random(seed)
    commits = [each for each in operations if isinstance(each, OffsetCommit) and each.outcome is OK]
    older, newer = commits[0], random.choice(commits[1:])
    # A commit of unknown outcome might explain the older offset, and none of a failed one could.
    rest = [each for each in operations if not isinstance(each, OffsetCommit) or each.outcome is OK]
    fetch: Any = {"process": "m", "group": "g", "partition": PARTITIONS[0]}
    for offset in (older.offset, None):
        asked = OffsetFetch(offset=offset, **fetch, **later(operations))
        assert AnomalyKind.COMMITTED_OFFSET_WENT_BACK in kinds([*rest, asked]), (older, newer)


def test_a_commit_of_unknown_outcome_explains_an_older_offset() -> None:
    base: Any = {"process": "m", "group": "g", "partition": PARTITIONS[0]}
    late = OffsetCommit(**base, offset=5, invoked=1, completed=2, outcome=UNKNOWN)
    newer = OffsetCommit(**base, offset=9, invoked=3, completed=4)
    asked = OffsetFetch(**base, offset=5, invoked=5, completed=6)
    assert kinds([late, newer, asked]) == set()
    known = replace(late, outcome=OK)
    assert kinds([known, newer, asked]) == {AnomalyKind.COMMITTED_OFFSET_WENT_BACK}


def test_a_committed_offset_that_nobody_committed_is_invented() -> None:
    base: Any = {"process": "m", "group": "g", "partition": PARTITIONS[0]}
    refused = OffsetCommit(**base, offset=9, invoked=1, completed=2, outcome=FAILED)
    assert kinds([refused, OffsetFetch(**base, offset=9, invoked=3, completed=4)]) == {AnomalyKind.INVENTED}


@pytest.mark.parametrize("commits", [True, False])
def test_offsets_of_a_transaction_count_once_it_commits(commits: bool) -> None:
    base: Any = {"process": "m", "group": "g", "partition": PARTITIONS[0]}
    commit = OffsetCommit(**base, offset=9, invoked=1, completed=2, transaction="t")
    end = TransactionEnd(
        process="m", invoked=3, completed=4, transaction="t", transactional_id="id", commits=commits
    )
    early = OffsetFetch(**base, offset=None, invoked=2, completed=3)
    nothing = OffsetFetch(**base, offset=None, invoked=5, completed=6)
    assert kinds([commit, early, end]) == set()
    assert kinds([commit, end, nothing]) == ({AnomalyKind.COMMITTED_OFFSET_WENT_BACK} if commits else set())
    assert kinds([commit, end, replace(nothing, offset=9)]) == (set() if commits else {AnomalyKind.INVENTED})


@SEEDS
def test_a_commit_of_a_replaced_member_is_a_zombies(seed: int) -> None:
    operations = IdealLog(seed).run()
    assignments = [each for each in operations if isinstance(each, Assignment)]
    old = assignments[-2]
    commit: Any = {"process": old.process, "group": "g", "generation": old.generation}
    zombie = OffsetCommit(partition=PARTITIONS[0], offset=1, **commit, **later(operations))
    assert kinds([*operations, zombie]) == {AnomalyKind.ZOMBIE_COMMIT}
    assert kinds([*operations, replace(zombie, outcome=UNKNOWN)]) == set()
    newest = assignments[-1]
    assert kinds([*operations, replace(zombie, process=newest.process)]) == set()


def test_a_commit_of_a_replaced_producer_is_a_zombies() -> None:
    own = ProducerInit(process="p", invoked=-4, completed=-3, transactional_id="id")
    other = ProducerInit(process="q", invoked=-2, completed=-1, transactional_id="id")
    reads = [
        poll_of(Polled(PARTITIONS[0], 0, "a"), Polled(PARTITIONS[1], 0, "b"), invoked=9),
    ]
    assert kinds([own, other, *transaction(OK), *reads]) == {AnomalyKind.ZOMBIE_COMMIT}
    assert kinds([other, replace(own, invoked=0, completed=0), *transaction(OK), *reads]) == set()


@SEEDS
def test_what_was_deleted_may_be_missing(seed: int) -> None:
    operations = IdealLog(seed).run()
    send = sends(operations, Random(seed), process="plain", outcome=OK)
    missing = without(operations, send.values[0])
    below = (send.offset or 0) + 1
    deletion = Deletion(process="admin", partition=send.partition, below_offset=below, **later(operations))
    assert kinds(missing)
    assert kinds([*missing, deletion]) == set()
    assert kinds([*missing, replace(deletion, outcome=FAILED)])


def test_what_a_later_record_of_its_key_replaces_may_be_missing_from_a_compacted_partition() -> None:
    partition = PARTITIONS[0]
    operations = [
        send_of("a", offset=0, keys=("k",)),
        send_of("b", offset=1, keys=("k",), invoked=3),
        send_of("c", offset=2, keys=("other",), invoked=5),
        poll_of(Polled(partition, 1, "b"), Polled(partition, 2, "c"), positions=((partition, 0),), invoked=7),
        Drained(process="reader", invoked=9, completed=10, partitions=(partition,)),
    ]
    assert kinds(operations, compacted=[partition]) == set()
    assert kinds(operations) == {AnomalyKind.SKIPPED_POLL, AnomalyKind.LOST_WRITE}
    assert kinds(without(operations, "b"), compacted=[partition]) >= {AnomalyKind.LOST_WRITE}


def test_an_anomaly_tells_its_evidence() -> None:
    (anomaly,) = find_anomalies([poll_of(Polled(PARTITIONS[0], 7, "ghost"))])
    assert str(anomaly) == "invented: reader was given 'ghost' at orders-0 offset 7"


def send_of(value: str, **fields: Any) -> Send:
    invoked = fields.setdefault("invoked", 1)
    defaults: Any = {"process": "p", "completed": invoked + 1, "partition": PARTITIONS[0], "offset": 0}
    return Send(values=(value,), **{**defaults, **fields})


def poll_of(*records: Polled, **fields: Any) -> Poll:
    invoked = fields.setdefault("invoked", 1)
    defaults: Any = {"process": "reader", "completed": invoked + 1}
    return Poll(records=records, **{**defaults, **fields})
