"""Consumers: they go on where they were, whatever happens to their connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kio.schema.errors import ErrorCode

from headrace.kafka.messages.fetch import FetchRequest
from headrace.kafka.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from headrace.testing.history import Drained, Poll, Polled
from headrace.testing.simulation.batches import read_batches
from headrace.testing.simulation.client import Client, error_of
from headrace.testing.simulation.fetch_session import FIRST_VERSION, GONE, FetchSession
from headrace.testing.simulation.network import ConnectionLost

if TYPE_CHECKING:
    from random import Random

    from headrace.testing.simulation.client import World
    from headrace.testing.simulation.topics import Partition

EARLIEST: Final = -2
LATEST: Final = -1
ALL_BYTES: Final = 1_000_000
SEEK_CHANCE: Final = 0.05
PACE_S_MAX: Final = 0.15
READ_COMMITTED: Final = 1


class Fetched(NamedTuple):
    """What a fetch brought for one partition."""

    partition: Partition
    position: int
    """Where to go on."""
    records: list[Polled]
    error_code: ErrorCode


class Reader(Client):
    """Fetches from partitions at positions."""

    def __init__(self, world: World, name: str, random: Random, *, is_read_committed: bool) -> None:
        super().__init__(world, name, random)
        self.is_read_committed = is_read_committed
        self.group: str | None = None
        self._placed: dict[Partition, int] = {}
        uses_session = self.version(FetchRequest) >= FIRST_VERSION and random.random() < 0.6
        self._session = FetchSession(is_used=uses_session)
        self.size_bytes_max = random.choice((1, 500, ALL_BYTES))
        self.positions: dict[Partition, int] = {}

    def place(self, partition: Partition, position: int) -> None:
        """Read from here on."""
        self.positions[partition] = position
        self._placed[partition] = position

    async def poll(self, *, wait_ms: int) -> list[Polled]:
        """Fetch once, note what came, and go on behind it. Raises ConnectionLost."""
        began = self.history.tick()
        asked = dict(self.positions)
        response = await self._fetch(asked, wait_ms)
        if response is None:
            return []
        records: list[Polled] = []
        for fetched in self._read(response, asked):
            if fetched.error_code is ErrorCode.none:
                self.positions[fetched.partition] = fetched.position
                records += fetched.records
            else:
                await self.on_error(fetched)
        placed, self._placed = self._placed, {}
        if records or placed:
            self.trace(f"was given {[(str(each.partition), each.offset, each.value) for each in records]}")
            self.history.add(
                Poll(
                    process=self.name,
                    invoked=began,
                    completed=self.history.tick(),
                    records=tuple(records),
                    is_read_committed=self.is_read_committed,
                    group=self.group,
                    positions=tuple((each.label, position) for each, position in placed.items()),
                )
            )
        return records

    async def on_error(self, fetched: Fetched) -> None:
        """A partition could not be read."""
        if fetched.error_code is ErrorCode.offset_out_of_range:
            start = await self.offset_at(fetched.partition, EARLIEST)
            # What was deleted can't be read any more; nothing else may be missing.
            is_deleted = fetched.partition in self.world.shrinking and start > fetched.position
            assert is_deleted, f"{fetched} but the log begins at {start}"
            self.place(fetched.partition, start)
            return
        is_damaged = fetched.partition in self.world.damaged
        expected = ErrorCode.corrupt_message if is_damaged else ErrorCode.kafka_storage_error
        assert fetched.error_code is expected, fetched
        await self.pause()

    async def offset_at(self, partition: Partition, timestamp: int) -> int:
        """The first or the last offset of a partition."""
        asked = ListOffsetsPartition(partition_index=partition.index, timestamp=timestamp)
        topic = ListOffsetsTopic(name=partition.topic.name, partitions=(asked,))
        request = ListOffsetsRequest(
            replica_id=-1, topics=(topic,), isolation_level=READ_COMMITTED if self.is_read_committed else 0
        )
        response = await self.request(request)
        answer = response.topics[0].partitions[0]
        assert error_of(answer) is ErrorCode.none, answer
        return int(answer.offset)

    async def _fetch(self, positions: dict[Partition, int], wait_ms: int) -> Any:
        """Fetch; None if the session has ended, and the next try makes another."""
        asked = self._session.ask(positions, self.size_bytes_max)
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=self.random.choice((500, ALL_BYTES)) if self.size_bytes_max < ALL_BYTES else ALL_BYTES,
            isolation_level=READ_COMMITTED if self.is_read_committed else 0,
            topics=asked.topics,
            session_id=asked.session_id,
            session_epoch=asked.session_epoch,
            forgotten_topics_data=asked.forgotten,
        )
        try:
            response = await self.try_request(request)
        except ConnectionLost:
            self._session.begin_anew()
            raise
        if error_of(response) in GONE:
            self._session.begin_anew()
            return None
        assert error_of(response) is ErrorCode.none, response
        self._session.heard(response.session_id)
        return response

    def _read(self, response: Any, asked: dict[Partition, int]) -> list[Fetched]:
        by_place = {(each.topic.name, each.index): each for each in asked}
        by_id = {(each.topic.topic_id, each.index): each for each in asked}
        fetched = []
        for topic in response.responses:
            for data in topic.partitions:
                key = data.partition_index
                partition = by_place.get((topic.topic, key)) or by_id[topic.topic_id, key]
                fetched.append(self._read_partition(partition, data, asked[partition]))
        return fetched

    def _read_partition(self, partition: Partition, data: Any, position: int) -> Fetched:
        read = read_batches(
            data.records or b"",
            position,
            data.aborted_transactions,
            is_read_committed=self.is_read_committed,
        )
        records = [
            Polled(partition.label, offset, int(value.split(b" ", 1)[0])) for offset, value in read.records
        ]
        return Fetched(partition, read.position, records, error_of(data))


class Consumer(Reader):
    """Reads on its own, from the start, and jumps at times."""

    def __init__(
        self,
        world: World,
        name: str,
        random: Random,
        partitions: list[Partition],
        *,
        is_read_committed: bool,
    ) -> None:
        super().__init__(world, name, random, is_read_committed=is_read_committed)
        self.is_stopping = False
        for partition in partitions:
            self.place(partition, 0)

    async def run(self) -> None:
        """Read until told to stop."""
        while not self.is_stopping:
            try:
                await self.poll(wait_ms=self.random.choice((0, 50, 200)))
            except ConnectionLost:
                await self.pause()
            if self.random.random() < SEEK_CHANCE:
                partition = self.random.choice(list(self.positions))
                self.place(partition, self.random.randint(0, self.positions[partition]))
            await self.loop.sleep(self.random.uniform(0, PACE_S_MAX))


class LastReader(Reader):
    """Reads everything there is, once all is done."""

    def __init__(
        self, world: World, name: str, random: Random, partitions: list[Partition], **options: bool
    ) -> None:
        super().__init__(world, name, random, **options)
        self._partitions = partitions
        self.size_bytes_max = ALL_BYTES
        self.start_offsets: dict[Partition, int] = {}
        self.end_offsets: dict[Partition, int] = {}

    async def survey(self) -> None:
        """Find out where the partitions begin and end."""
        for partition in self._partitions:
            self.start_offsets[partition] = await self.offset_at(partition, EARLIEST)
            self.place(partition, self.start_offsets[partition])
            self.end_offsets[partition] = await self.offset_at(partition, LATEST)

    async def read_all(self) -> None:
        """Read from the first offset to the last one."""
        await self.survey()
        while any(self.positions[each] < self.end_offsets[each] for each in self._partitions):
            await self.poll(wait_ms=100)

    async def run(self) -> None:
        """Read from the first offset to the last one, and note that nothing more is to come."""
        await self.read_all()
        self.history.add(
            Drained(
                process=self.name,
                invoked=self.history.tick(),
                completed=self.history.tick(),
                partitions=tuple(each.label for each in self._partitions),
                is_read_committed=self.is_read_committed,
            )
        )
