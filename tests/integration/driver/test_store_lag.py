"""How far behind a store is, as a broker tells it."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.broker import Broker
from headrace.driver.store_lag import StoreLagReader

AN_HOUR_MS = 3_600_000


def test_a_store_that_has_missed_records_which_are_deleted_is_still_behind(headrace_broker: Broker) -> None:
    clients: dict[str, Any] = {"bootstrap.servers": headrace_broker.bootstrap}
    admin, producer = AdminClient(clients), Producer(clients)
    [made] = admin.create_topics([NewTopic("events", 1)]).values()
    made.result(30)
    for number in range(4):
        producer.produce("events", b"x" * 100, partition=0, timestamp=AN_HOUR_MS * (number + 1))
    producer.flush(30)
    [deleted] = admin.delete_records([TopicPartition("events", 0, 2)]).values()
    deleted.result(30)
    with closing(StoreLagReader(headrace_broker.bootstrap, {})) as reader:
        lag = reader.lag({"events": {0: 0}})
        caught_up = reader.lag({"events": {0: 4}})
    assert lag is not None
    assert (lag.rows, lag.bytes) == (4, 400)
    assert lag.seconds > AN_HOUR_MS / 1000
    assert caught_up is not None
    assert (caught_up.rows, caught_up.bytes, caught_up.seconds) == (0, 0, 0.0)
