"""One story: a broker, clients and faults, all from a seed; and what the anomaly checker says of it.

First the topics are made. Then clients work and things break. Then nothing breaks any more, everybody comes
to an end, and two last readers read all there is, one of them committed records alone. A client that can't
come to an end although nothing is broken is a failure too. In some stories the disk then damages what it has,
and another reader reads it all once more (see damage.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, Final

from headrace.config import KIB, BrokerConfig, LogConfig
from headrace.log.stored_batches import Lending
from headrace.testing.anomalies import find_anomalies
from headrace.testing.disk import SimulatedDisk
from headrace.testing.history import Deletion, Drained, History, Outcome
from headrace.testing.simulation.broker import DATA_DIR, SimulatedBroker
from headrace.testing.simulation.cast import Cast
from headrace.testing.simulation.client import World
from headrace.testing.simulation.clock import SimulatedClock
from headrace.testing.simulation.consumers import LastReader
from headrace.testing.simulation.damage import DamageReader, Vandal, misjudged
from headrace.testing.simulation.faults import Faults
from headrace.testing.simulation.loop import SimulatedLoop
from headrace.testing.simulation.mistakes import heard_mistakes
from headrace.testing.simulation.network import UNSENT_BYTES_MAX, Network
from headrace.testing.simulation.transforms import check_exactly_once

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.testing.history import Operation
    from headrace.testing.simulation.loop import Task
    from headrace.testing.simulation.topics import Partition

LAST_COMMITTED: Final = "last-committed"
QUIET_S: Final = 1.0
"""By then, everything that was sent has arrived and is on the disk."""
DAMAGE_CHANCE: Final = 0.3
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
        self.disk = SimulatedDisk(self.clock)
        self.history = History()
        self.link_bytes_max = self.stream("links").choice((1, 500, *[UNSENT_BYTES_MAX] * 4))
        """How much may be on its way to a client until it counts as one that reads too slowly."""
        self.config = self._config()
        self.broker = SimulatedBroker(
            self.config,
            self.disk,
            self.clock,
            self.loop,
            random=self.stream("broker"),
            lending=self._lending(self.stream("lending")),
        )
        self.network = Network(
            self.loop,
            self.stream("network"),
            self.broker,
            unsent_bytes_max=self.link_bytes_max,
        )
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
        self.cast = Cast(self.world, self.random, self.stream, self._start)

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
            self._judge()
        return Told(seed=self.seed, operations=self.history.operations, problems=tuple(self.problems))

    def _config(self) -> BrokerConfig:
        log = LogConfig(
            segment_bytes_max=self.random.choice((KIB, 4 * KIB, 1024 * KIB)),
            index_interval_bytes=self.random.choice((1, 200, 4096)),
            checkpoint_bytes=self.random.choice((2 * KIB, 10 * KIB, 1024 * KIB)),
            cleaner_interval_ms=self.random.choice((200, 1_000)),
            min_cleanable_dirty_ratio=0.01,
        )
        durability: Any = "os" if self.random.random() < 0.1 else "sync"
        return BrokerConfig(
            data_dir=DATA_DIR,
            log=log,
            durability=durability,
            consumer_session_timeout_ms=3_000,
            consumer_heartbeat_interval_ms=500,
            unsent_bytes_max=self._unsent_bytes_max(self.stream("unsent")),
        )

    def _unsent_bytes_max(self, random: Random) -> int:
        """Where clients read too slowly, fetches often have to wait for each other."""
        are_clients_slow = self.link_bytes_max < UNSENT_BYTES_MAX
        return random.choice((1, 1_000, 1024 * KIB)) if are_clients_slow else 1024 * KIB

    def _lending(self, random: Random) -> Lending:
        """In every other story, answers are read in small pieces, as large ones are."""
        return Lending(
            size_bytes_min=random.choice((1, 300, 256 * KIB, 256 * KIB)),
            piece_bytes=random.choice((50, 500, 256 * KIB)),
        )

    def _live(self) -> None:
        self.broker.start()
        self._start(self.faults.operate())
        cast = self.cast
        self._do("the topics", cast.make_topics())
        cast.begin()
        faults = self.faults.run(count=self.random.randint(1, 6), pause_s_max=self.random.choice((0.1, 1.0)))
        self._do("the faults", faults)
        for member in cast.members:
            member.is_calm = True
        self._wait("all workers to come to an end", lambda: all(each.is_done for each in cast.workers))
        for consumer in cast.consumers:
            consumer.is_stopping = True
        self.network.go_on()
        quiet = self.loop.sleep(QUIET_S)
        self._wait("all to be quiet", lambda: quiet.is_done)
        self._drain_groups()
        self._read_all()
        self._damage_and_read_all()

    def _start(self, coroutine: Any) -> Task[None]:
        task = self.loop.start(coroutine)
        self._tasks.append(task)
        return task

    def _do(self, what: str, coroutine: Any) -> None:
        task = self._start(coroutine)
        self._wait(what, lambda: task.is_done)

    def _wait(self, what: str, condition: Callable[[], bool]) -> None:
        if not self.loop.run(until=condition, for_s=STORY_S_MAX):
            raise StoryFailed(f"{what}: that did not happen within {STORY_S_MAX:.0f} s")

    def _drain_groups(self) -> None:
        """Let groups read everything, and note that they have."""
        groups = {member.shared.name: member for member in self.cast.members}
        if not groups:
            return
        surveyor = self._last_reader("surveyor", self.cast.partitions)
        self._do("the ends of all partitions", surveyor.survey())
        self._wait(
            "groups to read everything",
            lambda: all(each.shared.is_done(surveyor.end_offsets) for each in groups.values()),
        )
        for member in self.cast.members:
            member.is_stopping = True
        for name, member in groups.items():
            partitions = tuple(each.label for each in member.shared.partitions)
            self._note(
                Drained,
                process=name,
                partitions=partitions,
                group=name,
                is_read_committed=member.is_read_committed,
            )

    def _read_all(self) -> None:
        """Let last readers read everything that there is."""
        partitions = [*self.cast.partitions, *self.cast.outputs]
        if self.cast.rebuilder is not None and self.cast.rebuilder.last is not None:
            partitions += self.cast.rebuilder.last.partitions
        for name in ("last", LAST_COMMITTED):
            reader = self._last_reader(name, partitions)
            self._do("the last reader to read everything", reader.run())
        # Retention does not stand still while the last readers read.
        surveyor = self._last_reader("starts", partitions)
        self._do("the starts of all partitions", surveyor.survey())
        self._check_starts(surveyor.start_offsets)

    def _damage_and_read_all(self) -> None:
        """Let the disk damage sealed segments of topics of which nothing is ever removed."""
        random = self.stream("damage")
        vandal = Vandal(self.disk, random, self.trace)
        if random.random() >= DAMAGE_CHANCE:
            return
        self.broker.stop()
        sealed = {each: vandal.sealed(each) for each in self.cast.of_kind("plain")}
        chosen = {each: random.choice(paths) for each, paths in sealed.items() if paths}
        self.world.damaged.update(chosen)
        is_done_before = random.random() < 0.5
        if not is_done_before:
            self.broker.start()
        damages = {partition: vandal.damage(path) for partition, path in chosen.items()}
        if is_done_before:
            self.broker.start()
        reader = DamageReader(self.world, random, list(chosen))
        self._do("the last reader to read around damage", reader.read_all())
        for partition, damage in damages.items():
            self.problems += misjudged(damage, reader.refused[partition])

    def _check_starts(self, starts: dict[Partition, int]) -> None:
        """What was deleted for good stays deleted, and nothing else is."""
        for partition in (*self.cast.of_kind("retained"), *self.cast.of_kind("aged")):
            self._note(
                Deletion,
                process="retention",
                outcome=Outcome.UNKNOWN,
                partition=partition.label,
                below_offset=starts[partition],
            )
        for partition, below in (self.cast.trimmer.deleted_below if self.cast.trimmer else {}).items():
            if starts[partition] < below:
                self.problems.append(f"{partition} begins at {starts[partition]}, not at {below}")
        for partition in self.cast.of_kind("aged"):
            if starts[partition] > 0 and not self.faults.was_clock_believed:
                self.problems.append(
                    f"a clock that jumped has cost {starts[partition]} offsets of {partition}"
                )

    def _last_reader(self, name: str, partitions: list[Partition]) -> LastReader:
        is_read_committed = name != "last"
        return LastReader(
            self.world, name, self.stream(name), partitions, is_read_committed=is_read_committed
        )

    def _note(self, kind: Any, **fields: Any) -> None:
        self.history.add(kind(invoked=self.history.tick(), completed=self.history.tick(), **fields))

    def _judge(self) -> None:
        operations = self.history.operations
        compacted = [partition.label for partition in self.cast.of_kind("compacted")]
        self.problems += map(str, find_anomalies(operations, compacted=compacted))
        for group in self.cast.transforming:
            self.problems += check_exactly_once(group, self.world.made_of, operations, LAST_COMMITTED)
