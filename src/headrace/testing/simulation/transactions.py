"""Transactional producers by both versions of the protocol, and the faults of real ones.

By the first version (TV1) a producer adds partitions and offsets to its transaction itself, and keeps its
epoch. A request of such a producer that arrives late can tear its next transaction, in Kafka as here: that is
why the second version exists. So their connections deliver nothing late. By the second version (TV2) each end
of a transaction raises the epoch, and whatever arrives late is refused.

Several instances may have the same transactional id. The newest one fences the others, which find out when
they go on: zombies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kio.schema.errors import ErrorCode

from headrace.kafka.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from headrace.kafka.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from headrace.kafka.messages.end_txn import EndTxnRequest
from headrace.kafka.messages.init_producer_id import InitProducerIdRequest
from headrace.kafka.messages.produce import ProduceRequest
from headrace.kafka.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from headrace.log.batch import TRANSACTIONAL
from headrace.testing.history import OffsetCommit, Outcome, ProducerInit, TransactionEnd
from headrace.testing.simulation.client import error_of
from headrace.testing.simulation.network import ConnectionLost
from headrace.testing.simulation.producers import Batch, WindowedProducer

if TYPE_CHECKING:
    from random import Random

    from headrace.testing.simulation.client import World
    from headrace.testing.simulation.topics import Partition

FENCED: Final = frozenset(
    {
        ErrorCode.invalid_producer_epoch,
        ErrorCode.producer_fenced,
        ErrorCode.invalid_producer_id_mapping,
    }
)
RETRIABLE: Final = frozenset(
    {
        ErrorCode.concurrent_transactions,
        ErrorCode.coordinator_not_available,
        ErrorCode.kafka_storage_error,
        ErrorCode.out_of_order_sequence_number,
    }
)
ABORTABLE: Final = frozenset({ErrorCode.transaction_abortable, ErrorCode.invalid_txn_state})
TV1_VERSIONS: Final = {
    ProduceRequest: (None, 11),
    AddPartitionsToTxnRequest: (None, 3),
    AddOffsetsToTxnRequest: (None, 3),
    TxnOffsetCommitRequest: (3, 4),
    EndTxnRequest: (None, 4),
}
"""Before version 3, offsets come without their member's generation, so that no zombie can be told."""
TV2_VERSIONS: Final = {
    ProduceRequest: (12, None),
    TxnOffsetCommitRequest: (5, None),
    EndTxnRequest: (5, None),
}
FREEZE_S_MAX: Final = 12.0


class Fenced(Exception):
    """Another instance has taken over, or the broker has given the producer up."""


class MustAbort(Exception):
    """The transaction can't be committed any more."""


