"""A broker that kills itself in the middle of its work, at each failpoint, one after the other.

Meanwhile a producer sends 100,000 records, a reader reads them, and others commit offsets, write
transactions, write to a compacted topic, make and delete topics, and delete records. The anomaly checker
judges what all of them saw.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from headrace.testing.anomalies import find_anomalies
from headrace.testing.failpoints import FAILPOINTS, kill_at
from headrace.testing.history import Drained, History, Send, TopicPartition

RECORD_COUNT = 100_000
RARE = ("log.roll", "log.seal", "log.checkpoint", "log.start", "log.compact", "store.")
"""How places begin that a broker passes seldom: it dies the first time."""

ELSEWHERE = (
    "bridge.",
    "capture.",
    "events.",
    "kafka.share.",
    "pipeline.",
    "push.",
    "queue.",
    "redrive.",
    "replay.",
)
"""How places begin that this broker does not pass; their tests are beside what they are in."""


@pytest.mark.simulation
def test_nothing_is_lost_doubled_or_torn_when_the_broker_dies_at_any_failpoint(
    broker_process: Any, clients: Callable[[str], Any]
) -> None:
    history, bootstrap = History(), broker_process.bootstrap
    partitions = [TopicPartition("orders", 0), TopicPartition("orders", 1)]
    accounts = [TopicPartition("accounts", 0), TopicPartition("accounts", 1)]
    table = TopicPartition("table", 0)
    admin = clients("Administrator")(history, bootstrap, TopicPartition("old", 0))
    admin.create_topics("table", orders=2, accounts=2, old=1)
    producer = clients("SteadyProducer")(history, bootstrap, "orders", 2)
    workers = [
        producer,
        clients("Accountant")(history, bootstrap, "accounts", 2),
        clients("Bookkeeper")(history, bootstrap, table),
        clients("Clerk")(history, bootstrap, TopicPartition("orders", 0)),
        admin,
    ]
    reader = clients("Reader")(history, bootstrap, [*partitions, *accounts, table])
    for worker in (*workers, reader):
        worker.start()
    broker_process.stop()
    chance = random.Random(4)
    failpoints = sorted(name for name in FAILPOINTS if not name.startswith(ELSEWHERE))
    for number, name in enumerate(failpoints, 1):
        producer.allowed_count = RECORD_COUNT * number // (len(failpoints) + 1)
        after = 0 if name.startswith(RARE) else chance.randint(0, 20)
        broker_process.start(kill_at(name, after=after))
        broker_process.await_killed()
    producer.allowed_count = RECORD_COUNT
    broker_process.start()
    while producer.count < RECORD_COUNT:
        assert producer.is_alive(), producer.error
        producer.join(0.05)
    for worker in workers:
        worker.stop()
    reader.stop()
    assert producer.acknowledged_count == RECORD_COUNT
    operations = history.operations
    assert [str(anomaly) for anomaly in find_anomalies(operations, compacted=[table])][:10] == []
    assert sum(isinstance(each, Send) for each in operations) > RECORD_COUNT
    assert any(isinstance(each, Drained) for each in operations)
