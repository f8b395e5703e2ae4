"""Changes of topics while others are going on, with a disk that is done when the test says so."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.config import LogConfig
from headrace.errors import HeadraceError, StorageError, TooManyOpenFiles, TopicExists, UnknownTopic
from headrace.kafka.answer import Pending
from headrace.kafka.handlers.internal_topic import needing
from headrace.kafka.producer_ids import ProducerIds
from headrace.kafka.services import OFFSETS_TOPIC
from headrace.kafka.topic_changes import TopicChanges
from headrace.log.identity import PRODUCER_ID_BLOCK
from headrace.log.store import LogStore
from headrace.log.topic import Topic
from headrace.testing.clock import ManualClock
from headrace.testing.disk import SimulatedDisk

DATA_DIR = Path("/data")


class Bench:
    """A store on a disk in memory, and the work that it has been given."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk()
        self.store = LogStore.open(DATA_DIR, LogConfig(), ManualClock(), disk=self.disk)
        self.work: list[tuple[Callable[[], None], Callable[[], None]]] = []
        self.failures: list[StorageError] = []
        self.changes = TopicChanges(self.store, self.submit, self.failures.append)
        self.producer_ids = ProducerIds(self.store, self.submit, self.failures.append)

    def submit(self, work: Callable[[], None], then: Callable[[], None]) -> None:
        self.work.append((work, then))

    def finish_work(self) -> None:
        while self.work:
            work, then = self.work.pop(0)
            work()
            then()

    def create(self, name: str, partition_count: int = 1) -> list[Any]:
        outcomes: list[Any] = []
        self.changes.change(
            name, lambda: self.store.catalog.begin_creation(name, partition_count), outcomes.append
        )
        return outcomes

    def delete(self, name: str) -> list[Any]:
        outcomes: list[Any] = []
        self.changes.change(name, lambda: self.store.catalog.begin_deletion(name), outcomes.append)
        return outcomes

    def allocate(self) -> list[int | HeadraceError]:
        outcomes: list[int | HeadraceError] = []
        self.producer_ids.allocate(outcomes.append)
        return outcomes


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.store.close()


def test_a_topic_is_seen_when_the_disk_is_done_and_not_before(bench: Bench) -> None:
    outcomes = bench.create("orders", 3)
    assert (outcomes, dict(bench.store.topics)) == ([], {})
    assert (bench.store.catalog.topic_count, bench.store.catalog.partition_count) == (1, 3), (
        "but it counts already"
    )
    bench.finish_work()
    assert outcomes == [bench.store.topics["orders"]]
    assert (bench.store.catalog.topic_count, bench.store.catalog.partition_count) == (1, 3)


def test_of_two_creations_of_one_name_the_first_wins_and_the_second_finds_it_there(bench: Bench) -> None:
    first, second = bench.create("orders", 1), bench.create("orders", 2)
    bench.finish_work()
    assert isinstance(first[0], Topic)
    assert isinstance(second[0], TopicExists)
    assert len(bench.store.topics["orders"].partitions) == 1


def test_very_many_creations_of_one_name_are_all_answered(bench: Bench) -> None:
    outcomes = [bench.create("orders") for _ in range(5_000)]
    bench.finish_work()
    assert [len(each) for each in outcomes] == [1] * 5_000


def test_a_creation_that_failed_lets_the_next_one_have_its_turn(bench: Bench) -> None:
    bench.disk.fail("sync_directory", errno.EMFILE)
    first, second = bench.create("orders"), bench.create("orders")
    bench.finish_work()
    assert isinstance(first[0], TooManyOpenFiles)
    assert second == [bench.store.topics["orders"]]
    assert bench.failures == []


def test_a_topic_that_is_being_deleted_is_gone_at_once_and_can_be_made_anew(bench: Bench) -> None:
    bench.create("orders")
    bench.finish_work()
    old = bench.store.topics["orders"]
    deleted, created, again = bench.delete("orders"), bench.create("orders"), bench.delete("nowhere")
    assert "orders" not in bench.store.topics
    bench.finish_work()
    assert deleted == [None]
    assert created[0].topic_id != old.topic_id
    assert isinstance(again[0], UnknownTopic)


def test_changes_of_other_topics_are_given_to_the_disk_without_waiting(bench: Bench) -> None:
    bench.create("a")
    bench.create("b")
    assert len(bench.work) == 2


def test_whoever_needs_a_topic_that_is_being_created_waits_for_it(bench: Bench) -> None:
    bench.create("orders", 4)
    outcomes: list[Any] = []
    bench.changes.ensure("orders", 1, {}, outcomes.append)
    bench.finish_work()
    bench.changes.ensure("orders", 1, {}, outcomes.append)
    assert [len(topic.partitions) for topic in outcomes] == [4, 4]


def test_a_failed_disk_is_reported(bench: Bench) -> None:
    bench.disk.fail("sync_file", errno.EIO)
    outcomes = bench.create("orders")
    bench.finish_work()
    assert isinstance(outcomes[0], StorageError)
    assert bench.failures == [bench.store.failed]
    assert isinstance(bench.create("more")[0], StorageError)


def test_a_mistake_in_an_answer_does_not_stop_the_changes_that_wait(bench: Bench) -> None:
    def fail(_outcome: object) -> None:
        raise RuntimeError("a mistake")

    bench.changes.change("orders", lambda: bench.store.catalog.begin_creation("orders", 1), fail)
    second = bench.delete("orders")
    bench.finish_work()
    assert second == [None]


def test_producer_ids_come_at_once_and_the_next_block_is_reserved_before_it_is_needed(bench: Bench) -> None:
    for expected in range(PRODUCER_ID_BLOCK):
        assert bench.allocate() == [expected]
        if expected == PRODUCER_ID_BLOCK * 3 // 4:
            assert len(bench.work) == 1
            bench.finish_work()
    assert bench.allocate() == [PRODUCER_ID_BLOCK]


def test_whoever_comes_when_no_producer_id_is_left_waits_for_the_next_block(bench: Bench) -> None:
    assert bench.store.take_producer_ids(PRODUCER_ID_BLOCK) is not None
    first, second = bench.allocate(), bench.allocate()
    assert (first, second) == ([], [])
    bench.finish_work()
    assert (first, second) == ([PRODUCER_ID_BLOCK], [PRODUCER_ID_BLOCK + 1])


def test_producer_ids_that_could_not_be_reserved_are_refused_and_the_next_try_may_succeed(
    bench: Bench,
) -> None:
    assert bench.store.take_producer_ids(PRODUCER_ID_BLOCK) is not None
    bench.disk.fail("open", errno.EMFILE)
    first = bench.allocate()
    bench.finish_work()
    second = bench.allocate()
    bench.finish_work()
    assert isinstance(first[0], TooManyOpenFiles)
    assert second == [PRODUCER_ID_BLOCK]


def test_a_handler_that_needs_an_internal_topic_is_called_when_it_is_there(bench: Bench) -> None:
    seen: list[bool] = []
    inner: Pending[str] = Pending()

    def handler(_call: Any, _request: Any) -> Pending[str]:
        seen.append(OFFSETS_TOPIC in bench.store.topics)
        return inner

    call: Any = SimpleNamespace(services=SimpleNamespace(store=bench.store, topics=bench.changes))
    answers: list[str] = []
    needing(OFFSETS_TOPIC, handler)(call, None).then(answers.append)
    assert seen == []
    bench.finish_work()
    assert (seen, answers) == ([True], [])
    inner.resolve("done")
    assert answers == ["done"]
    assert needing(OFFSETS_TOPIC, handler)(call, None) is inner
