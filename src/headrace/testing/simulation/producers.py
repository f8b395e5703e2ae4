"""Producers: they retry until they know, as the libraries do."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from kio.schema.errors import ErrorCode

from headrace.kafka.messages.init_producer_id import InitProducerIdRequest
from headrace.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.log.batch import encode_batch
from headrace.log.record import Record
from headrace.testing.history import Outcome, Send
from headrace.testing.simulation.client import Client, error_of
from headrace.testing.simulation.network import ConnectionLost

if TYPE_CHECKING:
    from random import Random

    from headrace.testing.simulation.client import Channel, World
    from headrace.testing.simulation.loop import Future
    from headrace.testing.simulation.topics import Partition

IN_FLIGHT_MAX: Final = 5
RECORDS_MAX: Final = 4
KEY_COUNT: Final = 7
PACE_S_MAX: Final = 0.06

RETRIABLE: Final = frozenset(
    {
        ErrorCode.kafka_storage_error,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_topic_id,
        ErrorCode.out_of_order_sequence_number,
    }
)
"""The last one comes when an earlier batch was refused; sent again in order, both are taken."""


def key_of(value: int) -> int:
    """The key of a record: there are few, so that compaction has something to do."""
    return value % KEY_COUNT


@dataclass(slots=True, eq=False)
class Batch:
    """A batch on its way."""

    partition: Partition
    values: tuple[int, ...]
    records: bytes
    invoked: int
    channel: Channel | None = None
    answer: Future[Any] | None = None


class Producer(Client):
    """What all producers have in common."""

    def __init__(self, world: World, name: str, random: Random, partitions: list[Partition]) -> None:
        super().__init__(world, name, random)
        self.partitions = partitions
        self.acks = -1

    def new_values(self) -> tuple[int, ...]:
        """Values that nobody has sent before."""
        return tuple(next(self.world.values) for _ in range(self.random.randint(1, RECORDS_MAX)))

    def encode(self, values: tuple[int, ...], **fields: int) -> bytes:
        """A batch of records."""
        now_ms = self.world.clock.true_ms()
        size = self.random.choice((0, 0, 10, 300))
        return encode_batch(
            [
                Record(timestamp_ms=now_ms, key=b"%d" % key_of(value), value=b"%d %s" % (value, b"." * size))
                for value in values
            ],
            **fields,
        )

    def produce_request(self, batch: Batch, transactional_id: str | None = None) -> ProduceRequest:
        """The request that carries a batch."""
        data = PartitionProduceData(index=batch.partition.index, records=batch.records)
        topic = batch.partition.topic
        return ProduceRequest(
            transactional_id=transactional_id,
            acks=self.acks,
            timeout_ms=30_000,
            topic_data=(TopicProduceData(name=topic.name, topic_id=topic.topic_id, partition_data=(data,)),),
        )

    def record(self, batch: Batch, outcome: Outcome, offset: int | None = None, **fields: Any) -> None:
        """Write down what became of a batch."""
        self.trace(f"sent {batch.values} to {batch.partition.label}: {outcome.value} at {offset}")
        self.history.add(
            Send(
                process=self.name,
                invoked=batch.invoked,
                completed=self.history.tick(),
                outcome=outcome,
                partition=batch.partition.label,
                values=batch.values,
                keys=tuple(map(key_of, batch.values)),
                offset=offset,
                **fields,
            )
        )


class WindowedProducer(Producer):
    """Keeps several batches in flight, and sends what was not acknowledged again, in order."""

    transactional_id: str | None = None

    def __init__(self, world: World, name: str, random: Random, partitions: list[Partition]) -> None:
        super().__init__(world, name, random, partitions)
        self.producer_id = -1
        self.producer_epoch = -1
        self.sequences: dict[Partition, int] = {}
        self.window: deque[Batch] = deque()
        self.first_offset: int | None = None
        """Where the first batch that was acknowledged lies."""
        self._last_acknowledged: dict[Partition, int] = {}
        """When the newest of the acknowledged batches was put into the window."""

    def put(self, partition: Partition, values: tuple[int, ...], *, attributes: int = 0) -> None:
        """Put a batch into the window, behind the others."""
        sequence = self.sequences.get(partition, 0)
        self.sequences[partition] = sequence + len(values)
        records = self.encode(
            values,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=sequence,
            attributes=attributes,
        )
        self.window.append(Batch(partition, values, records, self.history.tick()))

    async def send_window(self) -> bool:
        """Send what is not in flight, and wait for the oldest batch; False if it has to be sent again.

        No more are in flight than the broker remembers, or it could not tell a retry.
        """
        channel = await self.connected()
        for batch in self._in_flight():
            if batch.channel is not channel:
                batch.channel = channel
                request = self.produce_request(batch, self.transactional_id)
                batch.answer = channel.send(request, self.version(ProduceRequest))
        return await self._settle_first(channel)

    def on_refused(self, error_code: ErrorCode) -> None:
        """A batch was refused: raise if it makes no sense to send it again."""
        assert error_code in RETRIABLE, error_code

    def note_sent(self, batch: Batch, offset: int) -> None:
        """A batch was acknowledged."""
        self.record(batch, Outcome.OK, offset)

    def give_up(self, batch: Batch) -> None:
        """A batch was refused, and will be: a later one has been taken.

        That happens to a producer's first batch in a partition. A broker takes any first sequence of one that
        it does not know, so the batch behind the one that it has refused.
        """
        self.record(batch, Outcome.UNKNOWN)

    async def _settle_first(self, channel: Channel) -> bool:
        """Wait for the oldest batch. If it is refused, wait for all, and have the refused sent again."""
        try:
            if await self._is_settled(channel, self.window[0]):
                self.window.popleft()
                return True
            for batch in self._in_flight():
                if await self._is_settled(channel, batch):
                    self.window.remove(batch)
                else:
                    batch.channel = None
        except ConnectionLost:
            pass
        return False

    def _in_flight(self) -> tuple[Batch, ...]:
        return tuple(islice(self.window, IN_FLIGHT_MAX))

    async def _is_settled(self, channel: Channel, batch: Batch) -> bool:
        """Wait for a batch; False if it has to be sent again."""
        assert batch.answer is not None  # every batch in flight has been sent
        response = await self.answer(channel, batch.answer)
        answer = response.responses[0].partition_responses[0]
        if error_of(answer) is ErrorCode.none:
            if self.first_offset is None:
                self.first_offset = answer.base_offset
            self._last_acknowledged[batch.partition] = batch.invoked
            self.note_sent(batch, answer.base_offset)
            return True
        self.trace(f"sent {batch.values} to {batch.partition.label}: {error_of(answer).name}")
        self.on_refused(error_of(answer))
        is_overtaken = self._last_acknowledged.get(batch.partition, -1) > batch.invoked
        if is_overtaken and error_of(answer) is ErrorCode.out_of_order_sequence_number:
            self.give_up(batch)
            return True
        return False


class IdempotentProducer(WindowedProducer):
    """Sends so many batches."""

    def __init__(
        self, world: World, name: str, random: Random, partitions: list[Partition], batch_count: int
    ) -> None:
        super().__init__(world, name, random, partitions)
        self._left = batch_count

    async def run(self) -> None:
        """Send everything, until all of it is acknowledged."""
        await self._init()
        while self._left or self.window:
            room = self.random.randint(1, IN_FLIGHT_MAX) - len(self.window)
            for _ in range(min(room, self._left)):
                self._left -= 1
                self.put(self.random.choice(self.partitions), self.new_values())
            if await self.send_window():
                await self.loop.sleep(self.random.uniform(0, PACE_S_MAX))
            else:
                await self.pause()

    async def _init(self) -> None:
        asked = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        while True:
            response = await self.request(asked)
            if error_of(response) is ErrorCode.none:
                break
            assert error_of(response) in RETRIABLE, response
            await self.pause()
        self.producer_id, self.producer_epoch = response.producer_id, response.producer_epoch


class PlainProducer(Producer):
    """Sends one batch after the other; a retry may write it twice, and some are given up."""

    def __init__(
        self, world: World, name: str, random: Random, partitions: list[Partition], batch_count: int
    ) -> None:
        super().__init__(world, name, random, partitions)
        self._left = batch_count

    async def run(self) -> None:
        """Send everything once, at least."""
        for _ in range(self._left):
            self.acks = self.random.choice((-1, -1, -1, 1, 0))
            values = self.new_values()
            batch = Batch(
                self.random.choice(self.partitions), values, self.encode(values), self.history.tick()
            )
            await self._send(batch)
            await self.loop.sleep(self.random.uniform(0, 2 * PACE_S_MAX))

    async def _send(self, batch: Batch) -> None:
        is_tried = False
        while self.random.random() < 0.9:
            channel = await self.connected()
            is_tried = True
            answer = channel.send(
                self.produce_request(batch), self.version(ProduceRequest), is_answered=self.acks != 0
            )
            try:
                response = await self.answer(channel, answer)
            except ConnectionLost:
                await self.pause()
                continue
            if response is None:
                break
            answered = response.responses[0].partition_responses[0]
            if error_of(answered) is ErrorCode.none:
                # Only with acks=all is it promised to stay.
                is_kept = self.acks == -1
                outcome = Outcome.OK if is_kept else Outcome.UNKNOWN
                offset = answered.base_offset if is_kept else None
                self.record(batch, outcome, offset, is_idempotent=False)
                return
            assert error_of(answered) in RETRIABLE, answered
            await self.pause()
        self.record(batch, Outcome.UNKNOWN if is_tried else Outcome.FAILED, is_idempotent=False)
