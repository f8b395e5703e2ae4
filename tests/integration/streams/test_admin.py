"""Topics are there before a query starts."""

from __future__ import annotations

from typing import Any

import pytest

import headrace.streams as hr
from headrace.config import StreamsConfig
from headrace.errors import BrokerUnavailable, FaultError
from headrace.streams.admin import ensure_topics
from headrace.streams.run import run

orders = hr.topic("orders", schema="id string")


def test_topics_are_created_with_so_many_partitions(kafka: Any) -> None:
    assert ensure_topics(kafka.bootstrap, {"one": 1, "three": 3}) == {"one": 1, "three": 3}


def test_a_topic_that_exists_keeps_what_it_has(kafka: Any) -> None:
    ensure_topics(kafka.bootstrap, {"orders": 3})

    assert ensure_topics(kafka.bootstrap, {"orders": 1, "other": 1}) == {"orders": 3, "other": 1}


def test_a_topic_that_the_broker_refuses_is_named(kafka: Any) -> None:
    with pytest.raises(FaultError, match=r"topic no spaces could not be created at 127\.0\.0\.1"):
        ensure_topics(kafka.bootstrap, {"no spaces": 1})


def test_without_a_broker_a_run_ends_before_spark_starts(tmp_path: Any) -> None:
    @hr.pipeline(writes=hr.topic("copies"))
    def copies(orders: Any) -> Any: ...

    config = StreamsConfig(
        bootstrap="127.0.0.1:1", data_dir=tmp_path, jars_dir=tmp_path / "there are no jars"
    )

    with pytest.raises(BrokerUnavailable, match=r"no broker answers at 127\.0\.0\.1:1: start one with"):
        run([copies], config, realtime=False)
