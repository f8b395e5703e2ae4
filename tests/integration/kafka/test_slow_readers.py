"""Clients that ask for much and don't read it: they take no more memory than they may, and make way."""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING, Any

import httpx
import kio.schema.fetch.v12.request
import pytest

from headrace.broker import Broker
from headrace.config import MIB, Address, BrokerConfig
from headrace.kafka import budget, engine

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FETCH = 1
VALUE_BYTES = 8_000_000
"""More than a socket takes that nobody reads."""
UNSENT_BYTES_MAX = 8 * MIB


def fetch_fields() -> dict[str, Any]:
    schemas: Any = kio.schema.fetch.v12.request
    partition = schemas.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=100_000_000)
    return {
        "max_wait": dt.timedelta(0),
        "min_bytes": 1,
        "topics": (schemas.FetchTopic(topic="large", partitions=(partition,)),),
        "forgotten_topics_data": (),
        "rack_id": "",
    }


def unsent_bytes(broker: Broker) -> int:
    # A proxy of the environment must not come between.
    with httpx.Client(trust_env=False, timeout=30) as client:
        text = client.get(broker.metrics_url).text
    found = re.search(r"^headrace_unsent_bytes (\S+)$", text, re.MULTILINE)
    assert found is not None
    return int(float(found[1]))


def test_clients_that_do_not_read_take_no_more_than_there_is_room_for_and_make_way_for_others(
    tmp_path: Path,
    raw_at: Callable[[str], Any],
    kafka_at: Callable[[str], Any],
    wait_until: Callable[..., Any],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine, "SWEEP_INTERVAL_S", 0.05)
    monkeypatch.setattr(budget, "PACE_WINDOW_S", 0.5)
    config = BrokerConfig(listen=Address("127.0.0.1", 0), durability="os", unsent_bytes_max=UNSENT_BYTES_MAX)
    with Broker(tmp_path / "data", config=config, metrics=True) as broker:
        kafka = kafka_at(broker.bootstrap)
        kafka.create_topic("large")
        values = [bytes([number]) * VALUE_BYTES for number in range(3)]
        assert kafka.produce("large", values, message_max_bytes=16_000_000) == [0, 1, 2]
        for _ in range(4):
            idle = raw_at(broker.bootstrap)
            idle.send(idle.request_frame(FETCH, 12, **fetch_fields()))
        wait_until(lambda: unsent_bytes(broker) >= UNSENT_BYTES_MAX, "answers that nobody reads")
        assert unsent_bytes(broker) < UNSENT_BYTES_MAX + VALUE_BYTES + MIB, "one batch may be above it"

        consumer = kafka.consumer()
        consumer.subscribe(["large"])
        read = kafka.read(consumer, 3)
        assert [message.value() for message in read] == values
        assert unsent_bytes(broker) < UNSENT_BYTES_MAX + VALUE_BYTES + MIB
        assert "took its answers too slowly while others waited" in caplog.text
