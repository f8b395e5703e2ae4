"""Metrics of pipelines over HTTP, and the lag that a real broker tells."""

from __future__ import annotations

import socket
from dataclasses import replace
from datetime import UTC, datetime

import httpx
import pytest
from confluent_kafka import Producer

import headrace
from headrace.config import Address
from headrace.driver.lag import LagReader
from headrace.driver.metrics import PipelineMetrics
from headrace.driver.metrics_thread import served
from headrace.driver.process import ProcessId
from headrace.driver.status import Status
from headrace.errors import ConfigError

ANY_PORT = Address("127.0.0.1", 0)
NOW = datetime(2026, 1, 2, tzinfo=UTC)
STATUS = Status(
    name="copies",
    state="running",
    process=ProcessId(1),
    started_at=NOW,
    updated_at=NOW,
    mode="micro-batch",
    bootstrap="127.0.0.1:1",
    reads=("orders",),
    writes="copies",
    input_row_count=201,
)


def metrics_of(status: Status) -> PipelineMetrics:
    return PipelineMetrics(lambda: [status], lambda _: {"copies": 7})


def test_metrics_and_health_are_served() -> None:
    with served(metrics_of(STATUS), ANY_PORT, is_public=False) as address:
        numbers = httpx.get(f"http://{address}/metrics").text
        assert 'headrace_pipeline_rows_read_total{pipeline="copies"} 201.0' in numbers
        assert 'headrace_pipeline_lag_records{pipeline="copies"} 7.0' in numbers
        assert httpx.get(f"http://{address}/health/ready").status_code == 200
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"http://{address}/metrics")


def test_a_pipeline_that_does_not_run_is_not_ready() -> None:
    failed = replace(STATUS, state="failed")
    with served(metrics_of(failed), ANY_PORT, is_public=False) as address:
        answer = httpx.get(f"http://{address}/health/ready")
    assert (answer.status_code, answer.json()["reason"]) == (503, "copies is failed")


def test_a_port_that_is_taken_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = Address("127.0.0.1", taken.getsockname()[1])
        with (
            pytest.raises(ConfigError, match="can't serve metrics on"),
            served(metrics_of(STATUS), address, is_public=False),
        ):
            pass


def test_the_lag_is_what_the_broker_has_beyond_the_last_batch(headrace_broker: headrace.Broker) -> None:
    producer = Producer({"bootstrap.servers": headrace_broker.bootstrap})
    for _ in range(5):
        producer.produce("orders", b"row", partition=0)
    producer.flush()
    there = replace(STATUS, next_offsets={"orders": {0: 2}})
    gone = replace(STATUS, name="gone", next_offsets={"deleted": {0: 2}})

    reader = LagReader(headrace_broker.bootstrap, {})

    assert reader.lags([there, gone, replace(STATUS, name="new")]) == {"copies": 3}
