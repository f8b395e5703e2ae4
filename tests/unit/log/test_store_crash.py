"""Topics made and deleted, and a process or the power that goes at each step of the disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from uuid import UUID

import pytest

from headrace.clock import Clock
from headrace.config import LogConfig
from headrace.errors import HeadraceError
from headrace.log.partition import PartitionLog
from headrace.log.store import LogStore
from headrace.log.topic import Topic
from headrace.testing.disk import PowerLoss, SimulatedDisk

MakeBatch = Callable[..., bytes]
SIZE_MAX = 1_000_000
DATA_DIR = Path("/home/somebody/.headrace")
STORY_STEPS = 70


def _topics(store: LogStore) -> dict[str, tuple[UUID, int, dict[str, str]]]:
    return {
        name: (topic.topic_id, len(topic.partitions), dict(topic.config))
        for name, topic in store.topics.items()
    }


def _append_and_sync(partition: PartitionLog, batch: bytes) -> None:
    partition.append(batch, size_bytes_max=SIZE_MAX)
    partition.sync()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("process_alone", [False, True])
def test_creating_changing_and_deleting_is_all_or_nothing_whenever_the_process_or_the_power_goes(
    clock: Clock, make_batch: MakeBatch, process_alone: bool, seed: int
) -> None:
    for steps in range(STORY_STEPS):
        story = TopicStory(Random(seed), clock, make_batch())
        try:
            story.live(steps=steps, process_alone=process_alone)
            story.live(steps=story.random.randint(0, STORY_STEPS))
            story.live()
        except (AssertionError, HeadraceError) as error:
            error.add_note(f"seed {seed}, {steps} steps")
            raise


class TopicStory:
    """A store that makes, changes and deletes topics, one at a time, until the power goes."""

    def __init__(self, random: Random, clock: Clock, batch: bytes) -> None:
        self.random = random
        self.clock = clock
        self.batch = batch
        self.disk = SimulatedDisk()
        self.known: dict[str, tuple[UUID, int, dict[str, str]]] = {}
        self.in_doubt: str | None = None
        """The topic that was being made, changed or deleted when the power went."""
        self.change_in_doubt: tuple[UUID, int, dict[str, str]] | None = None
        """What the topic would be after the change, where it was being changed."""
        self.acknowledged: set[UUID] = set()
        """The topics that hold a record of which a sync has returned."""

    def live(self, *, steps: int = STORY_STEPS, process_alone: bool = False) -> None:
        """Open the store, check it, use it for so many steps of the disk."""
        self.disk.lose_power_after(steps)
        try:
            store = LogStore.open(DATA_DIR, LogConfig(), self.clock, disk=self.disk)
            self.check(store)
            for topic in store.topics.values():
                self.acknowledge(topic)
            for _ in range(self.random.randint(0, 6)):
                self.step(store, self.random.choice("ab"))
        except PowerLoss:
            pass
        if process_alone:
            self.disk.kill()
        else:
            self.disk.crash(self.random)

    def step(self, store: LogStore, name: str) -> None:
        self.in_doubt = name
        if name in self.known and self.random.random() < 0.5:
            self.change(store, name)
        elif name in self.known:
            store.catalog.begin_deletion(name).at_once()
            del self.known[name]
        else:
            topic = store.catalog.begin_creation(name, 2).at_once()
            assert [partition.end_offset for partition in topic.partitions] == [0, 0]
            self.known[name] = _topics(store)[name]
            self.acknowledge(topic)
        self.in_doubt = None
        self.change_in_doubt = None

    def change(self, store: LogStore, name: str) -> None:
        """Give a topic one more partition or another setting."""
        topic_id, partition_count, config = self.known[name]
        if self.random.random() < 0.5:
            self.change_in_doubt = (topic_id, partition_count + 1, config)
            topic = store.catalog.begin_growth(name, partition_count + 1).at_once()
            assert topic.partitions[-1].end_offset == 0
        else:
            config = {"retention.ms": str(self.random.randint(1, 9))}
            self.change_in_doubt = (topic_id, partition_count, config)
            store.catalog.begin_reconfiguration(name, config).at_once()
        self.known[name] = self.change_in_doubt
        assert _topics(store)[name] == self.known[name]

    def acknowledge(self, topic: Topic) -> None:
        """Let a topic hold one record."""
        if topic.partitions[0].end_offset == 0:
            _append_and_sync(topic.partitions[0], self.batch)
        self.acknowledged.add(topic.topic_id)

    def check(self, store: LogStore) -> None:
        found = _topics(store)
        doubtful = found.get(self.in_doubt or "")
        if doubtful is not None and self.in_doubt not in self.known:
            assert doubtful[1] == 2, "a topic that was being made is whole"
        elif doubtful is not None:
            before = self.known[self.in_doubt or ""]
            assert doubtful in (before, self.change_in_doubt), "a topic is whole, as it was or as it is now"
        elif self.in_doubt in self.known:
            assert self.change_in_doubt is None, "a topic that was being changed is there"
        for topics in (found, self.known):
            topics.pop(self.in_doubt or "", None)
        assert found == self.known, "all the others are as they were"
        self.known = _topics(store)
        self.in_doubt = self.change_in_doubt = None
        for topic in store.topics.values():
            end_offset = topic.partitions[0].end_offset
            assert end_offset == 1 or topic.topic_id not in self.acknowledged, (
                "what was acknowledged is there"
            )