class Transactional(WindowedProducer):
    """A producer that can do transactions, one after the other."""

    def __init__(
        self,
        world: World,
        name: str,
        random: Random,
        partitions: list[Partition],
        transactional_id: str,
    ) -> None:
        super().__init__(world, name, random, partitions)
        self.transactional_id: str = transactional_id
        self.is_tv2 = random.random() < 0.6
        self.is_prompt = not self.is_tv2
        for request, (first, last) in (TV2_VERSIONS if self.is_tv2 else TV1_VERSIONS).items():
            self.speak(request, first=first, last=last)
        self.timeout_ms = random.choice((1_000, 5_000, 20_000))
        self.transaction = ""
        self._count = 0
        self._added: set[Partition] = set()

    async def init(self) -> None:
        """Take the transactional id over."""
        asked = InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=self.timeout_ms
        )
        while True:
            began = self.history.tick()
            try:
                response = await self.try_request(asked)
            except ConnectionLost:
                await self.pause()
                continue
            if error_of(response) is ErrorCode.none:
                break
            self.trace(f"init: {error_of(response).name}")
            assert error_of(response) in RETRIABLE, response
            await self.pause()
        self._become(response.producer_id, response.producer_epoch)
        self.trace(f"is {self.producer_id}/{self.producer_epoch}")
        self.history.add(
            ProducerInit(
                process=self.name,
                invoked=began,
                completed=self.history.tick(),
                transactional_id=self.transactional_id,
            )
        )

    def begin(self) -> None:
        """Begin a transaction; the broker learns of it later."""
        self._count += 1
        self.transaction = f"{self.name} #{self._count}"
        self._added.clear()

    def put_all(self, batches: list[tuple[Partition, tuple[int, ...]]]) -> None:
        """Put batches into the window."""
        for partition, values in batches:
            self.put(partition, values, attributes=TRANSACTIONAL)

    async def send_all(self) -> None:
        """Send the whole window. Raises Fenced or MustAbort; then nobody knows what has been written."""
        try:
            await self._add_partitions({batch.partition for batch in self.window})
            while self.window:
                if not await self.send_window():
                    await self.pause()
        except (Fenced, MustAbort):
            for batch in self.window:
                self.record(batch, Outcome.UNKNOWN, transaction=self.transaction)
            self.window.clear()
            raise

    async def add_offsets(self, group: str, positions: dict[Partition, int], **member: Any) -> ErrorCode:
        """Commit offsets in the transaction. Returns what the group has against it, if anything."""
        began = self.history.tick()
        if not self.is_tv2:
            await self._until_done(
                AddOffsetsToTxnRequest(
                    transactional_id=self.transactional_id,
                    producer_id=self.producer_id,
                    producer_epoch=self.producer_epoch,
                    group_id=group,
                ),
                error_of,
            )
        error_code = await self._until_done(
            self._offsets_request(group, positions, **member),
            lambda response: error_of(response.topics[0].partitions[0]),
        )
        outcome = Outcome.OK if error_code is ErrorCode.none else Outcome.UNKNOWN
        for partition, offset in positions.items():
            self.history.add(
                OffsetCommit(
                    process=self.name,
                    invoked=began,
                    completed=self.history.tick(),
                    outcome=outcome,
                    group=group,
                    partition=partition.label,
                    offset=offset,
                    generation=member["generation"],
                    transaction=self.transaction,
                )
            )
        return error_code

    async def end(self, *, commits: bool) -> None:
        """Commit or abort, until the outcome is clear. Raises Fenced or MustAbort if it can't be had."""
        began = self.history.tick()

        def note(outcome: Outcome) -> None:
            self.trace(f"{'committed' if commits else 'aborted'} {self.transaction!r}: {outcome.value}")
            self.history.add(
                TransactionEnd(
                    process=self.name,
                    invoked=began,
                    completed=self.history.tick(),
                    outcome=outcome,
                    transaction=self.transaction,
                    transactional_id=self.transactional_id,
                    commits=commits,
                )
            )

        with self.in_doubt(lambda: note(Outcome.UNKNOWN)):
            outcome, response = await self._end(commits=commits)
        note(outcome)
        error_code = error_of(response)
        if error_code is ErrorCode.none:
            if self.is_tv2:
                self._become(response.producer_id, response.producer_epoch)
            return
        raise Fenced if error_code in FENCED else MustAbort

    def on_refused(self, error_code: ErrorCode) -> None:
        """A batch was refused."""
        if error_code in FENCED:
            raise Fenced
        if error_code in ABORTABLE:
            raise MustAbort
        assert error_code in RETRIABLE, error_code

    def note_sent(self, batch: Batch, offset: int) -> None:
        """A batch was acknowledged."""
        self.record(batch, Outcome.OK, offset, transaction=self.transaction)

    def give_up(self, batch: Batch) -> None:
        """A batch will never be taken: only a new epoch helps, with which sequences begin anew."""
        self.trace(f"gives {batch.values} up")
        raise Fenced

    def _become(self, producer_id: int, producer_epoch: int) -> None:
        if (producer_id, producer_epoch) != (self.producer_id, self.producer_epoch):
            self.producer_id, self.producer_epoch = producer_id, producer_epoch
            self.sequences.clear()

    async def _end(self, *, commits: bool) -> tuple[Outcome, Any]:
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            committed=commits,
        )
        is_in_doubt = False
        while True:
            try:
                response = await self.try_request(request)
            except ConnectionLost:
                is_in_doubt = True
                await self.pause()
                continue
            error_code = error_of(response)
            if error_code is ErrorCode.none:
                return Outcome.OK, response
            self.trace(f"end: {error_code.name}")
            if error_code not in RETRIABLE:
                assert error_code in FENCED | ABORTABLE, response
                return Outcome.UNKNOWN if is_in_doubt else Outcome.FAILED, response
            is_in_doubt = is_in_doubt or error_code is not ErrorCode.concurrent_transactions
            await self.pause()

    async def _add_partitions(self, partitions: set[Partition]) -> None:
        missing = sorted(partitions - self._added, key=str)
        if self.is_tv2 or not missing:
            return
        topics = tuple(
            AddPartitionsToTxnTopic(name=each.topic.name, partitions=(each.index,)) for each in missing
        )
        await self._until_done(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self.transactional_id,
                v3_and_below_producer_id=self.producer_id,
                v3_and_below_producer_epoch=self.producer_epoch,
                v3_and_below_topics=topics,
            ),
            lambda response: ErrorCode(
                response.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
            ),
        )
        self._added.update(missing)

    def _offsets_request(
        self, group: str, positions: dict[Partition, int], *, generation: int, member_id: str
    ) -> TxnOffsetCommitRequest:
        return TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            generation_id=generation,
            member_id=member_id,
            topics=tuple(
                TxnOffsetCommitRequestTopic(
                    name=partition.topic.name,
                    partitions=(
                        TxnOffsetCommitRequestPartition(
                            partition_index=partition.index, committed_offset=offset, committed_metadata=""
                        ),
                    ),
                )
                for partition, offset in positions.items()
            ),
        )

    async def _until_done(self, request: Any, error_in: Any) -> ErrorCode:
        """Ask until there is an answer that is not about waiting; errors of the group are returned."""
        while True:
            response = await self.request(request)
            error_code: ErrorCode = error_in(response)
            if error_code not in RETRIABLE:
                break
            await self.pause()
        if error_code is not ErrorCode.none:
            self.trace(f"{type(request).__name__}: {error_code.name}")
        if error_code in FENCED:
            raise Fenced
        if error_code in ABORTABLE:
            raise MustAbort
        return error_code


