"""Read, make something of it, write: exactly once.

A member of a group writes one record for each that it reads, and commits its offsets in the same transaction.
Whatever happens, each record that was read has in the end one that was made of it, and no more.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from kio.schema.errors import ErrorCode

from headrace.kafka.messages.offset_fetch import OffsetFetchRequest
from headrace.testing.history import Poll
from headrace.testing.simulation.groups import FREEZE_S_MAX, Group, Member, MustRejoin
from headrace.testing.simulation.transactions import Fenced, MustAbort, Transactional

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping, Sequence
    from random import Random

    from headrace.testing.history import Operation, Polled
    from headrace.testing.simulation.client import World
    from headrace.testing.simulation.topics import Partition

FIRST_OFFSET_FETCH_VERSION_THAT_WAITS: Final = 7
"""Before that, a member is told what was committed last, though a transaction is about to change it."""

ABORT_CHANCE: Final = 0.15
FREEZE_CHANCE: Final = 0.05


class Transformer(Member):
    """A member that makes a record of each that it reads, in one transaction with its offsets."""

    def __init__(
        self, world: World, name: str, random: Random, group: Group, outputs: list[Partition]
    ) -> None:
        super().__init__(world, name, random, group, is_read_committed=True)
        self.speak(OffsetFetchRequest, first=FIRST_OFFSET_FETCH_VERSION_THAT_WAITS)
        self._producer = Transactional(world, name, random, outputs, transactional_id=f"id of {name}")
        self._is_known = False

    async def read_and_commit(self) -> None:
        """Read some, write as much, and commit both at once."""
        if not self._is_known:
            await self._producer.init()
            self._is_known = True
        if not self.positions:
            return
        records = await self.poll(wait_ms=self.random.choice((0, 100)))
        if records:
            await self._dawdle()
            await self._transform(records)
        self.note_reached()

    async def _dawdle(self) -> None:
        """Freeze with records in hand: what is made of them may then be a zombie's work."""
        if not self.is_calm and self.random.random() < FREEZE_CHANCE:
            self.trace("will freeze with what it has read")
            await self.loop.sleep(self.random.uniform(0, FREEZE_S_MAX))

    async def _transform(self, records: list[Polled]) -> None:
        producer = self._producer
        producer.begin()
        producer.put_all(self._made_of(records))
        try:
            await producer.send_all()
            error_code = await producer.add_offsets(
                self.shared.name,
                dict(self.positions),
                generation=self.generation,
                member_id=self.member_id,
            )
            commits = error_code is ErrorCode.none and not self._changes_its_mind()
            await producer.end(commits=commits)
        except (Fenced, MustAbort):
            self._is_known = False
            raise MustRejoin from None
        self.check(error_code)
        if not commits:
            raise MustRejoin

    def _changes_its_mind(self) -> bool:
        return not self.is_calm and self.random.random() < ABORT_CHANCE

    def _made_of(self, records: list[Polled]) -> list[tuple[Partition, tuple[int, ...]]]:
        """A batch for each partition."""
        made: dict[Partition, list[int]] = {}
        for record in records:
            value = next(self.world.values)
            assert isinstance(record.value, int)  # all values of stories are numbers
            self.world.made_of[value] = record.value
            made.setdefault(self.random.choice(self._producer.partitions), []).append(value)
        return [(partition, tuple(values)) for partition, values in made.items()]


def check_exactly_once(
    group: Group, made_of: Mapping[Hashable, int], operations: Sequence[Operation], last_reader: str
) -> Iterator[str]:
    """What was made twice, or not at all, of the records of a group."""
    inputs = {partition.label for partition in group.partitions}
    polled = [
        record
        for operation in operations
        if isinstance(operation, Poll) and operation.process == last_reader
        for record in operation.records
    ]
    made: Counter[Hashable] = Counter(made_of.get(record.value) for record in polled)
    # A producer that is not idempotent may have sent a value more than once.
    read = Counter(record.value for record in polled if record.partition in inputs)
    for value, count in read.items():
        if made[value] != count:
            yield f"not exactly once: {made[value]} records were made of {value}, read {count} times"
