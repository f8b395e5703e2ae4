"""The simulation finds mistakes: a broker with one of these planted in it fails within a thousand stories."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from headrace.errors import CorruptBatch, StorageError
from headrace.kafka.client_connection import ClientConnection, _read_in_turn
from headrace.kafka.commit import GroupCommit
from headrace.kafka.consumer_groups import ConsumerGroups
from headrace.kafka.fetch_sessions import CachedPartition
from headrace.kafka.groups.consumer import reconciliation
from headrace.kafka.groups.coordinator import GroupCoordinator
from headrace.kafka.handlers import txn_offset_commit
from headrace.kafka.sync_threads import SyncRound
from headrace.kafka.transaction_log import TransactionLog
from headrace.kafka.transaction_markers import TransactionMarkers
from headrace.kafka.transactions import ending
from headrace.kafka.transactions.state import Transaction
from headrace.log.damaged_segment import DamagedSegment
from headrace.log.durability import Durability
from headrace.log.failure import FailStop
from headrace.log.identity import Identity
from headrace.log.offset_map import OffsetMap
from headrace.log.partition import PartitionLog
from headrace.log.producers import ACCEPT, ProducerStates
from headrace.log.segment_reading import SegmentReading
from headrace.log.stored_batches import StoredBatches
from headrace.log.trusted_time import TrustedTime
from headrace.testing.disk import SimulatedDisk
from headrace.testing.simulation import story, threads
from headrace.testing.simulation.story import tell

STORY_COUNT = 1_000
WAIT_S = 60.0
"""A broker that hangs is found out sooner than in a good story: that saves time."""
LATER_S = 0.1

pytestmark = pytest.mark.simulation

Plant = Callable[[pytest.MonkeyPatch], None]


def acknowledge_before_the_sync(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(GroupCommit, "is_durable", lambda *_: True)


def acknowledge_when_the_first_sync_of_a_round_is_done(patch: pytest.MonkeyPatch) -> None:
    ended = SyncRound.ended

    def end_with_the_first(round_: SyncRound, error: StorageError | None) -> None:
        round_._remaining = 1
        ended(round_, error)

    patch.setattr(SyncRound, "ended", end_with_the_first)
    trust_what_a_round_says(patch)


def acknowledge_although_a_sync_of_the_round_has_failed(patch: pytest.MonkeyPatch) -> None:
    ended = SyncRound.ended
    patch.setattr(SyncRound, "ended", lambda round_, _error: ended(round_, None))
    trust_what_a_round_says(patch)


def acknowledge_what_came_while_the_round_was_synced(patch: pytest.MonkeyPatch) -> None:
    trust_what_a_round_says(patch)


def trust_what_a_round_says(patch: pytest.MonkeyPatch) -> None:
    """Release whoever waits for a partition of a round, however far that is durable."""

    def release(commit: GroupCommit, log: PartitionLog) -> None:
        for _, waiter in commit._waiters.pop(log, ()):
            waiter(None)

    patch.setattr(GroupCommit, "_release", release)


def choose_the_partitions_of_a_round_before_it_starts(patch: pytest.MonkeyPatch) -> None:
    def appended(commit: GroupCommit, log: PartitionLog) -> None:
        if commit._dirty or commit._is_syncing or not commit.is_synchronous:
            commit._dirty[log] = None
            return
        commit._dirty[log] = None
        chosen = tuple(commit._dirty)

        def sync_chosen() -> None:
            commit._is_syncing = True
            commit._dirty.clear()
            commit._start_sync(chosen)

        commit._call_soon(sync_chosen)

    patch.setattr(GroupCommit, "appended", appended)


def count_what_came_while_a_sync_ran_as_durable(patch: pytest.MonkeyPatch) -> None:
    sync = PartitionLog.sync

    def sync_and_look(log: PartitionLog) -> None:
        sync(log)
        log._durability.offset = log.end_offset

    patch.setattr(PartitionLog, "sync", sync_and_look)


def show_what_is_not_durable(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(GroupCommit, "high_watermark", lambda _, log: log.end_offset)


def take_duplicates(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ProducerStates, "check", lambda *_: ACCEPT)


def go_on_after_a_failed_sync(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FailStop, "check", lambda _: None)


def sync_the_active_segment_alone(patch: pytest.MonkeyPatch) -> None:
    sync_segments = Durability._sync_segments
    patch.setattr(Durability, "_sync_segments", lambda this, unsealed: sync_segments(this, unsealed[-1:]))


def sync_no_directories(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SimulatedDisk, "sync_directory", lambda *_: None)


def cut_no_torn_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SimulatedDisk, "truncate", lambda *_: None)


def trust_pages_after_a_failed_sync(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SimulatedDisk, "rewrite", lambda *_: None)


def forget_which_producer_ids_are_taken(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Identity, "write", lambda *_: None)


def let_zombies_commit(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(GroupCoordinator, "check_commit", lambda *_: ErrorCode.none)


def answer_a_commit_before_it_is_durable(patch: pytest.MonkeyPatch) -> None:
    write = ConsumerGroups.write

    def answer_first(groups: ConsumerGroups, records: Sequence[Any], on_durable: Any) -> None:
        write(groups, records, lambda _error: None)
        on_durable(None)

    patch.setattr(ConsumerGroups, "write", answer_first)
    # On a quick disk, a power loss seldom comes between the answer and the sync.
    patch.setattr(threads, "SYNC_S", (0.02, 0.1))


def let_uncommitted_records_be_read(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PartitionLog, "last_stable_offset", lambda _, high_watermark: high_watermark)


def forget_which_transactions_were_aborted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PartitionLog, "aborted_transactions", lambda *_: [])


def leave_one_partition_without_a_marker(patch: pytest.MonkeyPatch) -> None:
    write = TransactionMarkers.write

    def write_some(markers: TransactionMarkers, transaction: Transaction, on_settled: Any, then: Any) -> None:
        rest = sorted(transaction.partitions)[1:] or transaction.partitions
        write(markers, replace(transaction, partitions=frozenset(rest)), on_settled, then)

    patch.setattr(TransactionMarkers, "write", write_some)


def complete_a_transaction_before_its_markers_are_durable(patch: pytest.MonkeyPatch) -> None:
    write = TransactionMarkers.write

    def complete_at_once(
        markers: TransactionMarkers, transaction: Transaction, _on_settled: Any, then: Any
    ) -> None:
        write(markers, transaction, lambda: None, lambda _error: None)
        then(None)

    patch.setattr(TransactionMarkers, "write", complete_at_once)


def keep_the_epoch_at_the_end_of_a_transaction(patch: pytest.MonkeyPatch) -> None:
    raise_epoch = ending.raise_epoch

    def keep_epoch(transaction: Transaction, state: Any, **options: Any) -> Transaction:
        ended = raise_epoch(transaction, state, **options)
        return replace(ended, producer_epoch=transaction.producer_epoch)

    patch.setattr(ending, "raise_epoch", keep_epoch)


def answer_before_a_transaction_is_durable(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TransactionLog, "when_durable", lambda _log, _offset, then: then(None))


def forget_transactions_at_a_restart(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TransactionLog, "read", lambda _: iter(()))


def commit_the_offsets_of_aborted_transactions(patch: pytest.MonkeyPatch) -> None:
    end = ConsumerGroups.end_transaction

    def end_well(*arguments: Any, commits: bool, on_durable: Any) -> None:
        end(*arguments, commits=True, on_durable=on_durable)

    patch.setattr(ConsumerGroups, "end_transaction", end_well)


def take_offsets_of_zombies_into_transactions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(txn_offset_commit, "_check_group", lambda *_: ErrorCode.none)


def keep_a_keys_older_records_instead_of_its_last(patch: pytest.MonkeyPatch) -> None:
    is_last = OffsetMap.is_last
    patch.setattr(OffsetMap, "is_last", lambda *arguments: not is_last(*arguments))


def forget_which_records_were_deleted(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("headrace.log.record_deletion.write_log_start", lambda *_: None)


def believe_a_clock_that_jumps(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TrustedTime, "now_ms", lambda _, wall_ms, _monotonic_s: wall_ms)


def give_a_partition_to_two_members(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(reconciliation, "_taken_by_others", lambda *_: {})


def let_a_fetch_session_forget_where_its_consumer_is(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CachedPartition, "want", lambda *_: None)


def believe_a_disk_that_was_right_before(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SegmentReading, "_check", lambda *_: None)


def lead_readers_past_damage(patch: pytest.MonkeyPatch) -> None:
    read = DamagedSegment.read

    def read_past(damaged: DamagedSegment, offset: int, size_bytes_max: int, below_offset: int) -> bytes:
        while offset < damaged._segment.next_offset:
            try:
                return read(damaged, offset, size_bytes_max, below_offset)
            except CorruptBatch:
                offset += 1
        return b""

    patch.setattr(DamagedSegment, "read", read_past)


def lend_what_nobody_has_checked(patch: pytest.MonkeyPatch) -> None:
    lend = SegmentReading._lend_range

    def lend_unchecked(reading: SegmentReading, start: int, end: int) -> bytes | StoredBatches:
        with patch.context() as while_lending:
            while_lending.setattr(SegmentReading, "_is_checked", lambda *_: True)
            return lend(reading, start, end)

    patch.setattr(SegmentReading, "_lend_range", lend_unchecked)


def read_what_was_lent_when_the_segment_may_be_gone(patch: pytest.MonkeyPatch) -> None:
    """Read each piece of an answer in an event of its own, and close the connection if that fails."""
    sending: set[ClientConnection] = set()
    may_start = ClientConnection._may_start

    def send_later(connection: ClientConnection, parts: Sequence[Any]) -> None:
        pieces = _read_in_turn(list(parts))
        sending.add(connection)

        def send_next() -> None:
            try:
                piece = next(pieces, None)
            except StorageError:
                connection.abort()
                return
            if piece is None:
                sending.discard(connection)
                connection._pump()
            elif not connection._transport.is_closing():
                connection._transport.writelines(piece)
                connection._loop.call_later(LATER_S, send_next)

        send_next()

    patch.setattr(ClientConnection, "_send_in_turn", send_later)
    patch.setattr(ClientConnection, "_may_start", lambda this: this not in sending and may_start(this))


PLANTS: dict[Plant, int] = {
    acknowledge_before_the_sync: 35,
    acknowledge_when_the_first_sync_of_a_round_is_done: 11,
    acknowledge_although_a_sync_of_the_round_has_failed: 220,
    acknowledge_what_came_while_the_round_was_synced: 45,
    choose_the_partitions_of_a_round_before_it_starts: 11,
    count_what_came_while_a_sync_ran_as_durable: 223,
    show_what_is_not_durable: 220,
    take_duplicates: 1,
    go_on_after_a_failed_sync: 56,
    sync_the_active_segment_alone: 1,
    sync_no_directories: 1,
    cut_no_torn_end: 1,
    trust_pages_after_a_failed_sync: 29,
    forget_which_producer_ids_are_taken: 53,
    let_zombies_commit: 28,
    answer_a_commit_before_it_is_durable: 71,
    let_uncommitted_records_be_read: 5,
    forget_which_transactions_were_aborted: 1,
    leave_one_partition_without_a_marker: 4,
    complete_a_transaction_before_its_markers_are_durable: 545,
    keep_the_epoch_at_the_end_of_a_transaction: 1,
    answer_before_a_transaction_is_durable: 184,
    forget_transactions_at_a_restart: 10,
    commit_the_offsets_of_aborted_transactions: 46,
    take_offsets_of_zombies_into_transactions: 272,
    keep_a_keys_older_records_instead_of_its_last: 35,
    forget_which_records_were_deleted: 6,
    believe_a_clock_that_jumps: 302,
    give_a_partition_to_two_members: 34,
    let_a_fetch_session_forget_where_its_consumer_is: 0,
    believe_a_disk_that_was_right_before: 1,
    lead_readers_past_damage: 1,
    lend_what_nobody_has_checked: 1,
    read_what_was_lent_when_the_segment_may_be_gone: 28,
}
"""Each with a seed that found it when this was written: looking there first saves time."""


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__.replace("_", " "))
def test_a_planted_mistake_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(story, "STORY_S_MAX", WAIT_S)
    plant(monkeypatch)
    assert any(tell(seed).problems for seed in (PLANTS[plant], *range(STORY_COUNT)))
