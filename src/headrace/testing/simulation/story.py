"""One story: a broker, clients and faults, all from a seed; and what the anomaly checker says of it.

First the topics are made. Then clients work and things break. Then nothing breaks any more, everybody comes
to an end, and two last readers read all there is, one of them committed records alone. A client that can't
come to an end although nothing is broken is a failure too.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final

from headrace.config import KIB, BrokerConfig, LogConfig
from headrace.testing.anomalies import find_anomalies
from headrace.testing.disk import SimulatedDisk
from headrace.testing.history import Drained, History
from headrace.testing.simulation.admin import Admin
from headrace.testing.simulation.broker import DATA_DIR, SimulatedBroker
from headrace.testing.simulation.client import World
from headrace.testing.simulation.clock import SimulatedClock
from headrace.testing.simulation.consumers import Consumer, LastReader
from headrace.testing.simulation.faults import Faults
from headrace.testing.simulation.groups import Group, Member
from headrace.testing.simulation.loop import SimulatedLoop
from headrace.testing.simulation.mistakes import heard_mistakes
from headrace.testing.simulation.network import Network
from headrace.testing.simulation.producers import IdempotentProducer, PlainProducer
from headrace.testing.simulation.transactions import TransactionalProducer
from headrace.testing.simulation.transforms import Transformer, check_exactly_once

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.testing.history import Operation
    from headrace.testing.simulation.loop import Task
    from headrace.testing.simulation.topics import Partition, TopicInfo

ANY_TIME: Final = {"message.timestamp.after.max.ms": str(2**63 - 1)}
"""Clocks jump in these stories, and records are not to be refused for it."""
LAST_COMMITTED: Final = "last-committed"
QUIET_S: Final = 1.0
"""By then, everything that was sent has arrived and is on the disk."""
STORY_S_MAX: Final = 900.0
"""No story lasts longer, in its own time."""


class StoryFailed(AssertionError):
    """A story did not end well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A story that was told, and what went wrong in it."""

    seed: int
    operations: tuple[Operation, ...]
    problems: tuple[str, ...]

    def check(self) -> None:
        """Raise if anything went wrong."""
        if self.problems:
            listed = "\n".join(self.problems[:10])
            raise StoryFailed(f"seed {self.seed}: {listed}\nRerun: {rerun_command(self.seed)}")


def rerun_command(seed: int) -> str:
    """The command that tells a story again, event by event."""
    return f"python -m headrace.testing.simulation --seed {seed} --trace"


def tell(seed: int, trace: Callable[[str], None] | None = None) -> Told:
    """Tell the story of a seed."""
    return Story(seed, trace).tell()


class Story:
    """Everything that happens for one seed."""

    def __init__(self, seed: int, trace: Callable[[str], None] | None = None) -> None:
        self.seed = seed
        self._write = trace
        self.random = self.stream("story")
        self.loop = SimulatedLoop()
        self.clock = SimulatedClock(self.loop)
        self.disk = SimulatedDisk()
        self.history = History()
        self.config = self._config()
        self.broker = SimulatedBroker(
            self.config, self.disk, self.clock, self.loop, random=self.stream("broker")
        )
        self.network = Network(self.loop, self.stream("network"), self.broker)
        self.world = World(
            loop=self.loop,
            clock=self.clock,
            network=self.network,
            history=self.history,
            trace=self.trace,
        )
        self.faults = Faults(
            self.world,
            self.disk,
            self.broker,
            self.stream("faults"),
            may_lose_power=self.config.durability == "sync",
        )
        self.problems: list[str] = []
        self._tasks: list[Task[None]] = []
        self._outputs: list[Partition] = []
        self._transforming: list[Group] = []

    def stream(self, name: str) -> Random:
        """Random numbers of one part's own, so that a change of another one leaves them alone."""
        return Random(f"{self.seed}/{name}")  # noqa: S311  # a story, not a secret

    def trace(self, text: str) -> None:
        """Tell what happens."""
        if self._write is not None:
            self._write(f"{self.loop.time():10.4f} {text}")

    def tell(self) -> Told:
        """Live through it, and judge."""
        on_line = self.trace if self._write is not None else None
        with heard_mistakes(self.problems.append, on_line):
            try:
                self._live()
            except Exception as error:
                # Whatever a client or the broker did not expect is what a story is told for.
                self.problems.append(f"at {self.loop.time():.4f} s: {error!r}")
                if self._write is not None:
                    raise
            finally:
                for note in self.world.in_doubt.values():
                    note()
                for task in self._tasks:
                    task.close()
        if not self.problems:
            self.problems += map(str, find_anomalies(self.history.operations))
        return Told(seed=self.seed, operations=self.history.operations, problems=tuple(self.problems))

    def _config(self) -> BrokerConfig:
        log = LogConfig(
            segment_bytes_max=self.random.choice((KIB, 4 * KIB, 1024 * KIB)),
            index_interval_bytes=self.random.choice((1, 200, 4096)),
        )
        durability: Any = "os" if self.random.random() < 0.1 else "sync"
        return BrokerConfig(data_dir=DATA_DIR, log=log, durability=durability)

    def _live(self) -> None:
        self.broker.start()
        self._start(self.faults.operate())
        topics = self._make_topics([f"topic-{number}" for number in range(self.random.randint(1, 2))])
        partitions = [partition for topic in topics for partition in topic.partitions]
        workers = [*self._start_workers(partitions), *self._start_transactions(partitions)]
        readers = self._start_readers(partitions)
        members = [*self._start_members(partitions), *self._start_transformers(partitions)]
        faults = self._start(
            self.faults.run(count=self.random.randint(1, 6), pause_s_max=self.random.choice((0.1, 1.0)))
        )
        self._wait("the faults to be over", lambda: faults.is_done)
        for member in members:
            member.is_calm = True
        self._wait("producers to come to an end", lambda: all(each.is_done for each in workers))
        for reader in readers:
            reader.is_stopping = True
        self.network.go_on()
        quiet = self.loop.sleep(QUIET_S)
        self._wait("all to be quiet", lambda: quiet.is_done)
        self._drain_groups(partitions, members)
        self._read_all([*partitions, *self._outputs])
        for group in self._transforming:
            self.problems += check_exactly_once(
                group, self.world.made_of, self.history.operations, LAST_COMMITTED
            )

    def _start(self, coroutine: Any) -> Task[None]:
        task = self.loop.start(coroutine)
        self._tasks.append(task)
        return task

    def _wait(self, what: str, condition: Callable[[], bool]) -> None:
        if not self.loop.run(until=condition, for_s=STORY_S_MAX):
            raise StoryFailed(f"{what}: that did not happen within {STORY_S_MAX:.0f} s")

    def _make_topics(self, names: list[str]) -> list[TopicInfo]:
        admin = Admin(self.world, "admin", self.stream("admin"))
        topics: list[TopicInfo] = []

        async def make() -> None:
            for name in names:
                topic = await admin.create_topic(name, self.random.randint(1, 3), ANY_TIME)
                topics.append(topic)

        task = self._start(make())
        self._wait("topics to be made", lambda: task.is_done)
        return topics

    def _start_workers(self, partitions: list[Partition]) -> list[Task[None]]:
        producers: list[IdempotentProducer | PlainProducer] = []
        for number in range(self.random.randint(1, 2)):
            name = f"idempotent-{number}"
            count = self.random.randint(5, 30)
            producers.append(
                IdempotentProducer(self.world, name, self.stream(name), self._some(partitions), count)
            )
        if self.random.random() < 0.3:
            count = self.random.randint(5, 15)
            producers.append(
                PlainProducer(self.world, "plain", self.stream("plain"), self._some(partitions), count)
            )
        return [self._start(producer.run()) for producer in producers]

    def _start_transactions(self, partitions: list[Partition]) -> list[Task[None]]:
        tasks = []
        for number in range(self.random.choice((0, 0, 1, 2))):
            chosen = self._some(partitions)
            for instance in range(self.random.choice((1, 1, 2, 3))):
                name = f"transactional-{number}.{instance}"
                producer = TransactionalProducer(
                    self.world,
                    name,
                    self.stream(name),
                    chosen,
                    transactional_id=f"id-{number}",
                    transaction_count=self.random.randint(2, 8),
                    begins_after_s=self.random.uniform(0, 2.0) if instance else 0.0,
                )
                tasks.append(self._start(producer.run()))
        return tasks

    def _start_transformers(self, partitions: list[Partition]) -> list[Member]:
        if self.random.random() < 0.75:
            return []
        self._outputs = self._make_topics(["output"])[0].partitions
        group = Group("transformers", self._some(partitions))
        self._transforming.append(group)
        members = [
            Transformer(self.world, name, self.stream(name), group, self._outputs)
            for name in (f"transformer-{number}" for number in range(self.random.randint(1, 2)))
        ]
        for member in members:
            self._start(member.run())
        return list(members)

    def _start_readers(self, partitions: list[Partition]) -> list[Consumer]:
        readers = []
        for number in range(self.random.randint(0, 2)):
            name = f"consumer-{number}"
            readers.append(
                Consumer(
                    self.world,
                    name,
                    self.stream(name),
                    self._some(partitions),
                    is_read_committed=self.random.random() < 0.5,
                )
            )
        for reader in readers:
            self._start(reader.run())
        return readers

    def _start_members(self, partitions: list[Partition]) -> list[Member]:
        if self.random.random() < 0.5:
            return []
        group = Group("group", self._some(partitions))
        is_read_committed = self.random.random() < 0.5
        members = [
            Member(
                self.world,
                f"member-{number}",
                self.stream(f"member-{number}"),
                group,
                is_read_committed=is_read_committed,
            )
            for number in range(self.random.randint(1, 3))
        ]
        for member in members:
            self._start(member.run())
        return members

    def _drain_groups(self, partitions: list[Partition], members: Sequence[Member]) -> None:
        surveyor = LastReader(
            self.world, "surveyor", self.stream("surveyor"), partitions, is_read_committed=True
        )
        survey = self._start(surveyor.survey())
        self._wait("the ends of all partitions", lambda: survey.is_done)
        groups = {member.shared.name: member for member in members}
        self._wait(
            "groups to read everything",
            lambda: all(each.shared.is_done(surveyor.end_offsets) for each in groups.values()),
        )
        for member in members:
            member.is_stopping = True
        for name, member in groups.items():
            self.history.add(
                Drained(
                    process=name,
                    invoked=self.history.tick(),
                    completed=self.history.tick(),
                    partitions=tuple(each.label for each in member.shared.partitions),
                    group=name,
                    is_read_committed=member.is_read_committed,
                )
            )

    def _read_all(self, partitions: list[Partition]) -> None:
        for name in ("last", LAST_COMMITTED):
            reader = LastReader(
                self.world, name, self.stream(name), partitions, is_read_committed=name == LAST_COMMITTED
            )
            task = self._start(reader.run())
            self._wait("the last reader to read everything", partial(getattr, task, "is_done"))

    def _some(self, partitions: list[Partition]) -> list[Partition]:
        return sorted(self.random.sample(partitions, self.random.randint(1, len(partitions))), key=str)