class TransactionalProducer(Transactional):
    """Writes transactions of some batches each, and commits most of them."""

    def __init__(
        self,
        world: World,
        name: str,
        random: Random,
        partitions: list[Partition],
        transactional_id: str,
        *,
        transaction_count: int,
        begins_after_s: float,
    ) -> None:
        super().__init__(world, name, random, partitions, transactional_id)
        self._left = transaction_count
        self._begins_after_s = begins_after_s

    async def run(self) -> None:
        """Do all transactions, unless another instance takes over for good."""
        await self.loop.sleep(self._begins_after_s)
        await self.init()
        while self._left:
            self._left -= 1
            try:
                await self._do_transaction()
            except Fenced:
                self.trace("is fenced")
                if self.random.random() < 0.5:
                    return
                await self.init()
            await self.loop.sleep(self.random.uniform(0, 0.1))

    async def _do_transaction(self) -> None:
        self.begin()
        try:
            for _ in range(self.random.randint(1, 2)):
                self.put_all(
                    [
                        (self.random.choice(self.partitions), self.new_values())
                        for _ in range(self.random.randint(1, 4))
                    ]
                )
                await self.send_all()
                if self.random.random() < 0.05:
                    await self.loop.sleep(self.random.uniform(0, FREEZE_S_MAX))
            await self.end(commits=self.random.random() < 0.7)
        except MustAbort:
            await self._give_up()

    async def _give_up(self) -> None:
        try:
            await self.end(commits=False)
        except MustAbort:
            await self.init()
