"""Who is in a story: topics and clients, chosen by its seed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from headrace.config import DAY_MS
from headrace.testing.simulation.admin import ANY_TIME, Admin
from headrace.testing.simulation.caretakers import Rebuilder, Trimmer
from headrace.testing.simulation.consumer_groups import ConsumerMember
from headrace.testing.simulation.consumers import Consumer
from headrace.testing.simulation.groups import Group, Member
from headrace.testing.simulation.producers import IdempotentProducer, PlainProducer
from headrace.testing.simulation.transactions import TransactionalProducer
from headrace.testing.simulation.transforms import Transformer

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from random import Random

    from headrace.testing.simulation.client import World
    from headrace.testing.simulation.loop import Task
    from headrace.testing.simulation.topics import Partition

CONFIGS: Final[dict[str, dict[str, str]]] = {
    "plain": {},
    "compacted": {"cleanup.policy": "compact"},
    "trimmed": {},
    "retained": {"retention.bytes": "3000"},
    "aged": {"retention.ms": str(7 * DAY_MS)},
}
KINDS: Final = ("plain", "plain", "plain", "plain", "compacted", "trimmed", "retained", "aged")


class Cast:
    """Makes the topics, and lets the clients begin."""

    def __init__(
        self,
        world: World,
        random: Random,
        stream: Callable[[str], Random],
        start: Callable[[Coroutine[Any, None, None]], Task[None]],
    ) -> None:
        self._world = world
        self._random = random
        self._stream = stream
        self._start = start
        self._partitions: dict[str, list[Partition]] = {kind: [] for kind in CONFIGS}
        self.workers: list[Task[None]] = []
        """Those who come to an end by themselves."""
        self.consumers: list[Consumer] = []
        self.members: list[Member] = []
        self.transforming: list[Group] = []
        self.outputs: list[Partition] = []
        self.trimmer: Trimmer | None = None
        self.rebuilder: Rebuilder | None = None

    @property
    def partitions(self) -> list[Partition]:
        """All partitions that clients work with, but for what is made of them."""
        return [each for partitions in self._partitions.values() for each in partitions]

    def of_kind(self, kind: str) -> list[Partition]:
        """The partitions of one kind of topics."""
        return self._partitions[kind]

    async def make_topics(self) -> None:
        """Make all topics."""
        admin = Admin(self._world, "admin", self._stream("admin"))
        for number in range(self._random.randint(1, 2)):
            kind = self._random.choice(KINDS)
            count = self._random.randint(1, 3)
            topic = await admin.create_topic(f"{kind}-{number}", count, {**ANY_TIME, **CONFIGS[kind]})
            self._partitions[kind] += topic.partitions
        for kind in ("trimmed", "retained", "aged"):
            self._world.shrinking.update(self.of_kind(kind))
        if self.of_kind("plain") and self._chance(0.25):
            self.outputs = (await admin.create_topic("output", 2, ANY_TIME)).partitions

    def begin(self) -> None:
        """Let all clients begin."""
        self._start_producers()
        self._start_transactions()
        self._start_consumers()
        self._start_members()
        self._start_transformers()
        self._start_caretakers()

    def _start_producers(self) -> None:
        for number in range(self._random.randint(1, 2)):
            name, count = f"idempotent-{number}", self._random.randint(5, 30)
            self._work(
                IdempotentProducer(self._world, name, self._stream(name), self._some(self.partitions), count)
            )
        if self._chance(0.3):
            count = self._random.randint(5, 15)
            self._work(
                PlainProducer(self._world, "plain", self._stream("plain"), self._some(self.partitions), count)
            )

    def _start_transactions(self) -> None:
        for number in range(self._random.choice((0, 0, 1, 2))):
            chosen = self._some(self.partitions)
            for instance in range(self._random.choice((1, 1, 2, 3))):
                name = f"transactional-{number}.{instance}"
                self._work(
                    TransactionalProducer(
                        self._world,
                        name,
                        self._stream(name),
                        chosen,
                        transactional_id=f"id-{number}",
                        transaction_count=self._random.randint(2, 6),
                        begins_after_s=self._random.uniform(0, 2.0) if instance else 0.0,
                    )
                )

    def _start_consumers(self) -> None:
        for number in range(self._random.randint(0, 2)):
            name = f"consumer-{number}"
            consumer = Consumer(
                self._world,
                name,
                self._stream(name),
                self._some(self.partitions),
                is_read_committed=self._chance(0.5),
            )
            self.consumers.append(consumer)
            self._start(consumer.run())

    def _start_members(self) -> None:
        if self._chance(0.5):
            return
        kind = self._random.choice((Member, ConsumerMember))
        group = Group("group", self._whole_topics(self._some(self.partitions)))
        is_read_committed = self._chance(0.5)
        for number in range(self._random.randint(1, 3)):
            name = f"member-{number}"
            self._join(
                kind(self._world, name, self._stream(name), group, is_read_committed=is_read_committed)
            )

    def _start_transformers(self) -> None:
        if not self.outputs:
            return
        group = Group("transformers", self._some(self.of_kind("plain")))
        self.transforming.append(group)
        for number in range(self._random.randint(1, 2)):
            name = f"transformer-{number}"
            self._join(Transformer(self._world, name, self._stream(name), group, self.outputs))

    def _start_caretakers(self) -> None:
        trimmed = self.of_kind("trimmed")
        if trimmed:
            count = self._random.randint(2, 8)
            self.trimmer = Trimmer(self._world, "trimmer", self._stream("trimmer"), trimmed, count)
            self._work(self.trimmer)
        if self._chance(0.1):
            self.rebuilder = Rebuilder(
                self._world, "rebuilder", self._stream("rebuilder"), self._random.randint(2, 4)
            )
            self._work(self.rebuilder)

    def _work(self, client: Any) -> None:
        self.workers.append(self._start(client.run()))

    def _join(self, member: Member) -> None:
        self.members.append(member)
        self._start(member.run())

    def _some(self, partitions: list[Partition]) -> list[Partition]:
        count = self._random.randint(1, len(partitions))
        return sorted(self._random.sample(partitions, count), key=str)

    def _whole_topics(self, partitions: list[Partition]) -> list[Partition]:
        """All partitions of their topics: members subscribe to topics."""
        topics = {partition.topic: None for partition in partitions}
        return [partition for topic in topics for partition in topic.partitions]

    def _chance(self, probability: float) -> bool:
        return self._random.random() < probability
