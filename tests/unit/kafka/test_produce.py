"""Producing, with syncs that end when the test says so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.clock import SystemClock
from headrace.config import MIB, BrokerConfig, LogConfig
from headrace.errors import PartitionClosed, StorageError
from headrace.kafka.answer import Pending
from headrace.kafka.commit import GroupCommit
from headrace.kafka.handlers.produce import handle_produce
from headrace.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from headrace.kafka.services import OFFSETS_TOPIC, Services
from headrace.kafka.unsent_answers import UnsentAnswers
from headrace.log.batch import encode_batch
from headrace.log.partition import PartitionLog
from headrace.log.record import Record
from headrace.log.store import LogStore


class Bench:
    """A store with the topics `keep`, `gone` and the internal one, and a group commit driven by hand."""

    def __init__(self, directory: Path) -> None:
        config = BrokerConfig(data_dir=directory)
        self.store = LogStore.open(directory, LogConfig(), SystemClock())
        for name in ("keep", "gone", OFFSETS_TOPIC):
            self.store.catalog.begin_creation(name, 1).at_once()
        self.commit = GroupCommit("sync", lambda _logs: None, lambda _log: None, lambda _error: None)
        unused: Any = SimpleNamespace()
        self.services = Services(
            config=config,
            store=self.store,
            clock=SystemClock(),
            scheduler=unused,
            commit=self.commit,
            watchers=unused,
            groups=unused,
            topics=unused,
            producer_ids=unused,
            transactions=unused,
            shares=unused,
            unsent_answers=UnsentAnswers(MIB),
        )

    def log(self, topic: str) -> PartitionLog:
        return self.store.topics[topic].partitions[0]

    def produce(self, *topics: TopicProduceData) -> Any:
        request = ProduceRequest(transactional_id=None, acks=-1, timeout_ms=1_000, topic_data=topics)
        call: Any = SimpleNamespace(services=self.services)
        return handle_produce(call, request)

    def sync(self, topic: str) -> None:
        self.log(topic).sync()
        self.commit.synced([self.log(topic)], None)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path / "data")
    yield bench
    bench.store.close()


def records() -> tuple[PartitionProduceData, ...]:
    batch = encode_batch([Record(timestamp_ms=1, key=None, value=b"v")])
    return (PartitionProduceData(index=0, records=batch),)


def outcome(response: Any) -> dict[str, str]:
    return {topic.name: topic.partition_responses[0].error_code.name for topic in response.responses}


def answer_of(pending: Any) -> list[Any]:
    assert isinstance(pending, Pending)
    answers: list[Any] = []
    pending.then(answers.append)
    return answers


def test_an_acknowledgement_waits_until_every_partition_is_durable(bench: Bench) -> None:
    answers = answer_of(
        bench.produce(
            TopicProduceData(name="keep", partition_data=records()),
            TopicProduceData(name="gone", partition_data=records()),
        )
    )
    bench.sync("keep")
    assert answers == []
    bench.sync("gone")
    assert [outcome(answer) for answer in answers] == [{"keep": "none", "gone": "none"}]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (PartitionClosed("deleted"), "unknown_topic_or_partition"),
        (StorageError("disk full"), "kafka_storage_error"),
    ],
)
def test_a_partition_that_fails_does_not_speak_for_one_that_became_durable(
    bench: Bench, error: PartitionClosed | StorageError, code: str
) -> None:
    answers = answer_of(
        bench.produce(
            TopicProduceData(name="keep", partition_data=records()),
            TopicProduceData(name="gone", partition_data=records()),
        )
    )
    bench.commit.closed(bench.log("gone"), error)
    assert answers == []
    bench.sync("keep")
    assert [outcome(answer) for answer in answers] == [{"keep": "none", "gone": code}]


def test_an_internal_topic_can_not_be_written_under_its_name_nor_under_its_id(bench: Bench) -> None:
    topic_id = bench.store.topics[OFFSETS_TOPIC].topic_id
    by_name = bench.produce(TopicProduceData(name=OFFSETS_TOPIC, partition_data=records()))
    by_id = bench.produce(TopicProduceData(topic_id=topic_id, partition_data=records()))
    for response in (by_name, by_id):
        assert response.responses[0].partition_responses[0].error_code.name == "invalid_topic_exception"
    assert bench.log(OFFSETS_TOPIC).end_offset == 0
